"""The step of a pipeline's device: passes of one microbatch through each of its stages, in the order of a schedule.

A microbatch allocates the same whatever else is in flight. So a peak of a step is that of a pass, besides the microbatches that each stage
has in flight then and the gradients that exist; few moments can be the peak (schedule_events.py). torch.distributed.pipelining (PyTorch
2.13, schedules.py): GPipe runs all microbatches forward first; 1F1B runs forward until the first one returns, and then one backward and one
forward in turn; interleaved 1F1B does the same with several stages per device, a round of microbatches in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from planner.capacity.timeline import MemoryTimeline
from planner.spec.records import Layout
from planner.trace.dominance import highest
from planner.trace.sizes import Size

LOSS = 4  # bytes


class Pass(NamedTuple):
    """A pass of one microbatch through one of the device's stages, by its number on the device."""

    forward: bool
    stage: int


class Moment(NamedTuple):
    """A pass, other microbatches in flight in each stage, and how many have run backward in each."""

    step: Pass
    flying: tuple[Size, ...]
    ended: tuple[Size, ...]

    @property
    def kind(self) -> tuple[Pass, bool]:
        """The pass, and whether its stage has gradients."""
        return self.step, self.ended[self.step.stage] > 0


class Passes(NamedTuple):
    """One microbatch's passes through a stage, without gradients and with them.

    ``kept`` is what each microbatch leaves allocated after its backward pass, ``sent`` the gradient that lives until the next one is sent.
    """

    first: MemoryTimeline
    again: MemoryTimeline
    gradients: Size
    kept: Size
    sent: Size


def order(layout: Layout, device: int, microbatches: int) -> Iterator[Pass]:
    """Yield the passes of a device, by its number in the pipeline."""
    count, stages = layout.pipeline_parallel, layout.virtual_stages
    every = range(microbatches * stages)
    forward = [Pass(True, number // count % stages) for number in every]
    backward = [Pass(False, stages - 1 - number // count % stages) for number in every]
    before = (stages - 1) * count + (2 if layout.schedule == "interleaved" else 1) * (count - 1 - device)
    before = len(forward) if layout.schedule == "gpipe" else min(before, len(forward))
    yield from forward[:before]
    for pair in zip_longest(forward[before:], backward):
        yield from (one for one in pair if one)


def moments(passes: Iterable[Pass], stages: int) -> tuple[Moment, ...]:
    """Return the moments of a schedule; of those alike but for how many have run backward, the last one."""
    flying, ended = [0] * stages, [0] * stages
    found: dict[tuple[Pass, tuple[Size, ...], tuple[bool, ...]], Moment] = {}
    for step in passes:
        flying[step.stage] -= not step.forward
        one = Moment(step, tuple(flying), tuple(ended))
        found[step, one.flying, tuple(map(bool, ended))] = one
        flying[step.stage] += step.forward
        ended[step.stage] += not step.forward
    return tuple(found.values())


def in_flight(found: Iterable[Moment]) -> tuple[Size, ...]:
    """Return the microbatches in each stage when most are in flight: they have begun to run forward, but not backward."""
    vectors = (tuple(count + (number == one.step.stage) for number, count in enumerate(one.flying)) for one in found if one.step.forward)
    return max(vectors, key=sum)


def _alike(stages: Sequence[Passes]) -> Iterator[tuple[Passes, list[int]]]:
    """Yield stages with the numbers of those whose passes are the same."""
    numbers: dict[int, list[int]] = {}
    for number, stage in enumerate(stages):
        numbers.setdefault(id(stage), []).append(number)
    yield from ((stages[every[0]], every) for every in numbers.values())


def step(stages: Sequence[Passes], found: Sequence[Moment], weights: Size = 0) -> MemoryTimeline:
    """Return the timeline of a step with the samples that may be its peak; ``weights`` are gathered through the step."""

    def besides(one: Moment) -> Size:
        """Return the bytes that are allocated besides a pass."""
        existing = [stage.gradients + stage.sent + stage.kept * count for stage, count in zip(stages, one.ended, strict=True) if count > 0]
        return of_flying(one.flying) + sum(existing) + weights

    def of_flying(counts: Sequence[Size]) -> Size:
        return sum(count * size for count, size in zip(counts, saved, strict=True))

    saved = [stage.first.after_forward for stage in stages]
    most = of_flying(in_flight(found))
    whole = MemoryTimeline(changes=[most + weights], of_forward=1)
    kinds: dict[tuple[Pass, bool], list[Size]] = {}
    for one in found:
        kinds.setdefault((one.step, one.kind[1] and not one.step.forward), []).append(besides(one))
    for stage, numbers in _alike(stages):
        for exist, timeline in ((False, stage.first), (True, stage.again)):
            whole.add(-whole.since(0))
            start = len(whole.changes)
            samples = [sample._replace(changes=start + sample.changes) for sample in timeline.samples]
            for forward in (True, False):
                if sizes := [size for number in numbers for size in kinds.get((Pass(forward, number), exist), ())]:
                    whole.add_samples([sample for sample in samples if (sample.phase != "backward") == forward], highest(sizes))
            whole.changes += timeline.changes
    whole.add(sum(stage.gradients for stage in stages) - whole.since(0))
    return whole
