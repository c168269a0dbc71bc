"""Reports show every setting of the spec language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args, get_type_hints

import pytest

from planner.capacity.figures import Plan
from planner.report import breakdown, settings
from planner.spec import records
from planner.spec.key import held, keys
from planner.spec.language import leaves
from planner.spec.records import (
    Attention,
    Encoder,
    Experts,
    Extra,
    FeedForward,
    Frames,
    GatedDeltaNet,
    Implementation,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    Mlstm,
    ModelType,
    MultiTokenPrediction,
    Norm,
    Patches,
    PerLayerEmbedding,
    Positions,
    RgLru,
    Run,
    Rwkv,
    ShortConvolution,
    Vision,
)

# Settings shown in the value of another one: vocab_size: 50257, padded to 50304; tokens for steps; and layers, shown only for models with
# several kinds of layers.
SHOWN_ELSEWHERE = {"model.pad_vocab_to_multiple_of", "training.steps", "training.global_batch_size", "model.layers"}

GATED_ROPE = Layer(Attention(2, 1, 2), FeedForward(8, gated=True), positions=Positions("rope", rotary_dim=2))


BUCKETED = Layer(None, None, positions=Positions("bucketed"))
WHOLE: dict[type[Any], object] = {records.Adapters: records.Adapters(16)}  # groups with a key that has no default


def loud(record: Any) -> Any:  # noqa: ANN401 - any record
    """Return the record with other values for all fields that are hidden at their default, in the groups of a training, too."""
    hints = get_type_hints(type(record), {**vars(records), "Node": object})
    quiet = {field.name: field.default for field, key in keys(type(record)) if key.quiet and held(type(record), field)}
    groups = {field.name: key.kind for field, key in keys(type(record)) if key.kind and isinstance(record, records.Training)}
    found = {name: another(hints[name], default) for name, default in quiet.items() if name not in groups}
    return replace(record, **found, **{name: loud(getattr(record, name) or WHOLE.get(kind) or kind()) for name, kind in groups.items()})


def another(hint: Any, default: object) -> object:  # noqa: ANN401 - any annotation
    """Return a value that is not the default."""
    if hint is bool:
        return not default
    choices = [choice for choice in get_args(hint) if isinstance(choice, str) and choice != default]
    choices += [choice for inner in get_args(hint) for choice in get_args(inner)]
    if get_args(hint) == (str, ...):
        return ("head",)
    return choices[0] if choices else Fraction(5, 4)


EVERY_SWITCH = Layer(
    loud(Attention(4, 2, 8)),
    loud(FeedForward(8)),
    experts=loud(Experts(4, 2, 8, shared_d_ff=6)),
    norm=loud(Norm("rmsnorm", bias=False)),
    mixer_norm=False,
    positions=Positions(frozen=True),
)
MIXERS: tuple[Mixer, ...] = (
    LatentAttention(4, 8, 6, 4, 6, indexer=Indexer(2, 8, 16), selected_keys=3),
    Mamba(96, 16, 4, 3),
    Mamba2(96, 16, 8, 2, 4, chunk=64),
    GatedDeltaNet(2, 4, 8, 8, 4),
    KimiDeltaAttention(4, 8, 4),
    LightningAttention(4, 8, block=64),
    RgLru(64, 4, 4),
    Rwkv(48),
    ShortConvolution(48, 3),
    Mlstm(4, 24, 48),
)


def with_layers(plan: Plan, *runs: Run) -> Mapping[str, Any]:
    return settings.model(replace(plan.model, runs=runs))


def test_every_setting_of_the_spec_language_is_shown_and_no_other(plan: Plan) -> None:
    once = replace(
        loud(plan.model),
        per_layer_embedding=PerLayerEmbedding(50, 8),
        prediction=MultiTokenPrediction(1),
        extra=(Extra("x", (3,), "other"),),
        encoder=Encoder(2, Frames(80)),
        patches=Patches(224, 16),
        vision=Vision(56, 14, 48, 2, 4, 192),
    )
    layers = (GATED_ROPE, BUCKETED, EVERY_SWITCH, *(Layer(None, None, mixers=(mixer,)) for mixer in MIXERS))
    uniform = [settings.model(plan.model), settings.model(once), *(with_layers(plan, Run(3, (layer,))) for layer in layers)]
    shown = {f"model.{key}" for values in uniform for key in values} | {f"training.{key}" for key in settings.training(loud(plan.training))}
    assert shown == {key for key in leaves() if key.startswith(("model.", "training."))} - SHOWN_ELSEWHERE


def test_values_are_written_as_in_a_spec(plan: Plan) -> None:
    shown = settings.model(plan.model) | settings.training(plan.training)
    assert shown["vocab_size"] == "100, padded to 104"
    assert shown["head.tied"] == "true"
    assert shown["dropout"] == "0.1"
    assert shown["tokens"] == str(10**20)
    assert settings.training(replace(plan.training, tokens=None))["tokens"] == "not given"


def test_layers_that_differ_are_shown_per_layer_group(plan: Plan) -> None:
    (run,) = plan.model.runs
    (layer,) = run.layers
    wide = replace(layer, feed_forward=FeedForward(32))
    shown = with_layers(plan, Run(1, (layer,)), Run(5, (layer, wide)))
    assert shown["layers"] == "1 × {d_ff: 16}, 5 × [{d_ff: 16}, {d_ff: 32}]"
    assert "d_ff" not in shown
    assert shown["n_heads"] == "2"
    assert "layers" not in with_layers(plan, Run(1, (layer,)), Run(2, (layer,)))


def test_parts_of_only_some_layers_are_shown_per_layer_group(plan: Plan) -> None:
    (layer,) = plan.model.runs[0].layers
    gated = replace(layer, feed_forward=FeedForward(16, gated=True))
    shown = with_layers(plan, Run(1, (layer,)), Run(2, (gated,)))
    assert shown["layers"] == "1 × {feed_forward.type: plain}, 2 × {feed_forward.type: gated}"
    assert shown["feed_forward.bias.gate"] == "true"  # of all layers that have a gate


def test_missing_parts_of_plain_models_are_not_shown(plan: Plan) -> None:
    shown = " ".join(settings.model(plan.model))
    assert not any(part in shown for part in ("mixer", "experts", "mamba", "window", "softcap", "extra", "prediction"))


def test_mixers_are_shown_if_one_of_them_is_not_attention(plan: Plan) -> None:
    (layer,) = plan.model.runs[0].layers
    convolution = replace(layer, attention=None, mixers=(ShortConvolution(4, 3),))
    shown = with_layers(plan, Run(2, (layer, convolution)), Run(1, (replace(layer, attention=None),)))
    assert shown["layers"] == "2 × [{mixer: attention}, {mixer: short_convolution}], 1 × {mixer: none}"
    assert (shown["n_heads"], shown["short_convolution.d_conv"]) == ("2", "3")
    both = replace(layer, mixers=(ShortConvolution(4, 3),))
    assert with_layers(plan, Run(3, (both,)))["mixer"] == "[attention, short_convolution]"


def test_dense_layers_among_layers_of_experts(plan: Plan) -> None:
    (layer,) = plan.model.runs[0].layers
    sparse = replace(layer, feed_forward=None, experts=Experts(4, 2, 8))
    shown = with_layers(plan, Run(1, (layer,)), Run(2, (sparse,)))
    assert shown["layers"] == "1 × {experts: none}, 2 × {}"
    assert (shown["d_ff"], shown["experts.top_k"]) == ("16", "2")


def test_a_switch_of_some_layers_is_shown_for_the_others_too(plan: Plan) -> None:
    (layer,) = plan.model.runs[0].layers
    shown = with_layers(plan, Run(1, (replace(layer, attention=Attention(2, 2, 2, window=3)),)), Run(2, (layer,)))
    assert shown["layers"] == "1 × {attention.window: 3}, 2 × {attention.window: none}"


def test_the_heads_of_latent_attention_are_shown_as_those_of_the_layer(plan: Plan) -> None:
    shown = with_layers(plan, Run(3, (Layer(None, FeedForward(16), mixers=(LatentAttention(4, 8, 6, 4, 6),)),)))
    assert (shown["n_heads"], shown["latent_attention.q_rank"]) == ("4", "none")
    assert "latent_attention.n_heads" not in shown


def test_extra_tensors_are_shown_for_the_model_or_the_layer(plan: Plan) -> None:
    (layer,) = plan.model.runs[0].layers
    own = replace(plan.model, runs=(Run(3, (replace(layer, extra=(Extra("y", (2, 3), "attention", 1),)),)),))
    shown = settings.model(replace(own, extra=(Extra("x", (3,), "other"),)))
    assert shown["extra"] == "[{name: x, shape: [3], component: other, uses: 0}]"
    assert shown["layers"] == "3 × {extra: [{name: y, shape: [2, 3], component: attention, uses: 1}]}"


@pytest.mark.parametrize(
    ("implementation", "named", "kernels"),
    [
        ("pytorch", None, "pytorch"),
        ("transformers", None, "transformers (modules of gpt2)"),  # learned positions and a fused projection
        ("transformers-eager", "llama", "transformers-eager (modules of llama)"),
    ],
)
def test_the_modeled_implementation_is_shown(plan: Plan, implementation: Implementation, named: ModelType | None, kernels: str) -> None:
    model, training = replace(plan.model, model_type=named), replace(plan.training, implementation=implementation)
    assert breakdown.kernels(replace(plan, model=model, training=training)) == kernels
