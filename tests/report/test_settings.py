"""What the reports say about a spec is all that the spec language can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.capacity.records import Plan
from planner.report import settings
from planner.spec.language import leaves
from planner.spec.records import Attention, FeedForward, Layer, Positions, Run

# Settings that are told in the value of another one: vocab_size: 50257, padded to 50304; tokens, which steps come to; and layers, which
# only a model of several kinds of layer has.
TOLD_ELSEWHERE = {"model.pad_vocab_to_multiple_of", "training.steps", "model.layers"}

GATED_ROPE = Layer(Attention(2, 1, 2), FeedForward(8, gated=True), Positions("rope", rotary_dim=2))


def with_layers(plan: Plan, *runs: Run) -> Mapping[str, Any]:
    return settings.model(replace(plan.model, runs=runs))


def test_every_setting_of_the_spec_language_is_told_and_no_other(plan: Plan) -> None:
    uniform = settings.model(plan.model), with_layers(plan, Run(3, (GATED_ROPE,)))
    told = {f"model.{key}" for values in uniform for key in values} | {f"training.{key}" for key in settings.training(plan.training)}
    assert told == {key for key in leaves() if key.startswith(("model.", "training."))} - TOLD_ELSEWHERE


def test_values_are_written_as_a_spec_writes_them(plan: Plan) -> None:
    told = settings.model(plan.model) | settings.training(plan.training)
    assert told["vocab_size"] == "100, padded to 104"
    assert told["head.tied"] == "true"
    assert told["dropout"] == "0.1"
    assert told["tokens"] == str(10**20)
    assert settings.training(replace(plan.training, tokens=None))["tokens"] == "not given"


def test_layers_that_differ_are_told_run_by_run(plan: Plan) -> None:
    (run,) = plan.model.runs
    (layer,) = run.layers
    wide = replace(layer, feed_forward=replace(layer.feed_forward, d_ff=32))
    told = with_layers(plan, Run(1, (layer,)), Run(5, (layer, wide)))
    assert told["layers"] == "1 × {d_ff: 16}, 5 × [{d_ff: 16}, {d_ff: 32}]"
    assert "d_ff" not in told
    assert told["n_heads"] == "2"
    assert "layers" not in with_layers(plan, Run(1, (layer,)), Run(2, (layer,)))


def test_what_only_some_layers_have_is_told_run_by_run(plan: Plan) -> None:
    (layer,) = plan.model.runs[0].layers
    gated = replace(layer, feed_forward=replace(layer.feed_forward, gated=True))
    told = with_layers(plan, Run(1, (layer,)), Run(2, (gated,)))
    assert told["layers"] == "1 × {feed_forward.type: plain}, 2 × {feed_forward.type: gated, feed_forward.bias.gate: true}"
