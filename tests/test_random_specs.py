"""Random specs over the whole language: properties of every plan, even of models for which verify has no PyTorch modules.

More of them: ``SHAPES=1000 pytest tests/test_random_specs.py``. Each error found has a test with the smallest spec that showed it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest

import planner
from planner.capacity.figures import Plan
from planner.capacity.step import ALLOCATION_BLOCK
from planner.capacity.stored import bytes_between_steps
from planner.spec.records import Implementation, Spec
from planner.trace.decoder import trace
from planner.trace.unsupported import UnsupportedError
from tests.shapes import attempts, drawn

PlanModel = Callable[..., Plan]
SEEDS = range(int(os.environ.get("SHAPES", "120")))
MODELS = ("matmul", "matmul-causal", "6nd", "6nd-kaplan", "palm")  # conventions for model FLOPs, not hardware FLOPs


@cache
def planned(seed: int) -> Plan:
    return planner.plan(drawn(seed))


def forward(plan: Plan, convention: str) -> int:
    return next(count.forward_per_step for count in plan.flops.by_convention if count.convention == convention)


def test_nearly_every_random_spec_can_be_planned() -> None:
    # Errors name a kernel that does not support its inputs, and layers with different dtypes.
    planned_at_once = sum(next(attempts(seed)).model == drawn(seed).model for seed in SEEDS)
    assert planned_at_once >= 0.9 * len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_totals_are_sums_of_their_parts(seed: int) -> None:
    plan = planned(seed)
    parameters, memory = plan.parameters, plan.memory
    assert parameters.total == sum(parameters.by_component.values()) == sum(weight.params for weight in parameters.weights)
    assert memory.activations_bytes == sum(memory.activations_by_component.values())
    assert memory.activations_bytes == sum(line.bytes_each * line.copies for line in memory.kept)
    assert memory.logits_bytes == memory.activations_by_component["logits"]
    parts = (memory.weights_bytes, memory.master_weights_bytes, memory.gradients_bytes, memory.optimizer_bytes, memory.average_bytes)
    assert memory.model_states_bytes == sum(parts) == sum(line.total_bytes for line in memory.states)
    assert sum(plan.flops.forward_by_component.values()) == forward(plan, "matmul")


@pytest.mark.parametrize("seed", SEEDS)
def test_metrics_are_ordered(seed: int) -> None:
    plan = planned(seed)
    parameters, memory = plan.parameters, plan.memory
    assert parameters.active <= parameters.total
    assert parameters.active == parameters.total or parameters.by_component["experts"]
    assert forward(plan, "matmul-causal") <= forward(plan, "matmul")
    live, later = memory.live, {phase.phase: phase.peak_bytes for phase in memory.phases}
    assert live.start >= sum((memory.weights_bytes, memory.master_weights_bytes, memory.optimizer_bytes, memory.average_bytes))
    # Graphs of the previous step, which modules keep until the forward pass replaces them.
    block = ALLOCATION_BLOCK if plan.training.round_allocations else 1
    between = bytes_between_steps(trace(plan.model, plan.training).nodes, block)
    assert max(later["forward"], later["loss"]) >= live.after_forward >= live.start - between
    assert later["backward"] >= live.after_backward
    assert later["optimizer"] >= live.after_backward
    assert memory.peak_bytes == max(later.values())
    assert all(phase.peak_bytes <= later[phase.phase] for phase in memory.first_step_phases)
    assert live.after_forward - live.start + between >= memory.activations_bytes - memory.activations_by_component["inputs"]


@pytest.mark.parametrize("seed", SEEDS)
def test_padding_is_rows_of_the_token_embedding_and_lm_head(seed: int) -> None:
    plan = planned(seed)
    tables = [weight for weight in plan.parameters.weights if weight.shape[0] == plan.model.padded_vocab_size]
    tables = [weight for weight in tables if weight.name in ("model.embed_tokens.weight", "lm_head.weight", "lm_head.bias")]
    a_row = sum(weight.params // plan.model.padded_vocab_size for weight in tables)
    assert plan.parameters.padding_params == (plan.model.padded_vocab_size - plan.model.vocab_size) * a_row


def under_each(spec: Spec) -> Iterator[tuple[str, Plan]]:
    """Yield the spec's plan under every implementation that supports it, with that implementation's defaults."""
    (base,) = spec.scenarios
    for name in get_args(Implementation):
        plain = replace(base.training, implementation=name, attention_kernel="auto", use_cache=False, loss="default", device="a100")
        try:
            yield name, planner.plan(replace(spec, scenarios=(replace(base, training=plain),)))
        except UnsupportedError:
            continue


def in_any_layer(plan: Plan) -> Counter[tuple[str, tuple[int, ...]]]:
    """Return how often each weight occurs. Implementations may trace a first layer apart from the others."""
    occurs: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for weight in plan.parameters.weights:
        occurs[re.sub(r"(?<=layers\.)[^a-z]+(?=\.[a-z])", "*", weight.name), weight.shape] += weight.copies
    return occurs


@pytest.mark.parametrize("seed", SEEDS)
def test_an_implementation_changes_neither_parameters_nor_model_flops(seed: int) -> None:
    plans = dict(under_each(drawn(seed)))
    stored = (plan for name, plan in plans.items() if name != "megatron-core")  # which fuses projections
    weights = [in_any_layer(plan) for plan in stored]
    sums = [plan.parameters.by_component for plan in plans.values()]
    flops = [[forward(plan, convention) for convention in MODELS] for plan in plans.values()]
    assert all(each == weights[0] for each in weights)
    assert all(each == sums[0] for each in sums)
    assert all(each == flops[0] for each in flops)


# --- errors found by random specs, each with the smallest spec ----------------------------------------------------------------------------

SMALL: dict[str, Any] = {"vocab_size": 101, "context_length": 24, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48}


def test_forward_flops_by_component_add_up_with_a_chunked_loss(plan_model: PlanModel) -> None:
    plan = plan_model(SMALL, loss="linear_cross_entropy_chunked", batch_size=2)
    assert plan.flops.forward_by_component["head"] == 2 * 2 * 24 * 32 * 101
    assert sum(plan.flops.forward_by_component.values()) == forward(plan, "matmul")


@pytest.mark.parametrize("implementation", ["pytorch", "transformers"])
def test_padding_of_heads_adds_no_model_flops(plan_model: PlanModel, implementation: str) -> None:
    # A layer by hand, 8 tokens, heads 100 wide: scores and their sum over values 2·2·8²·400, the projections 2·8·4·32·400.
    model = SMALL | {"n_layers": 1, "head_dim": 100, "feed_forward": "none"}
    plan = plan_model(model, precision="bf16", batch_size=1, sequence_length=8, implementation=implementation)
    assert plan.flops.forward_by_component["attention"] == 4 * 8**2 * 400 + 2 * 8 * 4 * 32 * 400


def test_a_norm_per_head_keeps_a_single_position(plan_model: PlanModel) -> None:
    model = SMALL | {"norm": {"type": "rmsnorm"}, "attention": {"qk_norm": "per_head"}}
    plan = plan_model(model, implementation="transformers", batch_size=1, sequence_length=1)
    assert plan.flops.forward_by_component["head"] == 2 * 32 * 101
    assert plan.shapes[-1].shape == (1, 1, 101)


def test_a_prediction_layer_with_eager_attention_of_transformers(plan_model: PlanModel) -> None:
    # eh_proj 2·32², a layer as any other (4·32² + 4·32 + 2·32·48 + 48 + 32 + 4·32 = 7,504), and three norms of 2·32
    plan = plan_model(SMALL | {"prediction": {"copies_embedding": False}}, implementation="transformers-eager")
    assert plan.prediction is not None
    assert plan.prediction.params == plan.prediction.stored_params == 2 * 32**2 + 7504 + 3 * 2 * 32


def test_a_prediction_layer_after_a_layer_that_shares_keys(plan_model: PlanModel) -> None:
    shared = {"attention": {"qkv": "separate", "shared_kv": True}}
    model = SMALL | {"n_layers": 2, "layers": [{}, shared], "prediction": {"copies_embedding": False}}
    plan = plan_model(model)
    assert plan.prediction is not None
    assert plan.prediction.params > 0


def test_padding_of_a_narrow_token_embedding(plan_model: PlanModel) -> None:
    model = {"vocab_size": 50257, "context_length": 24, "d_model": 1024, "n_layers": 1, "n_heads": 16, "embedding_dim": 512}
    assert plan_model(model | {"pad_vocab_to_multiple_of": 64}).parameters.padding_params == (50304 - 50257) * 512 == 24_064


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_saved_tensors_stay_allocated_with_per_layer_embeddings(plan_model: PlanModel, recompute: str) -> None:
    model = SMALL | {"norm": {"type": "rmsnorm"}, "per_layer_embedding": {"vocab_size": 33, "dim": 4}}
    memory = plan_model(model, implementation="transformers", precision="bf16", recompute=recompute, loss="cross_entropy").memory
    kept = memory.activations_bytes - memory.activations_by_component["inputs"]
    assert memory.live.after_forward - memory.live.start == kept + 2  # the loss


@pytest.mark.parametrize("shared", [False, True])
def test_copies_of_shared_keys_stay_allocated_in_each_later_layer(plan_model: PlanModel, *, shared: bool) -> None:
    run = {"count": 2, "attention": {"shared_kv": shared}}
    model = {**SMALL, "n_layers": 3, "attention": {"qkv": "separate"}, "layers": [{}, run]}
    memory = plan_model(model, implementation="pytorch-eager", precision="fp32", loss="cross_entropy", batch_size=2).memory
    kept = memory.activations_bytes - memory.activations_by_component["inputs"]
    assert memory.live.after_forward - memory.live.start == kept + 4  # the loss
