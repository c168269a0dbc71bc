"""Steps with the kernels of liger-kernel, measured by tools/measure_liger.py, are equal in every figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.trace.liger import SWITCHES
from tools.measure import FIGURES, SETTINGS, SHAPE, planned, spec_of

HEAD, *ROWS = map(json.loads, (Path(__file__).parents[1] / "data" / "liger_steps.jsonl").read_text(encoding="utf-8").splitlines())
CASES = [(row["config"], row["liger"], name, its) for row in ROWS for name, its in row["steps"].items()]
IDS = [f"{config['model_type']}-{','.join(name for name, on in liger.items() if on)}-{name}" for config, liger, name, _ in CASES]


def fused_experts(config: dict[str, Any], name: str) -> tuple[int, int]:
    """Return the FLOPs of the kernels of experts, which PyTorch's counter does not see: 2 per element of gate, up and down, and row.

    Backward: twice that, and the forward pass once more if layers are recomputed.
    """
    layers = [(run.count, layer.experts) for run in spec_of(config).model.runs for layer in run.layers]
    tokens, d = SHAPE["batch_size"] * SHAPE["sequence_length"], config["hidden_size"]
    forward = sum(2 * count * tokens * kind.top_k * 3 * d * kind.d_ff for count, kind in layers if kind)
    return forward, forward * (3 if name.endswith("full") else 2)


@pytest.mark.parametrize(("config", "liger", "name", "its"), CASES, ids=IDS)
def test_a_step_with_liger_kernels_equals_the_measurement(
    config: dict[str, Any], liger: dict[str, bool], name: str, its: list[int]
) -> None:
    ours = dict(zip(FIGURES, planned(config, SETTINGS[name] | {"liger": liger or True}), strict=True))
    measured = dict(zip(FIGURES, its, strict=True))
    if liger.get("swiglu", not liger):
        for key, flops in zip(("flops_forward", "flops_backward"), fused_experts(config, name), strict=True):
            measured[key] += flops
    assert ours == measured


def test_every_supported_class_was_measured() -> None:
    assert {row["config"]["model_type"] for row in ROWS} == set(SWITCHES)
    assert HEAD["liger_kernel"] == "0.8.5"
