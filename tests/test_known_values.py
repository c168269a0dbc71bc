"""Metrics known from released models, textbooks and arithmetic on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.capacity.figures import Component, Plan

SPECS = Path(__file__).parent.parent / "specs"
PlanModel = Callable[..., Plan]

# GPT-2 small as in textbooks: no biases on q, k and v. https://github.com/rasbt/LLMs-from-scratch
TEXTBOOK: dict[str, Any] = {
    "vocab_size": 50257,
    "context_length": 1024,
    "d_model": 768,
    "n_layers": 12,
    "n_heads": 12,
    "attention": {"bias": {"q": False, "k": False, "v": False}},
}
UNTIED = TEXTBOOK | {"head": {"tied": False}}
RELEASED = {key: value for key, value in TEXTBOOK.items() if key != "attention"}


def in_blocks(plan: Plan) -> int:
    return sum(weight.params for weight in plan.parameters.weights if weight.name.startswith("model.layers."))


def in_final_norm(plan: Plan) -> int:
    return sum(weight.params for weight in plan.parameters.weights if weight.name.startswith("model.norm."))


def percent(plan: Plan, component: Component, digits: int) -> float:
    return round(100 * plan.parameters.by_component[component] / plan.parameters.total, digits)


def shapes(plan: Plan) -> set[tuple[int, ...]]:
    return {line.shape for line in plan.shapes}


def test_gpt2_small_with_tied_embeddings(plan_model: PlanModel) -> None:
    # V·d + L·d + 12·(12·d² + 10·d) + 2·d: a layer has 13·d in vectors, of which 3·d are the biases of q, k and v
    assert plan_model(TEXTBOOK).parameters.total == 50257 * 768 + 1024 * 768 + 12 * (12 * 768**2 + 10 * 768) + 2 * 768 == 124_412_160


def test_gpt2_small_with_untied_embeddings(plan_model: PlanModel) -> None:
    plan = plan_model(UNTIED)
    assert plan.parameters.total == 163_009_536
    assert plan.parameters.by_component["head"] == 50257 * 768 == 38_597_376
    assert in_blocks(plan) == 12 * 7_085_568 == 85_026_816
    assert in_final_norm(plan) == 1_536


def test_gpt2_small_as_released(plan_model: PlanModel) -> None:
    # The safetensors of openai-community/gpt2 hold 124,439,808 parameters (without its causal-mask buffers).
    plan = plan_model(RELEASED)
    assert plan.parameters.total == 124_439_808
    assert percent(plan, "embedding", 0) == 31


def test_a_medium_sized_model(plan_model: PlanModel) -> None:
    plan = plan_model(TEXTBOOK | {"vocab_size": 32000, "context_length": 2048, "d_model": 1024, "n_layers": 24, "n_heads": 16})
    assert in_blocks(plan) == 24 * (12 * 1024**2 + 10 * 1024) == 302_235_648
    assert plan.parameters.by_component["embedding"] + plan.parameters.by_component["position"] == (32000 + 2048) * 1024 == 34_865_152
    assert in_final_norm(plan) == 2 * 1024


def test_a_model_counted_by_hand(plan_model: PlanModel) -> None:
    model = {"vocab_size": 200, "context_length": 32, "d_model": 64, "n_layers": 2, "n_heads": 4}
    plan = plan_model(model, batch_size=3, sequence_length=10)
    # Two norms 4·64; q, k, v 64·192 + 192; output 64·64 + 64; up 64·256 + 256; down 256·64 + 64.
    assert in_blocks(plan) == 2 * (256 + 12_480 + 4_160 + 16_640 + 16_448) == 2 * 49_984
    assert plan.parameters.total == 200 * 64 + 32 * 64 + 2 * 49_984 + 2 * 64 == 114_944
    assert (3, 10, 200) in shapes(plan)


@pytest.mark.parametrize(
    ("model", "shares"),
    [
        (TEXTBOOK, {"feed_forward": 45.5, "embedding": 31.0, "attention": 22.8, "position": 0.6}),
        (UNTIED, {"feed_forward": 34.8, "embedding": 23.7, "attention": 17.4, "head": 23.7}),
    ],
    ids=["tied", "untied"],
)
def test_shares_of_the_components(plan_model: PlanModel, model: dict[str, Any], shares: dict[Component, float]) -> None:
    plan = plan_model(model)
    assert {component: percent(plan, component, 1) for component in shares} == shares


def test_norms_are_three_hundredths_of_a_percent(plan_model: PlanModel) -> None:
    assert percent(plan_model(TEXTBOOK), "norm", 2) == 0.03


@pytest.mark.parametrize(
    ("model", "params"),
    [(TEXTBOOK, 124_412_160), (UNTIED, 163_009_536)],
    ids=["tied", "untied"],
)
def test_bytes_of_the_model_states(plan_model: PlanModel, model: dict[str, Any], params: int) -> None:
    # fp32: 4 for the weight, 4 for its gradient, 8 for Adam's two moments. 498 MB and 1.99 GB; untied 652 MB and 2.61 GB.
    memory = plan_model(model, precision="fp32", optimizer="adam").memory
    assert memory.weights_bytes == 4 * params
    assert memory.model_states_bytes == 16 * params
    assert plan_model(model, precision="bf16").memory.weights_bytes == 2 * params


@pytest.mark.parametrize(
    ("model", "megabytes", "gigabytes"), [(TEXTBOOK, [498, 249], 1.99), (UNTIED, [652, 326], 2.61)], ids=["tied", "untied"]
)
def test_rounded_bytes_of_the_model_states(plan_model: PlanModel, model: dict[str, Any], megabytes: list[int], gigabytes: float) -> None:
    plans = [plan_model(model, precision=precision, optimizer="adam") for precision in ("fp32", "bf16")]
    assert [round(plan.memory.weights_bytes / 1e6) for plan in plans] == megabytes
    assert round(plans[0].memory.model_states_bytes / 1e9, 2) == gigabytes


def test_logits_are_the_largest_tensor(plan_model: PlanModel) -> None:
    plan = plan_model(TEXTBOOK, batch_size=8, sequence_length=1024, precision="fp32")
    entries = 8 * 1024 * 50257
    assert entries == 411_705_344
    assert (8, 1024, 50257) in shapes(plan)
    assert plan.memory.logits_bytes == 4 * entries  # 1.65 GB, 1.53 GiB: the log-probabilities saved by the loss
    assert (round(4 * entries / 1e9, 2), round(4 * entries / 2**30, 2)) == (1.65, 1.53)


def test_6nd_counts_two_forward_flops_per_parameter(plan_model: PlanModel) -> None:
    flops = {count.convention: count for count in plan_model(TEXTBOOK).flops.by_convention}
    assert flops["6nd"].forward_per_token == 2 * 124_412_160 == 248_824_320
    assert flops["6nd"].train_per_token == 6 * 124_412_160


def test_attention_products_cost_four_n_d_per_layer(plan_model: PlanModel) -> None:
    def forward(n: int) -> int:
        return plan_model(TEXTBOOK, sequence_length=n, flops_convention="matmul").flops.chosen.forward_per_token

    assert forward(1024) - forward(512) == 12 * 4 * 512 * 768
    assert 2 * (forward(1024) - forward(512)) == 37_748_736  # all of it at n = 1,024: 37.7 million


def test_forward_flops_of_all_matrix_products(plan_model: PlanModel) -> None:
    # Measured by torch.utils.flop_counter on GPT-2 small. By hand, per token: twice the 84,934,656 weights of the layers' matrices and
    # the 38,597,376 of the head, and 37,748,736 of attention.
    plan = plan_model(RELEASED, batch_size=1, sequence_length=1024, flops_convention="matmul")
    assert plan.flops.chosen.forward_per_step == 1024 * (2 * (84_934_656 + 38_597_376) + 37_748_736) == 291_648_307_200


def test_shapes_from_token_ids_to_logits(plan_model: PlanModel) -> None:
    plan = plan_model(RELEASED, batch_size=2, sequence_length=16, implementation="pytorch-eager")
    ids, embedded, by_heads, scores = (2, 16), (2, 16, 768), (2, 12, 16, 64), (2, 12, 16, 16)
    hidden, logits = (2, 16, 3072), (2, 16, 50257)
    assert {ids, embedded, by_heads, scores, hidden, logits} <= shapes(plan)
    assert (plan.shapes[0].shape, plan.shapes[-1].shape) == (ids, logits)


@pytest.mark.parametrize(("vocab_size", "loss"), [(50257, 10.825), (100_000, 11.513)])
def test_the_initial_loss_is_ln_v(plan_model: PlanModel, vocab_size: int, loss: float) -> None:
    assert plan_model(RELEASED | {"vocab_size": vocab_size}).initial_loss == pytest.approx(loss, abs=5e-4)


def test_the_catalog_has_the_textbook_models() -> None:
    totals = [
        planner.plan(planner.load(SPECS / f"{name}.yaml")).parameters.total
        for name in ("gpt2-small", "gpt2-small-no-qkv-bias", "gpt2-small-no-qkv-bias-untied")
    ]
    assert totals == [124_439_808, 124_412_160, 163_009_536]
