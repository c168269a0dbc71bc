from __future__ import annotations

import re
from typing import Any

import pytest

import planner

LLAMA: dict[str, Any] = {
    "vocab_size": 1000,
    "context_length": 64,
    "d_model": 64,
    "n_layers": 4,
    "n_heads": 4,
    "d_ff": 128,
    "positions": "rope",
    "attention": {"bias": False, "qkv": "separate"},
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
    "norm": {"type": "rmsnorm"},
    "head": {"tied": False},
}
ADAPTERS = {"train": "adapters", "adapters": {"rank": 4}}


def planned(**training: Any) -> planner.Plan:  # noqa: ANN401 - any setting
    spec = {"name": "tuned", "model": LLAMA, "training": {"implementation": "transformers", "precision": "bf16", **training}}
    return planner.plan(planner.load(spec))


def refused(message: str, **training: Any) -> None:  # noqa: ANN401
    with pytest.raises((planner.SpecError, planner.UnsupportedError), match=re.escape(message)):
        planned(**training)


@pytest.mark.parametrize(
    ("train", "params"),
    [
        (["head"], 1000 * 64),
        (["layers.3"], 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64),
        (["layers.1-2", "final_norm"], 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64),
        (["norm"], 9 * 64),
        (["q", "down_proj"], 4 * (64 * 64 + 64 * 128)),
        (["attention"], 4 * 4 * 64 * 64),
        (["layers"], 4 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64)),
        ("embedding", 1000 * 64),
    ],
)
def test_parts_of_a_model_train(train: list[str], params: int) -> None:
    plan = planned(train=train)
    assert plan.parameters.trained == params
    assert plan.memory.gradients_bytes == 2 * params
    assert plan.memory.optimizer_bytes == 4 * params


def test_adapters_are_counted_by_their_matrices() -> None:
    # rank 4: q, k, v, o 64 -> 64, gate and up 64 -> 128, down 128 -> 64, in 4 layers
    assert planned(**ADAPTERS).parameters.trained == 4 * 4 * (4 * (64 + 64) + 3 * (64 + 128))
    two = {"train": "adapters", "adapters": {"rank": 4, "targets": ["q", "v_proj"], "layers": ["1-2"]}}
    assert planned(**two).parameters.trained == 2 * 4 * 2 * (64 + 64)
    assert planned(**two).parameters.by_component["adapters"] == 2 * 4 * 2 * (64 + 64)


def test_a_target_has_a_rank_of_its_own() -> None:
    # q 64 -> 64 with rank 8, gate 64 -> 128 with rank 4, in 4 layers; the embedding of 1000 · 64 with rank 2
    training = {"train": "adapters", "adapters": {"rank": 4, "targets": ["q=8", "gate", "embedding=2"]}}
    assert planned(**training).parameters.trained == 4 * (8 * (64 + 64) + 4 * (64 + 128)) + 2 * (1000 + 64)


def test_frozen_weights_have_no_backward_products_of_their_own() -> None:
    """Training of the head alone: forward, and one product for its gradient, of tokens · 2 · V · d."""
    plan = planned(train=["head"], batch_size=2)
    matmul = next(count for count in plan.flops.by_convention if count.convention == "matmul")
    assert matmul.train_per_step - matmul.forward_per_step == 2 * 64 * 2 * 1000 * 64


def test_packed_weights_have_the_bytes_of_their_blocks() -> None:
    plan = planned(**ADAPTERS, base={"format": "nf4", "double_quant": True})
    q = next(weight for weight in plan.parameters.weights if weight.name.endswith("q_proj.weight"))
    # 4,096 elements: half a byte each, 64 scales of a byte, their one scale, a table of 256 and an offset in float32, and one of 16
    assert q.packing is not None
    assert q.packing.bytes(4096) == 2048 + 64 + 4 + 1024 + 4 + 64


