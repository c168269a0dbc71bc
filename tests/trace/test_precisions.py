"""One recipe per precision, for the trace and the model states, compared with papers and PyTorch."""

from __future__ import annotations

from fractions import Fraction
from typing import get_args

import pytest

from planner.capacity import plan
from planner.capacity.figures import Plan
from planner.spec.precision import BYTES, RECIPES
from planner.spec.records import Attention, FeedForward, Implementation, Layer, Model, Precision, Run, Scenario, Spec, Training
from planner.trace.decoder import trace

# Bytes of a weight, its master copy, its gradient (by default) and each of Adam's moments. torch.amp keeps float32 weights; mixed precision
# with a master copy is 2 + 4 + 4 + 8 (Micikevicius et al. 2018, arXiv:1710.03740; Korthikanti et al. 2022, arXiv:2205.05198, section 1,
# with gradients in float32 as in Megatron-LM's --accumulate-allreduce-grads-in-fp32).
KNOWN: dict[Precision, tuple[int, int, int, int]] = {
    "fp32": (4, 0, 4, 4),
    "bf16-autocast": (4, 0, 4, 4),
    "fp16-autocast": (4, 0, 4, 4),
    "bf16-master": (2, 4, 4, 4),
    "fp16-master": (2, 4, 2, 4),  # Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12
    "bf16": (2, 0, 2, 2),
}
d, H, n, B = 64, 4, 32, 2


def model(n_layers: int) -> Model:
    return Model(96, 96, n, d, n_layers, (Run(n_layers, (Layer(Attention(H, H, d // H), FeedForward(4 * d)),)),))


def training(precision: Precision, implementation: Implementation) -> Training:
    gradients = RECIPES[precision].gradients[0]
    return Training(B, n, precision=precision, gradient_dtype=gradients, implementation=implementation, dropout=Fraction(1, 10))


def planned(precision: Precision, implementation: Implementation, n_layers: int = 2) -> Plan:
    scenario = Scenario("base", training(precision, implementation))
    return plan(Spec("model", "model.yaml", model(n_layers), (scenario,)), scenario)


def test_every_precision_has_a_recipe() -> None:
    assert set(RECIPES) == set(get_args(Precision)) == set(KNOWN)


@pytest.mark.parametrize("implementation", get_args(Implementation))
@pytest.mark.parametrize("precision", get_args(Precision))
def test_the_trace_reads_weights_in_the_dtype_that_is_counted(precision: Precision, implementation: Implementation) -> None:
    weight, master, gradient, moment = KNOWN[precision]
    read = {BYTES[stored.tensor.dtype] for stored in trace(model(2), training(precision, implementation)).parameters}
    figures = planned(precision, implementation)
    params, memory = figures.parameters.total, figures.memory
    assert read == {weight}
    assert memory.weights_bytes == weight * params
    assert memory.master_weights_bytes == master * params
    assert memory.gradients_bytes == gradient * params
    assert memory.optimizer_bytes == 2 * moment * params


def kept_by_a_layer(precision: Precision) -> int:
    return planned(precision, "megatron", 3).memory.activations_bytes - planned(precision, "megatron", 2).memory.activations_bytes


@pytest.mark.parametrize("precision", ["bf16-master", "fp16-master", "bf16"])
def test_saved_bytes_of_a_fused_layer_in_16_bits(precision: Precision) -> None:
    # Korthikanti et al. 2022 (arXiv:2205.05198), equation 1: s·b·h·(34 + 5·a·s/h).
    assert kept_by_a_layer(precision) == 34 * n * B * d + 5 * H * n * n * B


@pytest.mark.parametrize("precision", ["bf16-autocast", "fp16-autocast"])
def test_saved_bytes_of_a_fused_layer_under_autocast_include_cast_weights(precision: Precision) -> None:
    # The same, plus 16-bit casts of the layer's 12·h² weights in matrix products.
    assert kept_by_a_layer(precision) == 34 * n * B * d + 5 * H * n * n * B + 2 * 12 * d * d
