"""Stages of a pipeline have the layers of the model, in order."""

from __future__ import annotations

from dataclasses import replace

from planner.spec.records import Attention, FeedForward, Layer, Model, Run
from planner.trace.stages import stages

PLAIN = Layer(Attention(4, 4, 8), FeedForward(48))
SLIDING = replace(PLAIN, attention=Attention(4, 4, 8, window=8))


def model(*runs: Run) -> Model:
    return Model(100, 100, 64, 32, sum(run.count * len(run.layers) for run in runs), runs)


def test_equal_layers_stay_one_group() -> None:
    assert [stage.runs for stage in stages(model(Run(6, (PLAIN,))), 2)] == [(Run(3, (PLAIN,)),)] * 2


def test_a_stage_may_end_inside_a_group() -> None:
    first, second = stages(model(Run(3, (SLIDING, PLAIN))), 2)  # sliding, plain, sliding | plain, sliding, plain
    assert first.runs == (Run(1, (SLIDING, PLAIN)), Run(1, (SLIDING,)))
    assert second.runs == (Run(1, (PLAIN,)), Run(1, (SLIDING, PLAIN)))
    assert (first.first, first.last, second.first, second.last, second.first_layer) == (True, False, False, True, 3)


def test_a_stage_may_have_layers_of_several_groups() -> None:
    assert [stage.runs for stage in stages(model(Run(1, (SLIDING,)), Run(3, (PLAIN,))), 2)] == [
        (Run(1, (SLIDING,)), Run(1, (PLAIN,))),
        (Run(2, (PLAIN,)),),
    ]


def test_inner_stages_receive_activations_and_gradients() -> None:
    first, inner, last = stages(model(Run(3, (PLAIN,))), 3)
    assert [stage.buffers(4, 10) for stage in (first, inner, last)] == [4 * 10, 4 * 10 * 2, 4 * 10]
