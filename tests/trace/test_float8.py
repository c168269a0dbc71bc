"""Linears in float8: what torchao and Transformer Engine save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.capacity.figures import Memory, Plan
from tests.trace.test_megatron_core import ATTENTION, LLAMA, TOKENS, kept

PlanModel = Callable[..., Plan]

# Weights of a layer's linears: queries and output 64·64, keys and values 32·64 each, three of 64·96.
LINEARS = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96


def memory(plan_model: PlanModel, model: dict[str, Any] = LLAMA, **training: object) -> Memory[int]:
    return plan_model(model | {"n_layers": 2}, batch_size=2, device="h100", **training).memory


def test_torchao_saves_inputs_in_16_bits_and_no_cast_weights(plan_model: PlanModel) -> None:
    # torchao 0.18 with PyTorch 2.13 on a CPU (Float8LinearConfig(emulate=True), saved_tensors_hooks): a converted linear saves its bf16
    # input and its weight. Autocast casts weights of other linears, such as the LM head, to bf16, 2 bytes each.
    both = [memory(plan_model, precision="bf16-autocast", float8=it) for it in (False, True)]
    assert both[0].activations_bytes - both[1].activations_bytes == 2 * 2 * LINEARS
    both = [memory(plan_model, precision="bf16-master", float8=it) for it in (False, True)]
    assert both[0].activations_bytes == both[1].activations_bytes


def test_sizes_must_be_multiples_of_16(plan_model: PlanModel) -> None:
    odd = LLAMA | {"d_ff": 100}
    both = [memory(plan_model, odd, precision="bf16-autocast", float8=it) for it in (False, True)]
    assert both[0].activations_bytes - both[1].activations_bytes == 2 * 2 * (LINEARS - 3 * 64 * 96)


def test_transformer_engine_saves_inputs_in_8_bits(plan_model: PlanModel) -> None:
    # Per token: a norm's input in bf16, its result in 8 bits, a statistic; the attention's output also in 8 bits; gate and up in bf16,
    # their product in 8 bits.
    norm, attention, feed_forward = 2 * 64 + 64 + 4, ATTENTION + 4 * 16, 2 * 2 * 96 + 96
    assert kept(plan_model, device="h100", float8=True) == (2 * norm + attention + feed_forward) * TOKENS + 16


def test_transformer_engine_caches_weights_in_both_layouts(plan_model: PlanModel) -> None:
    both = [memory(plan_model, precision="bf16-master", implementation="megatron-core", float8=it) for it in (False, True)]
    assert both[1].buffers_bytes - both[0].buffers_bytes == 2 * 2 * LINEARS


@pytest.mark.parametrize("implementation", ["pytorch", "megatron-core"])
def test_flops_do_not_change(implementation: str, plan_model: PlanModel) -> None:
    step: dict[str, Any] = {"device": "h100", "precision": "bf16-master", "implementation": implementation}
    plans = [plan_model(LLAMA | {"n_layers": 2}, **step, float8=it) for it in (False, True)]
    assert plans[0].flops == plans[1].flops
