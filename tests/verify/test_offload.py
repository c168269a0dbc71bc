"""Activation offloading, as measured in PyTorch with torchtune's hooks without streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.verify.step import measure
from tests.verify.steps import measured, planned
from tests.verify.test_torchtitan import LLAMA

PlanModel = Callable[..., Plan]

SIZES: dict[str, Any] = {"vocab_size": 1001, "context_length": 128, "d_model": 64, "n_heads": 4, "n_layers": 4}
STEP: dict[str, Any] = {"batch_size": 2, "recompute": "full", "offload_activations": True}
GATED = {"d_ff": 96, "n_kv_heads": 2}


@pytest.mark.parametrize("precision", ["bf16-autocast", "bf16"])
@pytest.mark.parametrize(
    ("model", "training"),
    [
        (SIZES, {"implementation": "pytorch", "dropout": 0.1}),
        (SIZES, {"implementation": "pytorch", "recompute_every": 2}),
        (SIZES | LLAMA | GATED, {"implementation": "transformers"}),
        (SIZES | LLAMA | GATED, {"implementation": "torchtitan", "recompute_every": 3}),
    ],
)
def test_a_step_is_exact(model: dict[str, Any], training: dict[str, Any], precision: str, plan_model: PlanModel) -> None:
    plan = plan_model(model, **STEP, **training, precision=precision)
    assert planned(plan) == measured(plan, measure(plan.model, plan.training))


def test_the_host_has_what_the_model_saves(plan_model: PlanModel) -> None:
    # 256 tokens: int64 ids, and positions of 128; the input of each layer and of the last norm, 64 in bf16; its two float32 statistics.
    plan = plan_model(SIZES, **STEP, precision="bf16")
    assert plan.memory.host_bytes == 8 * 256 + 8 * 128 + 5 * 256 * 64 * 2 + 2 * 4 * 256
    kept = plan_model(SIZES, **STEP | {"offload_activations": False}, precision="bf16").memory
    assert kept.activations_bytes - plan.memory.activations_bytes == plan.memory.host_bytes
    assert kept.host_bytes == 0
