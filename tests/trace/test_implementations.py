"""Implementations and model classes: every name has an entry, and one rule chooses the class if a spec names none."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from planner.capacity import plan
from planner.capacity.figures import Plan
from planner.spec.records import (
    Activation,
    Attention,
    Experts,
    FeedForward,
    Implementation,
    LatentAttention,
    Layer,
    Model,
    ModelType,
    Norm,
    Positions,
    Run,
    Scenario,
    Spec,
    Training,
)
from planner.trace.classes import CLASSES, modeled_class
from planner.trace.decoder import trace
from planner.trace.implementations import IMPLEMENTATIONS

ROPE, RMS = Positions("rope", rotary_dim=8), Norm("rmsnorm", bias=False)
PLAIN = Layer(Attention(4, 4, 8), FeedForward(64))
STEP = Training(2, 8, precision="fp32")


def model(layer: Layer = PLAIN, **settings: object) -> Model:
    given = {"positions": layer.positions, "norm": layer.norm} | settings
    return Model(60, 64, 16, 32, 2, (Run(2, (layer,)),), **given)  # type: ignore[arg-type] # settings are fields of the record


def planned(one: Model, implementation: Implementation) -> Plan:
    scenario = Scenario("base", replace(STEP, implementation=implementation))
    return plan(Spec("model", "model.yaml", one, (scenario,)), scenario)


def test_every_name_has_an_entry() -> None:
    assert set(IMPLEMENTATIONS) == set(get_args(Implementation))
    assert set(CLASSES) <= set(get_args(ModelType))


@pytest.mark.parametrize("implementation", get_args(Implementation))
@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("gated", [True, False])
def test_every_implementation_supports_every_activation(implementation: Implementation, activation: Activation, gated: bool) -> None:
    layer = replace(PLAIN, feed_forward=FeedForward(64, gated, activation))
    assert planned(model(layer), implementation).memory.activations_by_component["feed_forward"] > 0


@pytest.mark.parametrize(
    ("layer", "derived"),
    [
        (PLAIN, "gpt2"),
        (replace(PLAIN, attention=Attention(4, 4, 8, qkv="separate")), "starcoder2"),
        (replace(PLAIN, positions=ROPE), "starcoder2"),
        (replace(PLAIN, positions=ROPE, attention=Attention(4, 4, 8, qkv="fused_per_head")), "gpt_neox"),
        (replace(PLAIN, positions=ROPE, norm=RMS), "llama"),
    ],
)
def test_the_default_class_depends_on_positions_projection_and_norm(layer: Layer, derived: ModelType) -> None:
    assert modeled_class(model(layer)) == derived
    assert modeled_class(model(layer, model_type="gemma2")) == "gemma2"


def test_a_named_class_determines_the_operators() -> None:
    # GPT-2 computes the softmax of 16-bit scores; Llama casts them to float32 first, and saves the probabilities in float32, too:
    # 2 layers · B·H·n² = 2·4·8² probabilities · 4 bytes more.
    training = replace(STEP, implementation="transformers-eager", precision="bf16", gradient_dtype="bf16")

    def kept(name: ModelType) -> int:
        scenario = Scenario("base", training)
        return plan(Spec("m", "m.yaml", model(model_type=name), (scenario,)), scenario).memory.activations_bytes

    assert kept("llama") - kept("gpt2") == 2 * (2 * 4 * 8 * 8) * 4


@pytest.mark.parametrize("implementation", get_args(Implementation))
def test_buffers_equal_those_of_the_modules(implementation: Implementation) -> None:
    # nanoGPT holds a causal mask of context_length² in each layer; transformers two copies of rotary_dim/2 float32 frequencies, and the
    # scale of the embedding; a router's correction bias is always a float32 buffer with one number per expert.
    latent = LatentAttention(4, 16, 8, 8, 8)
    experts = Experts(6, 2, 16, scoring="sigmoid", correction_bias="buffer")
    layers = (replace(PLAIN, positions=ROPE, norm=RMS), Layer(None, None, (latent,), experts, positions=ROPE, norm=RMS))
    both = Model(60, 64, 16, 32, 6, (Run(3, layers),), positions=ROPE, norm=RMS, embedding_scale=True)
    buffers = trace(both, replace(STEP, implementation=implementation))
    masks = 3 * 16 * 16 * 4 if implementation == "pytorch-eager" else 0
    constants = 2 * 4 * 4 + 4 if implementation.startswith("transformers") else 0
    constants = 16 * 4 * 8 if implementation == "torchtitan" else constants  # positions · pairs · bytes of a complex number
    if implementation == "megatron-core":  # 4 frequencies and 8 angles at each of 8 positions, in float32
        constants = (4 + 8 * 8) * 4
        # A dummy gradient in float32 per shape of a linear: QKV, o, up and LM head, down, of latent attention, experts.
        shapes = {(96, 32), (32, 32), (64, 32), (32, 64), (24, 32), (64, 16), (32, 16)}
        constants += 4 * sum(rows * columns for rows, columns in shapes)
    assert buffers.buffers_bytes == masks + constants + 3 * 6 * 4
    assert buffers.correction_biases == 3 * 6


@pytest.mark.parametrize(
    ("settings", "padding"),
    [
        # Rows of the token embedding that are padding: 50,304 - 50,257 = 47, each as wide as the table.
        ({"embedding_dim": 512}, 47 * 512),  # 24,064
        ({}, 47 * 1024),
        ({"tied_head": False}, 2 * 47 * 1024),
        ({"tied_head": False, "embedding_dim": 512}, 2 * 47 * 512),
        ({"head_bias": True}, 47 * 1024 + 47),
    ],
)
def test_padding_has_the_width_of_the_tables(settings: dict[str, object], padding: int) -> None:
    layer = Layer(Attention(16, 16, 64), FeedForward(4096))
    padded = Model(50257, 50304, 64, 1024, 2, (Run(2, (layer,)),), **settings)  # type: ignore[arg-type] # fields of the record
    assert planned(padded, "pytorch").parameters.padding_params == padding
