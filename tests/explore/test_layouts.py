"""Grids of layouts: each row is the plan of a spec with these settings, or has the reason why there is none."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Sequence
from itertools import product

import pytest

import planner
from planner.explore import axes, sweep, table, view
from planner.spec import SpecError
from planner.spec.edits import changed
from planner.trace.unsupported import UnsupportedError

LLAMA = {
    "name": "llama",
    "extends": "catalog/llama-3-8b",
    "model": {"d_model": 512, "vocab_size": 1000, "pad_vocab_to_multiple_of": 8, "head_dim": 16, "d_ff": 960},
    "training": {"batch_size": 1, "sequence_length": 64, "precision": "bf16", "loss": "cross_entropy_float32", "steps": 10},
    "cluster": {"device": "H100-80GB-SXM", "devices": 16},
    "layout": {"data_parallel": "fsdp"},
}
MIXTRAL = {
    "name": "mixtral",
    "extends": "catalog/mixtral-8x7b-v0.1",
    "model": {"d_model": 512, "vocab_size": 1000, "head_dim": 16, "experts": {"d_ff": 96}},
    "training": {"batch_size": 1, "sequence_length": 64, "precision": "bf16-master", "implementation": "megatron-core", "device": "h100"},
    "cluster": {"device": "H100-80GB-SXM", "devices": 16},
    "layout": {"data_parallel": "zero1"},
}
VALUES: dict[str, Sequence[int | str]] = {
    "cluster.devices": (1, 2, 8, 12, 16, 24),
    "layout.tensor_parallel": (1, 2, 3, 4, 8),
    "layout.pipeline_parallel": (1, 2, 3, 4),
    "layout.virtual_stages": (1, 2, 3),
    "layout.context_parallel": (1, 2, 4),
    "layout.context_kind": ("ring", "all_gather", "ulysses"),
    "layout.expert_parallel": (1, 2, 4),
    "layout.shard_degree": (1, 2, 3),
    "layout.schedule": ("1f1b", "gpipe", "interleaved", "zero_bubble", "zbv", "dualpipev"),
    "layout.data_parallel": ("ddp", "zero1", "fsdp", "hsdp"),
    "layout.sequence_parallel": ("false", "true"),
    "layout.reshard_after_forward": ("auto", "never"),
    "training.batch_size": (1, 2, 3),
    "training.sequence_length": (8, 20, 64),
    "training.gradient_accumulation": (1, 2, 4, 6, 8, 9),
    "training.global_batch_size": (24, 48),
    "training.recompute": ("none", "full"),
    "training.optimizer_kernel": ("fused", "foreach"),
    "model.n_layers": (1, 4, 12, 13),
}


def swept(base: planner.Spec, grid: Sequence[axes.Axis], metric: str = "free_bytes") -> table.Sweep:
    return sweep.sweep(lambda overrides: changed(base, overrides=overrides), grid, metric=metric)


def rows(made: table.Sweep) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(table.csv(made)))))


def planned(base: planner.Spec, settings: dict[str, int | str], metrics: Sequence[str]) -> dict[str, str] | None:
    """Return the metrics of a spec with settings as text, None if it is invalid or not modeled."""
    try:
        made = planner.plan(changed(base, overrides=[f"{key}={value}" for key, value in settings.items()]))
    except (SpecError, UnsupportedError):
        return None
    return {name: str(table.METRICS[name](made)) for name in metrics}


@pytest.mark.parametrize("seed", range(16))
def test_a_row_is_the_plan_of_its_settings(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    base = planner.load(MIXTRAL if seed > 11 else LLAMA)
    keys = [key for key in rng.sample(list(VALUES), 6) if key != "training.global_batch_size" or seed % 2]
    keys = [key for key in keys if key != "training.gradient_accumulation" or "training.global_batch_size" not in keys]
    keys = keys if any(key.startswith(("cluster", "layout")) for key in keys) else [*keys, "layout.tensor_parallel"]
    grid = [axes.of(key, rng.sample(list(VALUES[key]), min(3, len(VALUES[key])))) for key in keys]
    try:
        made = swept(base, grid, "communicated_bytes" if seed > 11 else "train_flops")
    except (SpecError, table.SweepError):  # no layout is possible, or modeled
        points = [dict(zip(keys, point, strict=True)) for point in rng.choices(list(product(*(axis.values for axis in grid))), k=20)]
        assert all(planned(base, settings, ()) is None for settings in points)
        return
    found = rows(made)
    assert len(found) == made.points
    for number in rng.sample(range(made.points), 6):
        line = found[number]
        expected = planned(base, {axis.key: line[axis.name] for axis in grid}, made.metrics)
        assert (expected is None) == bool(line["problem"]), line
        assert {name: line[name] for name in made.metrics} == (expected or dict.fromkeys(made.metrics, "")), line


def test_groups_of_hsdp_contain_the_devices_that_share_a_sequence() -> None:
    base = planner.load({**LLAMA, "layout": {"data_parallel": "hsdp", "shard_degree": 4}})
    keys = ("layout.context_parallel=1,2,4", "cluster.devices=8,16", "training.batch_size=1,2,3,4")
    grid = [axes.parse(key) for key in keys]
    for line in rows(swept(base, grid)):
        expected = planned(base, {axis.key: line[axis.name] for axis in grid}, ["peak_bytes"])
        assert (expected or {}).get("peak_bytes", "") == line["peak_bytes"], line


def test_an_impossible_layout_is_a_row_with_its_reason() -> None:
    base = planner.load(LLAMA)
    made = swept(base, [axes.parse("layout.tensor_parallel=2,3,5"), axes.parse("cluster.devices=12,16,30")])
    reasons = {(line["tensor_parallel"], line["devices"]): line["problem"] for line in rows(made)}
    assert reasons["2", "16"] == ""
    assert reasons["2", "30"] == "per_node 8 does not divide devices 30"
    assert reasons["3", "16"] == "tensor_parallel 3 * pipeline_parallel 1 * context_parallel 1 does not divide devices 16"
    assert reasons["5", "30"].startswith("per_node 8")
    made = swept(base, [axes.parse("layout.tensor_parallel=2,3"), axes.parse("training.batch_size=40000")])
    assert [line["free_bytes"][:1] for line in rows(made)] == ["-", ""]  # a number, not the text that a formula would be
    made = swept(base, [axes.parse("layout.tensor_parallel=2,3,5"), axes.parse("cluster.devices=12,16,30")])
    head, *points = json.loads("".join(view.as_json(made)))["rows"]
    assert None not in head[:4]
    assert sum(row[-2] is None for row in points) == 7
    assert "–" in view.text(made, "peak_bytes")
    assert "only one point; no chart" in view.chart(made, "peak_bytes")
    several = swept(base, [axes.parse("layout.tensor_parallel=1,2,3,4"), axes.parse("cluster.devices=8,16")])
    assert view.chart(several, "peak_bytes").count("<polyline") == 2


def test_a_grid_without_a_possible_layout_is_an_error() -> None:
    base = planner.load(LLAMA)
    with pytest.raises(SpecError, match="tensor_parallel 3 does not divide"):
        swept(base, [axes.parse("layout.tensor_parallel=3,5")])
    with pytest.raises(SpecError, match="unknown device"):
        swept(base, [axes.parse("cluster.device=H1000,X"), axes.parse("layout.tensor_parallel=1,2")])
    with pytest.raises(table.SweepError, match="not modeled"):
        swept(planner.load({**LLAMA, "layout": {}}), [axes.parse("layout.data_parallel=zero2")])
    with pytest.raises(table.SweepError, match=r"the limit is 1,000,000"):
        swept(base, [axes.parse("layout.tensor_parallel=1..2000"), axes.parse("cluster.devices=1..2000")])


def test_a_global_batch_gives_the_passes_of_each_layout() -> None:
    # 48 sequences / (2 of a pass * 4, 8 or 16 data-parallel devices) = 6, 3 or 1.5 passes
    base = planner.load(LLAMA)
    grid = [axes.parse(one) for one in ("training.global_batch_size=48", "training.batch_size=2", "cluster.devices=4,8,16")]
    made = rows(swept(base, grid, "train_flops_per_step"))
    per_token = int(made[0]["train_flops_per_token"])
    assert [line["train_flops_per_step"] for line in made] == [f"{per_token * 2 * 64 * passes}" for passes in (6, 3)] + [""]
