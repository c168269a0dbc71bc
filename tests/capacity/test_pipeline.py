"""Schedules of pipelines: microbatches in flight, as torch.distributed.pipelining has them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch.distributed.pipelining import schedules

from planner.capacity.pipeline import Moment, in_flight, moments
from planner.capacity.schedule_events import events, gathering
from planner.capacity.schedules import Pass, order, reduced, resharded, stages_of
from planner.spec.records import Cluster, Layout
from planner.trace.sizes import Size, hinted, symbol


def flying(schedule: str, p: int, v: int, r: int, m: int) -> tuple[Size, ...]:
    layout = Layout(Cluster("device", 1, p), pipeline_parallel=p, virtual_stages=v, schedule=schedule)  # type: ignore[arg-type]
    return in_flight(moments(order(layout, r, m), v))


@pytest.mark.parametrize(("p", "m", "r"), [(2, 4, 0), (4, 8, 1), (4, 16, 3), (8, 8, 3)])
def test_a_device_has_as_many_microbatches_in_flight_as_the_schedule_says(p: int, m: int, r: int) -> None:
    assert flying("gpipe", p, 1, r, m) == (m,)
    assert flying("1f1b", p, 1, r, m) == (min(m, p - r),)


@pytest.mark.parametrize(("p", "v", "m", "r"), [(2, 2, 4, 0), (2, 2, 4, 1), (4, 2, 8, 0), (4, 2, 8, 3), (2, 4, 4, 0), (4, 3, 16, 2)])
def test_interleaved_devices_have_more_in_flight(p: int, v: int, m: int, r: int) -> None:
    assert sum(flying("interleaved", p, v, r, m)) == (v - 1) * p + 2 * (p - 1 - r) + 1


KINDS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "interleaved": (schedules.ScheduleInterleaved1F1B, (1, 2, 3)),
    "zero_bubble": (schedules.ScheduleInterleavedZeroBubble, (1, 2, 3)),
    "zbv": (schedules.ScheduleZBVZeroBubble, (2,)),
    "dualpipev": (schedules.ScheduleDualPipeV, (2,)),
}
NAMES = {
    schedules.FORWARD: "forward",
    schedules.FULL_BACKWARD: "backward",
    schedules.BACKWARD_INPUT: "input",
    schedules.BACKWARD_WEIGHT: "weight",
}


def passes_of_pytorch(schedule: str, p: int, v: int, r: int, m: int) -> list[tuple[str, int]]:
    """Return the passes of a device, with the numbers of their stages, as PyTorch's schedules list them."""
    made = object.__new__(KINDS[schedule][0])
    rounds = max(1, m // p)
    vars(made).update(pp_group_size=p, n_local_stages=v, num_stages=p * v, rank=r)
    vars(made).update(_n_microbatches=m, number_of_rounds=rounds, microbatches_per_round=m // rounds)
    actions = [one for one in made._calculate_single_rank_operations(r) if one]
    return [(NAMES[one.computation_type], one.stage_index) for action in actions for one in action.sub_actions or (action,)]


@pytest.mark.parametrize("schedule", KINDS)
@pytest.mark.parametrize("p", [2, 3, 4])
def test_passes_run_in_the_order_of_pytorchs_schedules(schedule: str, p: int) -> None:
    for v in KINDS[schedule][1]:
        cluster = Cluster("device", 1, p)
        layout = Layout(cluster, pipeline_parallel=p, virtual_stages=v, schedule=schedule)  # type: ignore[arg-type]
        for m in range(2 * p if schedule == "dualpipev" else 1, 4 * p + 1):
            if schedule in ("zbv", "dualpipev") or m % max(1, m // p) == 0:
                for r in range(p):
                    mine = [(one.kind, stages_of(layout, r)[one.stage]) for one in order(layout, r, m)]
                    assert mine == passes_of_pytorch(schedule, p, v, r, m)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_every_microbatch_passes_the_stage_twice(schedule: str) -> None:
    layout = Layout(Cluster("device", 1, 4), pipeline_parallel=4, schedule=schedule)  # type: ignore[arg-type]
    assert Counter(order(layout, 1, 8)) == {Pass("forward", 0): 8, Pass("backward", 0): 8}


def drawn(rng: random.Random) -> tuple[Layout, int]:
    """Return a pipeline at random, and its microbatches."""
    schedule = rng.choice(["gpipe", "1f1b", "interleaved"])
    p, v = rng.choice([2, 2, 3, 4, 5, 6, 7, 8, 12, 16]), rng.choice([2, 3, 4, 5]) if schedule == "interleaved" else 1
    several = p * rng.choice([1, 1, 2, 2, 3, 4, 5, 7])
    m = several if schedule == "interleaved" else rng.randrange(1 if schedule == "gpipe" else p, 4 * p + 3)
    return Layout(Cluster("device", 1, p), pipeline_parallel=p, virtual_stages=v, schedule=schedule), m  # type: ignore[arg-type]


def tops(found: Iterable[Moment], sizes: Sequence[Sequence[int]]) -> dict[tuple[object, bool], int]:
    """Return the largest sum of sizes of each kind of moment.

    Sizes are of microbatches in flight, of gradients, of what each microbatch leaves, of whole weights, and of what a reduction leaves.
    """
    made: dict[tuple[object, bool], int] = {}
    for one in found:
        total, is_reduced = 0, one.reduced or [False] * len(one.flying)
        for stage, (flying, gradients, left, weights, shard) in enumerate(zip(*sizes, strict=True)):
            ended = hinted(one.ended[stage])
            total += hinted(one.flying[stage]) * flying + ended * left
            total += shard if is_reduced[stage] else weights + gradients * (ended > 0)
        kind = one.step, one.kind[1] and one.step.kind != "forward"  # a forward pass is the same with gradients
        made[kind] = max(made.get(kind, 0), total)
    return made


def test_the_closed_form_has_the_highest_moments_of_the_schedule() -> None:
    """Compare it with the walk of 400 schedules, for random sizes of what is allocated."""
    rng = random.Random(0)  # noqa: S311 - not for secrets
    for number in range(400):
        laid, m = drawn(rng)
        p, v = laid.pipeline_parallel, laid.virtual_stages
        r, reduces = rng.choice([0, 1, p - 1, rng.randrange(p)]), number % 2 > 0
        reshards = reduces and v == 1 and rng.random() < 0.5
        walk = list(resharded(order(laid, r, m)) if reshards else order(laid, r, m))
        walked, closed = moments(reduced(walk, m) if reduces else walk, v), events(laid, r, m, reduces=reduces, reshards=reshards)
        assert closed is not None
        assert in_flight(walked) == in_flight(closed)
        if reshards:
            assert gathering(laid, m) == sum(one.gathers for one in walk)
        for _ in range(4):
            sizes = [[rng.randrange(10 ** rng.randrange(1, 5)) for _ in range(v)] for _ in range(2)]
            sizes.append([rng.choice([0, 4]) for _ in range(v)])  # bytes of the loss
            sizes += [[rng.randrange(1000) for _ in range(v)], [0] * v]
            assert tops(walked, sizes) == tops(closed, sizes), (laid, r, m, reduces, reshards)


def test_the_closed_form_holds_for_symbols() -> None:
    """Compare the moments of stages p and microbatches m as symbols with those of their values."""
    rng = random.Random(1)  # noqa: S311 - not for secrets
    for _ in range(100):
        laid, m = drawn(rng)
        value = laid.pipeline_parallel
        p, several = symbol("p", value), m // value
        over_symbols = several * p if laid.schedule == "interleaved" else symbol("m", m)
        for mine, r in ((0, 0), (1, 1), (value - 1, p - 1)):
            symbolic = events(replace(laid, pipeline_parallel=p), r, over_symbols)  # type: ignore[arg-type]
            plain = events(laid, mine, m)
            assert symbolic is not None
            assert plain is not None
            values = {(one.step, tuple(map(hinted, one.flying)), tuple(map(hinted, one.ended))) for one in symbolic}
            assert values == {(one.step, one.flying, one.ended) for one in plain}


def test_moments_do_not_grow_with_the_microbatches() -> None:
    layouts = [Layout(Cluster("device", 1, 4), pipeline_parallel=4), Layout(Cluster("device", 1, 4), pipeline_parallel=4, virtual_stages=3,
        schedule="interleaved")]  # fmt: skip
    for laid in layouts:
        few, many = (events(laid, 0, m) for m in (16, 8000))
        assert few
        assert many
        assert len(few) == len(many) < 120
