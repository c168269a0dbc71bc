"""Experts that devices share: the rows of the fullest device, and what is refused. Measured ranks are in ``tests/data/fleet_steps.csv``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import planner
from planner.capacity.layout_grid import peaks
from planner.trace.unsupported import UnsupportedError

SPEC = """\
name: x
model: {vocab_size: 96, context_length: 32, d_model: 32, n_layers: 2, n_heads: 4, experts: {count: 8, top_k: 2, d_ff: 48}}
training: {batch_size: 2, precision: fp32%s}
cluster: {device: H100-80GB-SXM, devices: 4}
layout: {expert_parallel: 2%s}
"""
PAIRS = 2 * 32 * 2  # sequences, tokens and experts of each


def plan(path: Path, layout: str = "", training: str = "") -> planner.Plan:
    path.write_text(SPEC % (training, layout), encoding="utf-8")
    return planner.plan(path)


def test_experts_of_the_fullest_device_compute_more_rows(tmp_path: Path) -> None:
    balanced, fullest = (plan(tmp_path / "x.yaml", layout) for layout in ("", ", imbalance: 1.5"))
    of_a_row = 32 + 4 * 48  # its input; gate, its activation, up and their product
    more = balanced.memory.activations_bytes + 2 * PAIRS // 2 * of_a_row * 4
    assert fullest.memory.activations_bytes == more


def test_all_to_alls_send_what_the_next_device_receives(tmp_path: Path) -> None:
    sent = {layout: plan(tmp_path / "x.yaml", layout, more).fleet for layout, more in [("", ""), (", imbalance: 1.5", "")]}
    again = plan(tmp_path / "x.yaml", "", ", recompute: full").fleet
    each = PAIRS * 32 * 4
    # In each of two layers: tokens there, results back, and the gradients of both; recomputed layers send tokens and results once more.
    for fleet, expected in [(sent[""], 2 * 4 * each), (sent[", imbalance: 1.5"], 2 * 5 * each), (again, 2 * 6 * each)]:
        assert fleet is not None
        assert sum(one.bytes for one in fleet.traffic if one.collective == "all-to-all") == expected


def test_layouts_at_once_have_the_peaks_of_their_plans(tmp_path: Path) -> None:
    plan(tmp_path / "x.yaml", ", data_parallel: fsdp")
    spec = planner.load(tmp_path / "x.yaml")
    points = [(devices, shared) for shared in (2, 4) for devices in range(shared, 33, shared)]
    grid = {
        name: np.array(sizes, dtype=np.int64) for name, sizes in zip(("devices", "expert_parallel"), zip(*points, strict=True), strict=True)
    }
    together = peaks(spec.model, spec.scenarios[0].training, grid)
    assert not together.refused
    text = (tmp_path / "x.yaml").read_text(encoding="utf-8")
    alone = []
    for devices, shared in points:
        sizes = text.replace("devices: 4", f"devices: {devices}, per_node: 2").replace("expert_parallel: 2", f"expert_parallel: {shared}")
        (tmp_path / "x.yaml").write_text(sizes, encoding="utf-8")
        alone.append(planner.plan(tmp_path / "x.yaml"))
    assert together.figures[0] is not None
    assert together.figures[0].tolist() == [one.memory.peak_bytes for one in alone]


@pytest.mark.parametrize(
    ("layout", "training", "named"),
    [
        (", data_parallel: zero1", "", "data_parallel zero1 with expert_parallel"),
        (", data_parallel: hsdp, shard_degree: 1", "", "shard_degree 1, no multiple of it, with expert_parallel"),
        (", data_parallel: fsdp, offload: weights", "", "offload weights with expert_parallel"),
        (", tensor_parallel: 2", "", "tensor_parallel with expert_parallel"),
        ("", ", experts_kernel: grouped", "experts_kernel grouped with expert_parallel"),
        ("", ", implementation: transformers", "implementation transformers with expert_parallel"),
    ],
)
def test_what_is_not_modeled_with_shared_experts_is_refused(tmp_path: Path, layout: str, training: str, named: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        plan(tmp_path / "x.yaml", layout, training)
