"""Peak memory of a training step: the worked example, and equal layers compared with the same layers one by one."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from typing import Any

import pytest

from planner.capacity import peak
from planner.capacity.figures import Plan
from planner.spec.records import Attention, FeedForward, Layer, Model, Run, Training
from planner.trace import primitives as op
from planner.trace.decoder import new_tape

PlanModel = Callable[..., Plan]
SMALL = {"vocab_size": 97, "context_length": 24, "d_model": 48, "n_layers": 4, "n_heads": 4}


def test_the_worked_example_of_three_layers_is_correct() -> None:
    model = Model(8, 8, 8, 8, 3, (Run(3, (Layer(Attention(1, 1, 8), FeedForward(8)),)),))
    t = new_tape(model, Training(1, 1, precision="fp32"))
    found = doctest.testmod(peak, extraglobs={"t": t, "op": op})
    assert (found.failed, found.attempted) == (0, 10)


@pytest.mark.parametrize("shared_kv", [False, True], ids=["own-keys", "shared-keys"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("implementation", ["pytorch", "pytorch-eager", "transformers"])
@pytest.mark.parametrize("parts", [{}, {"norm": {"type": "rmsnorm"}, "per_layer_embedding": {"vocab_size": 33, "dim": 4}}])
def test_equal_layers_need_as_much_memory_as_the_same_layers_one_by_one(
    plan_model: PlanModel, parts: dict[str, Any], implementation: str, recompute: str, *, shared_kv: bool
) -> None:
    """Keys of an earlier layer and inputs of each layer stay allocated beside their copies, and their gradients are summed."""

    def planned(*counts: int) -> tuple[object, ...]:
        layers = [{}, *({"count": count, "attention": {"shared_kv": shared_kv}} for count in counts)]
        model = SMALL | {"attention": {"qkv": "separate"}, "layers": layers} | parts
        memory = plan_model(model, batch_size=2, precision="fp32", implementation=implementation, recompute=recompute).memory
        return memory.activations_bytes, memory.live, [phase.peak_bytes for phase in memory.phases]

    assert planned(3) == planned(1, 1, 1) == planned(1, 2) == planned(2, 1)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("implementation", ["pytorch", "pytorch-eager", "transformers"])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"norm": {"type": "rmsnorm"}},
        {"positions": "rope"},
        {"attention": {"qkv": "separate"}, "layers": [{}, {"count": 3, "attention": {"shared_kv": True}}]},
        {"norm": {"type": "rmsnorm"}, "per_layer_embedding": {"vocab_size": 33, "dim": 4}},
    ],
    ids=["gpt2", "rmsnorm", "rope", "shared-keys", "per-layer-embedding"],
)
def test_saved_tensors_remain_after_forward_and_gradients_after_backward(
    plan_model: PlanModel, parts: dict[str, Any], implementation: str, recompute: str
) -> None:
    """Allocated after forward: the saved tensors. After backward: a gradient per weight. After both: the loss, 4 bytes."""
    settings = {"implementation": implementation, "recompute": recompute, "precision": "fp32", "loss": "cross_entropy"}
    memory = plan_model(SMALL | parts, batch_size=2, **settings).memory
    live = memory.live
    assert live.after_forward - live.start == memory.activations_bytes - memory.activations_by_component["inputs"] + 4
    assert live.after_backward - live.start == memory.gradients_bytes + 4