@pytest.mark.parametrize(
    ("message", "training"),
    [
        ("train: adapters requires adapters", {"train": "adapters"}),
        ("adapters requires train: adapters, not everything", {"adapters": {"rank": 4}}),
        ("adapters.rank requires adapters.type: lora or rslora or dora", {"train": "adapters", "adapters": {"rank": 4, "type": "ia3"}}),
        (
            "ia3 beside packed weights make activations of 16 bits float32, which is not modeled; write base.prepare: true",
            {"train": "adapters", "adapters": {"type": "ia3"}, "base": {"format": "nf4"}},
        ),
        (
            "also_train with a learned prompt is not modeled yet",
            {"train": "adapters", "adapters": {"type": "prompt"}, "also_train": "embedding"},
        ),
        (
            "prefix tuning does not support recomputation",
            {"train": "adapters", "adapters": {"type": "prefix"}, "recompute": "full"},
        ),
        (
            "prefix tuning under implementation pytorch is not modeled yet",
            {"train": "adapters", "adapters": {"type": "prefix"}, "implementation": "pytorch"},
        ),
        (
            "adapters of the embedding of type dora are not modeled yet",
            {"train": "adapters", "adapters": {"type": "dora", "targets": "embedding"}},
        ),
        ("'q=0', which is no linear with a rank", {"train": "adapters", "adapters": {"targets": ["q=0"]}}),
        ("'all-linear=4', which is no linear with a rank", {"train": "adapters", "adapters": {"targets": "all-linear=4"}}),
        ("adapters of type ia3 have no rank", {"train": "adapters", "adapters": {"type": "ia3", "targets": ["q=4"]}}),
        ("also_train requires adapters", {"also_train": "embedding"}),
        ("also_train has 'norm'; only copies of embedding and head are modeled", {**ADAPTERS, "also_train": "norm"}),
        ("base describes frozen weights, but everything trains", {"base": {"dtype": "bf16"}}),
        ("packed weights cannot train, and base.format requires train: adapters", {"train": "head", "base": {"format": "nf4"}}),
        ("base.double_quant requires base.format: nf4 or fp4, not none", {**ADAPTERS, "base": {"double_quant": True}}),
        ("frozen weights under implementation megatron are not modeled yet", {**ADAPTERS, "implementation": "megatron"}),
        ("frozen weights with loss are not modeled yet", {**ADAPTERS, "loss": "linear_cross_entropy"}),
        ("frozen weights with liger are not modeled yet", {**ADAPTERS, "liger": True}),
        ("train has 'layers.4', but the layers are 0 to 3; write layers of 0-3", {"train": "layers.4"}),
        ("train has 'layers.2-1', but the layers are 0 to 3", {"train": "layers.2-1"}),
        ("adapters.layers has 'all', which is no layer", {"train": "adapters", "adapters": {"rank": 4, "layers": "all"}}),
        ("training.train has 'experts', which is no part of this model", {"train": "experts"}),
        ("adapters.targets has 'qkv', which is none of the linears", {"train": "adapters", "adapters": {"rank": 4, "targets": "qkv"}}),
        (
            "reentrant recomputation gives layers no gradients if their input needs none",
            {"train": "layers.3", "recompute": "full", "reentrant": True, "input_gradients": False},
        ),
    ],
)
def test_what_does_not_go_together_is_refused(message: str, training: dict[str, Any]) -> None:
    refused(message, **training)


def test_a_learned_prompt_of_other_models_is_refused() -> None:
    training = {"implementation": "transformers", "train": "adapters", "adapters": {"type": "prompt"}}
    for model, message in (("bert-base-cased", "before an encoder's input"), ("gpt2", "with learned positions")):
        with pytest.raises(planner.UnsupportedError, match=f"a learned prompt {message} is not modeled yet"):
            planner.plan(planner.load({"name": "tuned", "extends": f"catalog/{model}", "training": training}))


def test_dora_with_dropout_beside_transposed_linears_of_its_dtype_is_refused() -> None:
    training = {"implementation": "transformers", "train": "adapters", "adapters": {"type": "dora", "dropout": 0.1}}
    spec = {"name": "tuned", "extends": "catalog/gpt2"}
    with pytest.raises(planner.UnsupportedError, match="adapters of type dora with dropout beside GPT-2's transposed linears"):
        planner.plan(planner.load(spec | {"training": training | {"precision": "fp32"}}))
    planner.plan(planner.load(spec | {"training": training | {"precision": "bf16"}}))  # adapters in float32


def test_a_learned_prefix_before_windows_is_refused() -> None:
    training = {"implementation": "transformers-eager", "train": "adapters", "adapters": {"type": "prefix"}}
    with pytest.raises(planner.UnsupportedError, match="prefix tuning of models with other layers than causal attention to all tokens"):
        planner.plan(planner.load({"name": "tuned", "extends": "catalog/gemma-2-2b", "training": training}))


EXPERTS = {key: value for key, value in LLAMA.items() if key != "feed_forward"} | {
    "experts": {"count": 4, "top_k": 2, "d_ff": 96},
    "model_type": "mixtral",
}


def test_adapters_of_all_linears_reach_experts_and_their_router() -> None:
    training = {"implementation": "transformers", "precision": "bf16", **ADAPTERS}
    plan = planner.plan(planner.load({"name": "tuned", "model": EXPERTS, "training": training}))
    # rank 4, 4 layers: q, k, v, o; a router 64 -> 4; 4 experts of rank 8 for gate and up 64 -> 2 · 96, of rank 4 for down 96 -> 64
    assert plan.parameters.trained == 4 * (4 * (4 * (64 + 64) + (64 + 4)) + 4 * (8 * (64 + 192) + 4 * (96 + 64)))


@pytest.mark.parametrize(
    ("message", "model", "training"),
    [
        ("adapters of routed experts have no dropout in peft", {}, {"adapters": {"rank": 4, "dropout": 0.1}}),
        ("adapters of routed experts of type dora are not supported by peft", {}, {"adapters": {"rank": 4, "type": "dora"}}),
        ("adapters of some layers of routed experts are not modeled yet", {}, {"adapters": {"rank": 4, "layers": "0"}}),
        ("for model_type mixtral or qwen3_moe", {"model_type": "gpt_oss"}, {}),
        ("under implementation transformers for model_type", {}, {"implementation": "pytorch"}),
        ("packed experts are not modeled yet", {}, {"base": {"format": "nf4"}}),
    ],
)
def test_adapters_of_other_experts_are_refused(message: str, model: dict[str, Any], training: dict[str, Any]) -> None:
    tuned = {"implementation": "transformers", "precision": "bf16", **ADAPTERS, **training}
    with pytest.raises(planner.UnsupportedError, match=message):
        planner.plan(planner.load({"name": "tuned", "model": EXPERTS | model, "training": tuned}))
