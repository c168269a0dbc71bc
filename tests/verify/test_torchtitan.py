"""Llama 3's modules as torchtitan runs them, planned and measured in PyTorch: every byte and FLOP is equal, peaks included."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.spec.records import Spec
from planner.trace.unsupported import UnsupportedError

pytest.importorskip("torch", reason="the extra torch is not installed")

from planner.verify import CannotMeasureError
from planner.verify.comparison import compare
from planner.verify.step import measure
from tests.verify.steps import measured, planned

WIDE: dict[str, Any] = {"d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 176, "n_layers": 3}
SIZES: dict[str, dict[str, Any]] = {
    "wide feed-forward": WIDE,
    "wide heads": {"d_model": 8, "n_heads": 6, "n_kv_heads": 3, "head_dim": 128, "d_ff": 16, "n_layers": 2},  # rotation is the peak
    "heads for flash, one layer": {"d_model": 96, "n_heads": 2, "head_dim": 136, "d_ff": 100, "n_layers": 1},  # too wide for cuDNN
}
LLAMA: dict[str, Any] = {
    "vocab_size": 503, "context_length": 96, "positions": "rope", "norm": {"type": "rmsnorm"}, "head": {"tied": False},
    "attention": {"qkv": "separate", "bias": False}, "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
}  # fmt: skip


def loaded(folder: Path, sizes: dict[str, Any], **training: object) -> Spec:
    path = folder / "spec.yaml"
    step = {"implementation": "torchtitan", "batch_size": 2, "sequence_length": 65, **training}
    path.write_text(json.dumps({"name": "x", "model": LLAMA | sizes, "training": step}), encoding="utf-8")  # JSON is YAML
    return planner.load(path)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(
    ("sizes", "precision"), [*product(SIZES, ["bf16-autocast", "bf16-master"]), ("wide feed-forward", "fp32"), ("wide heads", "bf16")]
)
def test_a_step_is_exact(tmp_path: Path, sizes: str, precision: str, recompute: str) -> None:
    spec = loaded(tmp_path, SIZES[sizes], precision=precision, recompute=recompute)
    plan = planner.plan(spec)
    assert planned(plan) == measured(plan, measure(spec.model, plan.training))


@pytest.mark.parametrize("changed", [{"device": "h100"}, {"gradient_accumulation": 3}, {"loss": "cross_entropy"}, {"batch_size": 1}])
def test_a_step_in_another_setting_is_exact(tmp_path: Path, changed: dict[str, object]) -> None:
    spec = loaded(tmp_path, WIDE, recompute="selective", **changed)
    plan = planner.plan(spec)
    assert planned(plan) == measured(plan, measure(spec.model, plan.training))


@pytest.mark.parametrize(
    ("implementation", "every", "layers"), [("torchtitan", 2, 5), ("torchtitan", 3, 7), ("pytorch", 2, 4), ("pytorch", 4, 3)]
)
def test_recomputation_of_every_nth_layer_is_exact(tmp_path: Path, implementation: str, every: int, layers: int) -> None:
    spec = loaded(tmp_path, WIDE | {"n_layers": layers}, recompute="full", recompute_every=every, implementation=implementation)
    plan = planner.plan(spec)
    assert planned(plan) == measured(plan, measure(spec.model, plan.training))


def test_recomputation_of_every_nth_layer_counts_through_groups(tmp_path: Path) -> None:
    # Layers 3, 6 and 9 of 10, of which two are alike, then four pairs of a wide and a narrow one.
    groups = [{"count": 2, "d_ff": 40}, {"count": 4, "layers": [{}, {"d_ff": 64}]}]
    sizes = WIDE | {"n_layers": 10, "layers": groups}
    spec = loaded(tmp_path, sizes, recompute="full", recompute_every=3, implementation="pytorch")
    plan = planner.plan(spec)
    assert planned(plan) == measured(plan, measure(spec.model, plan.training))


def test_a_period_of_too_many_layers_is_refused(tmp_path: Path) -> None:
    spec = loaded(tmp_path, WIDE | {"n_layers": 2000}, recompute="full", recompute_every=1000)
    with pytest.raises(UnsupportedError, match="more than 512 layers differ"):
        planner.plan(spec)


def test_outputs_saved_in_a_layer_are_compared_with_those_of_the_layer(tmp_path: Path) -> None:
    spec = loaded(tmp_path, WIDE, recompute="selective")
    rows = list(compare(spec, spec.scenarios[0], ["kept"]))
    assert [row.figure for row in rows] == ["saved for backward"]  # modules are listed if they differ
    assert all(row.agrees for row in rows)


def test_other_modules_are_not_built(tmp_path: Path) -> None:
    spec = loaded(tmp_path, WIDE | {"norm": {"type": "layernorm"}})
    with pytest.raises(CannotMeasureError, match=r"built for Llama 3's modules only; norm differs"):
        measure(spec.model, spec.scenarios[0].training)
