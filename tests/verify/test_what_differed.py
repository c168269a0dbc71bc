"""Specs for which planner and PyTorch once differed, each the smallest that showed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.spec.problems import SpecError
from planner.trace.unsupported import UnsupportedError

pytest.importorskip("torch", reason="the extra torch is not installed")

from planner.verify.step import measure

PlanModel = Callable[..., Plan]
SMALL: dict[str, Any] = {"vocab_size": 101, "context_length": 24, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48}


def peak(plan: Plan, *phases: str) -> int:
    return max(phase.peak_bytes for phase in plan.memory.phases if phase.phase in phases)


@pytest.mark.parametrize("kind", ["plain", "gated"])
def test_gelu_new_written_out(plan_model: PlanModel, kind: str) -> None:
    plan = plan_model(SMALL | {"feed_forward": {"type": kind, "activation": "gelu_new"}}, precision="fp32", batch_size=2)
    assert plan.memory.activations_bytes == measure(plan.model, plan.training).saved_bytes


def test_an_update_of_one_tensor_at_a_time(plan_model: PlanModel) -> None:
    # The largest weight, the head, comes after the last norm: 2 · 101·32 and the norm's 32 elements, not 2 · 101·32.
    plan = plan_model(SMALL | {"head": {"tied": False}}, precision="fp32", optimizer_kernel="for-loop")
    assert peak(plan, "optimizer") == measure(plan.model, plan.training).phases[2].bytes


def test_soft_capping_with_shifted_logits(plan_model: PlanModel) -> None:
    model = SMALL | {"vocab_size": 509, "n_layers": 1, "head": {"tied": False, "logit_softcap": 30.0}}
    plan = plan_model(model, precision="bf16", batch_size=1, recompute="full", loss="cross_entropy_shifted")
    assert peak(plan, "forward", "loss") == measure(plan.model, plan.training).phases[0].bytes


@pytest.mark.parametrize("loss", ["linear_cross_entropy", "linear_cross_entropy_chunked"])
def test_soft_capping_needs_logits(plan_model: PlanModel, loss: str) -> None:
    with pytest.raises((SpecError, UnsupportedError), match="logit_softcap"):
        plan_model(SMALL | {"head": {"logit_softcap": 30.0}}, loss=loss)


def test_construction_of_the_alibi_bias(plan_model: PlanModel) -> None:
    model = SMALL | {"vocab_size": 64, "context_length": 64, "n_heads": 8, "positions": "alibi"}
    plan = plan_model(model, precision="bf16", batch_size=1, recompute="full", device="cpu")
    assert peak(plan, "forward", "loss") == measure(plan.model, plan.training).phases[0].bytes


def test_a_norm_over_heads_that_are_not_contiguous(plan_model: PlanModel) -> None:
    model = SMALL | {"n_heads": 3, "head_dim": 264, "attention": {"qkv": "fused_per_head", "qk_norm": "full_width"}}
    plan = plan_model(model, precision="fp32", batch_size=1, sequence_length=8, recompute="full")
    assert peak(plan, "forward", "loss") == measure(plan.model, plan.training).phases[0].bytes


def test_step_counters_of_adafactor(plan_model: PlanModel) -> None:
    plan = plan_model(SMALL, precision="fp32", optimizer="adafactor", device="cpu")
    assert plan.memory.live.start == measure(plan.model, plan.training).start_bytes


@pytest.mark.parametrize("optimizer", ["sgd-momentum", "adafactor", "muon"])
def test_state_of_master_weights_from_gradients_in_bf16(plan_model: PlanModel, optimizer: str) -> None:
    plan = plan_model(SMALL, precision="bf16-master", gradient_dtype="bf16", optimizer=optimizer)
    assert plan.memory.live.start == measure(plan.model, plan.training).start_bytes


@pytest.mark.parametrize("loss", ["default", "cross_entropy_shifted"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_soft_caps_and_float32_weights_of_gemma(plan_model: PlanModel, loss: str, recompute: str) -> None:
    # Variables keep the logits before and after the cap; the cast of a norm's weight is freed with the norm.
    parts = {
        "positions": "rope",
        "embedding_scale": True,
        "norm": {"type": "rmsnorm", "unit_offset": True, "placement": "before_and_after"},
        "feed_forward": {"type": "gated", "activation": "gelu_tanh", "bias": False},
        "attention": {"qkv": "separate", "bias": False, "logit_softcap": 50.0},
        "head": {"logit_softcap": 30.0},
        "layers": [{"attention": {"window": 8}}, {}],  # the class always creates a mask with and one without a window
    }
    plan = plan_model(SMALL | parts, implementation="transformers-eager", precision="bf16", batch_size=1, loss=loss, recompute=recompute)
    measured = measure(plan.model, plan.training)
    peaks = [peak(plan, "forward", "loss"), peak(plan, "backward"), peak(plan, "optimizer")]
    assert peaks == [phase.bytes for phase in measured.phases]
