"""The step of a pipeline's device: passes of one microbatch through each of its stages, in the order of a schedule (schedules.py).

A microbatch allocates the same whatever else is in flight. So a peak of a step is that of a pass, besides the microbatches that each stage
has in flight then and the gradients that exist; few moments can be the peak (schedule_events.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from planner.capacity.schedules import Kind, Pass
from planner.capacity.timeline import MemorySample, MemoryTimeline
from planner.trace.dominance import highest
from planner.trace.sizes import Size

LOSS = 4  # bytes


class Moment(NamedTuple):
    """A pass, and how many other microbatches in each stage.

    They are in flight: have run forward, but not backward. Or they have ended. Or they wait for the backward pass of the weights; that of
    the input has run for those ``divided``. ``reduced``: whether the stage's gradients are. An empty tuple is for none.
    """

    step: Pass
    flying: tuple[Size, ...]
    ended: tuple[Size, ...]
    waiting: tuple[Size, ...] = ()
    divided: tuple[Size, ...] = ()
    reduced: tuple[bool, ...] = ()

    @property
    def kind(self) -> tuple[Pass, bool]:
        """The pass, and whether its stage has gradients."""
        return self.step, self.ended[self.step.stage] > 0


class Passes(NamedTuple):
    """One microbatch's passes through a stage.

    ``samples`` of each kind, by whether it gathers weights and the stage has gradients, with the number of their timeline. ``forward`` is
    allocated after its forward pass, ``waiting`` after the backward pass of the input, besides the input's gradient (``input_gradient``),
    which lives until the next step, and ``kept`` at the end. ``sent``: the gradient that lives until the next one is sent.
    ``weights`` are gathered, and ``gradients`` whole, until they are reduced to ``shard``.
    """

    timelines: Sequence[MemoryTimeline]
    samples: Mapping[tuple[Kind, bool, bool], tuple[int, Sequence[MemorySample]]]
    weights: Size
    gradients: Size
    shard: Size
    forward: Size
    waiting: Size
    input_gradient: Size
    kept: Size
    sent: Size


def moments(passes: Iterable[Pass], stages: int) -> tuple[Moment, ...]:
    """Return the moments of a schedule; of those alike but for how many have run backward, the last one."""
    flying, waiting, ended, divided = ([0] * stages for _ in range(4))
    reduced = [False] * stages
    found: dict[tuple[object, ...], Moment] = {}
    for step in passes:
        kind, stage, _ = step
        flying[stage] -= kind in ("backward", "input")
        waiting[stage] -= kind == "weight"
        one = Moment(step, tuple(flying), tuple(ended), tuple(waiting), tuple(divided), tuple(reduced))
        found[step, one.flying, one.waiting, tuple(map(bool, ended)), one.reduced] = one
        flying[stage] += kind == "forward"
        waiting[stage] += kind == "input"
        divided[stage] += kind == "input"
        ended[stage] += kind in ("backward", "weight")
        reduced[stage] = reduced[stage] or kind == "reduce"
    return tuple(found.values())


def in_flight(found: Iterable[Moment]) -> tuple[Size, ...]:
    """Return the microbatches in each stage when most are in flight: they have begun to run forward, but not backward."""
    return _begun(max((one for one in found if one.step.kind == "forward"), key=lambda one: sum(one.flying)))


def saved(found: Iterable[Moment]) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """Return those in flight, and those that wait for the backward pass of the weights, when both together are most."""
    one = max((one for one in found if one.step.kind == "forward"), key=lambda one: sum(one.flying + one.waiting))
    return _begun(one), one.waiting or (0,) * len(one.flying)


def _begun(one: Moment) -> tuple[Size, ...]:
    """Return the microbatches in flight in each stage after a forward pass begins."""
    return tuple(count + (number == one.step.stage) for number, count in enumerate(one.flying))


def _alike(stages: Sequence[Passes]) -> Iterator[tuple[Passes, list[int]]]:
    """Yield stages with the numbers of those whose passes are the same."""
    numbers: dict[int, list[int]] = {}
    for number, stage in enumerate(stages):
        numbers.setdefault(id(stage), []).append(number)
    yield from ((stages[every[0]], every) for every in numbers.values())


def step(stages: Sequence[Passes], found: Sequence[Moment], held: Size = 0) -> MemoryTimeline:
    """Return the timeline of a step with the samples that may be its peak. ``held``: bytes that are allocated until all have run."""

    def besides(one: Moment) -> Size:
        """Return the bytes that are allocated besides a pass."""
        waiting = [count * stage.waiting for stage, count in zip(stages, one.waiting, strict=False)]
        states = [
            stage.shard if is_reduced else stage.weights + (stage.gradients if count > 0 else 0)
            for stage, count, is_reduced in zip(stages, one.ended, one.reduced or [False] * len(stages), strict=True)
        ]
        kept = [stage.sent + stage.kept * count for stage, count in zip(stages, one.ended, strict=True) if count > 0]
        return held + of_flying(one.flying) + sum(states) + sum(kept) + sum(waiting) + _of_inputs(stages, one)

    def of_flying(counts: Sequence[Size]) -> Size:
        return sum(count * stage.forward for count, stage in zip(counts, stages, strict=True))

    most = of_flying(in_flight(found))
    whole = MemoryTimeline(changes=[most + sum(stage.weights for stage in stages)], of_forward=1)
    kinds: dict[tuple[Pass, bool], list[Size]] = {}
    for one in found:
        kinds.setdefault((one.step, one.kind[1] and one.step.kind != "forward"), []).append(besides(one))
    for stage, numbers in _alike(stages):
        for which, timeline in enumerate(stage.timelines):
            whole.add(-whole.since(0))
            start = len(whole.changes)
            for (kind, gathers, exist), (place, samples) in stage.samples.items():
                sizes = [size for number in numbers for size in kinds.get((Pass(kind, number, gathers), exist), ())]
                if place == which and sizes:
                    whole.add_samples([sample._replace(changes=start + sample.changes) for sample in samples], highest(sizes))
            whole.changes += timeline.changes
    whole.add(sum(stage.shard for stage in stages) + input_gradients(stages, found) - whole.since(0))
    return whole


def input_gradients(stages: Sequence[Passes], found: Sequence[Moment]) -> Size:
    """Return the bytes of the gradients of inputs that a step leaves until the next one starts."""
    return _of_inputs(stages, max(found, key=lambda one: sum(one.divided)))


def _of_inputs(stages: Sequence[Passes], one: Moment) -> Size:
    return sum(count * stage.input_gradient for count, stage in zip(one.divided, stages, strict=False))
