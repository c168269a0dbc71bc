"""Schedules of pipelines: microbatches in flight, as torch.distributed.pipelining has them."""

from __future__ import annotations

import pytest

from planner.capacity.pipeline import highest, in_flight, moments, order
from planner.spec.records import Cluster, Layout


def flying(schedule: str, p: int, v: int, r: int, m: int) -> tuple[int, ...]:
    layout = Layout(Cluster("device", 1, p), pipeline_parallel=p, virtual_stages=v, schedule=schedule)  # type: ignore[arg-type]
    return in_flight(moments(order(layout, r, m), v))


@pytest.mark.parametrize(("p", "m", "r"), [(2, 4, 0), (4, 8, 1), (4, 16, 3), (8, 8, 3)])
def test_a_device_has_as_many_microbatches_in_flight_as_the_schedule_says(p: int, m: int, r: int) -> None:
    assert flying("gpipe", p, 1, r, m) == (m,)
    assert flying("1f1b", p, 1, r, m) == (min(m, p - r),)


@pytest.mark.parametrize(("p", "v", "m", "r"), [(2, 2, 4, 0), (2, 2, 4, 1), (4, 2, 8, 0), (4, 2, 8, 3), (2, 4, 4, 0), (4, 3, 16, 2)])
def test_interleaved_devices_have_more_in_flight(p: int, v: int, m: int, r: int) -> None:
    assert sum(flying("interleaved", p, v, r, m)) == (v - 1) * p + 2 * (p - 1 - r) + 1


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_every_microbatch_passes_every_stage_twice(schedule: str) -> None:
    v = 2 if schedule == "interleaved" else 1
    layout = Layout(Cluster("device", 1, 4), pipeline_parallel=4, virtual_stages=v, schedule=schedule)  # type: ignore[arg-type]
    passes = list(order(layout, 1, 8))
    assert [sum(one.forward == forward for one in passes) for forward in (True, False)] == [8 * v, 8 * v]
    assert all(sum(one.forward and one.stage == stage for one in passes) == 8 for stage in range(v))


def test_the_highest_moments_do_not_grow_with_the_microbatches() -> None:
    layout = Layout(Cluster("device", 1, 4), pipeline_parallel=4)
    few, many = (highest(moments(order(layout, 0, m), 1)) for m in (8, 800))
    assert len(few) == len(many) < 8
