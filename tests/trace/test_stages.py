"""Stages of a pipeline have the layers of the model, in order."""

from __future__ import annotations

from dataclasses import replace

from planner.spec.records import Attention, Cluster, FeedForward, Layer, Layout, Model, Run
from planner.trace.stages import stages

PLAIN = Layer(Attention(4, 4, 8), FeedForward(48))
SLIDING = replace(PLAIN, attention=Attention(4, 4, 8, window=8))


def model(*runs: Run) -> Model:
    return Model(100, 100, 64, 32, sum(run.count * len(run.layers) for run in runs), runs)


def pipeline(devices: int, **settings: int) -> Layout:
    return Layout(Cluster("device", 1, devices), pipeline_parallel=devices, **settings)  # type: ignore[arg-type]  # of integers


def test_equal_layers_stay_one_group() -> None:
    assert [stage.runs for stage in stages(model(Run(6, (PLAIN,))), pipeline(2))] == [(Run(3, (PLAIN,)),)] * 2


def test_a_stage_may_end_inside_a_group() -> None:
    first, second = stages(model(Run(3, (SLIDING, PLAIN))), pipeline(2))  # sliding, plain, sliding | plain, sliding, plain
    assert first.runs == (Run(1, (SLIDING, PLAIN)), Run(1, (SLIDING,)))
    assert second.runs == (Run(1, (PLAIN,)), Run(1, (SLIDING, PLAIN)))
    assert (first.first, first.last, second.first, second.last, second.first_layer) == (True, False, False, True, 3)


def test_a_stage_may_have_layers_of_several_groups() -> None:
    assert [stage.runs for stage in stages(model(Run(1, (SLIDING,)), Run(3, (PLAIN,))), pipeline(2))] == [
        (Run(1, (SLIDING,)), Run(1, (PLAIN,))),
        (Run(2, (PLAIN,)),),
    ]


def test_inner_stages_receive_activations_and_gradients() -> None:
    first, inner, last = stages(model(Run(3, (PLAIN,))), pipeline(3))
    assert [stage.buffers(4, 10) for stage in (first, inner, last)] == [4 * 10, 4 * 10 * 2, 4 * 10]


def test_the_first_and_the_last_stage_may_have_other_layers() -> None:
    # Llama 3.1 405B (arXiv:2407.21783, section 3.3.2): 126 layers on 16 devices, one less on the first and on the last one
    found = stages(model(Run(126, (PLAIN,))), pipeline(16, first_stage_layers=7, last_stage_layers=7))
    assert [stage.runs for stage in found] == [(Run(count, (PLAIN,)),) for count in (7, *[8] * 14, 7)]
    assert [stage.first_layer for stage in found] == [0, *range(7, 119, 8), 119]


def test_a_stage_may_have_no_layers() -> None:
    found = stages(model(Run(1, (SLIDING,)), Run(5, (PLAIN,))), pipeline(2, virtual_stages=2, first_stage_layers=0))
    assert [stage.runs for stage in found] == [(), (Run(1, (SLIDING,)), Run(1, (PLAIN,))), (Run(2, (PLAIN,)),), (Run(2, (PLAIN,)),)]
