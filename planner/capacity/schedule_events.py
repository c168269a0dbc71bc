"""The moments of a pipeline's schedule at which most is allocated, in closed form.

A block is ``p`` passes in a row of one of the device's ``v`` stages, and a round has a block of each stage. So how many passes of a stage
have run is linear along a block of forward passes, or of backward ones. After a start, the device runs one of each in turn: what is
allocated besides a pass is then linear between the ends of blocks. With four rounds or more, only the last ones count, which have at
least as much in flight as those before, and gradients of every stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.capacity.pipeline import Moment
from planner.capacity.schedules import Pass
from planner.spec.records import Layout
from planner.spec.records.layout import Schedule
from planner.trace.sizes import Size, structure

CLOSED: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved")
ROUNDS = 4  # of which the last three have all moments of the later ones


class Time(NamedTuple):
    """A number of passes: rounds, blocks and single passes."""

    rounds: Size
    blocks: int
    passes: Size


@dataclass(frozen=True, slots=True)
class Interleaved:
    """The passes of a device: the number of its stages, the passes of a block, the rounds, and forward passes before the first backward.

    These are all blocks of a round but one, and ``more`` passes. ``reduces``: a stage reduces its gradients after its last pass.
    """

    stages: int
    block: Size
    rounds: Size
    more: Size
    reduces: bool = False

    def at(self, rounds: Size, blocks: int, passes: Size) -> Time:
        """Return a time of 0 to ``block`` passes after blocks; from the start to the end of the step."""
        while passes < 0 or passes >= self.block:
            whole = -1 if passes < 0 else 1
            blocks, passes = blocks + whole, passes - whole * self.block
        time = Time(rounds + blocks // self.stages, blocks % self.stages, passes)
        if time.rounds < 0:
            return Time(0, 0, 0)
        return Time(self.rounds, 0, 0) if time.rounds >= self.rounds else time

    def forward(self, time: Time) -> tuple[Size, ...]:
        """Return how many microbatches have run forward in each stage after so many forward passes."""
        each = time.rounds * self.block
        return tuple(
            each + (self.block if stage < time.blocks else time.passes if stage == time.blocks else 0) for stage in range(self.stages)
        )

    def backward(self, time: Time) -> tuple[Size, ...]:
        """Return how many microbatches have run backward in each stage after so many backward passes."""
        return self.forward(time)[::-1]

    def ended(self, time: Time) -> Time:
        """Return the backward passes before a forward pass that begins after others."""
        return self.at(time.rounds, time.blocks - self.stages + 1, time.passes - self.more)

    def begun(self, time: Time) -> Time:
        """Return the forward passes before a backward pass that begins after others."""
        return self.at(time.rounds, time.blocks + self.stages - 1, time.passes + self.more + 1)

    def moment(self, time: Time, *, forward: bool) -> Moment:
        """Return the moment of the pass after so many forward or backward ones."""
        begun, ended = (time, self.ended(time)) if forward else (self.begun(time), time)
        stage = time.blocks if forward else self.stages - 1 - time.blocks
        begun_in, ended_in = self.forward(begun), self.backward(ended)
        others = (
            one - other - (number == stage and not forward) for number, (one, other) in enumerate(zip(begun_in, ended_in, strict=True))
        )
        done = self.done(time) if self.reduces and not forward else ()
        return Moment(Pass("forward" if forward else "backward", stage), tuple(others), ended_in, reduced=done)

    def done(self, time: Time) -> tuple[bool, ...]:
        """Return which stages have run all backward passes: in the last round those of the blocks before. No forward pass is so late."""
        last = time.rounds == self.rounds - 1
        return tuple(last and self.stages - 1 - stage < time.blocks for stage in range(self.stages))

    def reduction(self, blocks: int) -> Moment:
        """Return the moment at which the gradients of a stage are reduced, after a block of the last round."""
        last = self.moment(Time(self.rounds - 1, blocks, self.block - 1), forward=False)
        ended = tuple(count + (stage == last.step.stage) for stage, count in enumerate(last.ended))
        return last._replace(step=Pass("reduce", last.step.stage), ended=ended)

    def corners(self, shift: Size) -> Iterator[Size]:
        """Yield the passes of a block between which all is linear, if passes of the other direction are ``shift`` ahead.

        A stage has gradients after its first backward pass, so that one begins a stretch, too.
        """
        ends = [one for blocks in range(-1, 4) for one in (blocks * self.block - shift, blocks * self.block - shift + 1)]
        yield from (0, 1)
        yield from (one for one in ends if one > 1 and one < self.block - 1)
        yield self.block - 1

    def moments(self) -> Iterator[Moment]:
        """Yield the first moment at which most microbatches are in flight, and those at which most may be allocated."""
        first, last = self.at(0, self.stages - 1, self.more), self.at(self.rounds - 1, self.stages - 1, self.block - 1)
        yield self.moment(last if first.rounds >= self.rounds else first, forward=True)
        late = self.rounds >= ROUNDS
        for forward, rounds in ((True, 1), (False, ROUNDS - 1)):
            corners = tuple(self.corners(-self.more if forward else self.more + 1))
            if late and not forward:
                yield from (self.moment(Time(0, blocks, 0), forward=False) for blocks in range(self.stages))
            every = [self.rounds - one for one in range(rounds, 0, -1)] if late else range(structure(self.rounds))
            yield from (
                self.moment(Time(one, blocks, passes), forward=forward)
                for one in every
                for blocks in range(self.stages)
                for passes in corners
            )


def events(layout: Layout, device: Size, microbatches: Size, *, reduces: bool = False, reshards: bool = False) -> Sequence[Moment] | None:
    """Return the moments of a device that matter, by its number in the pipeline; None for a schedule without a closed form.

    The first one is the first with most microbatches in flight. ``reduces``: each stage reduces its gradients after its last pass.
    ``reshards``: a stage frees its weights after each forward pass.
    """
    count, after = layout.pipeline_parallel, layout.pipeline_parallel - 1 - device
    if layout.virtual_stages == 1 and layout.schedule in ("gpipe", "1f1b"):
        found = _of_one_stage(microbatches, microbatches if layout.schedule == "gpipe" else after, reshards=reshards)
        return (*found, *([Moment(Pass("reduce", 0), (0,), (microbatches,), reduced=(False,))] if reduces else []))
    if layout.schedule == "interleaved" and not reshards and microbatches == microbatches // count * count:
        made = Interleaved(layout.virtual_stages, count, microbatches // count, 2 * after, reduces)
        ends = [made.reduction(blocks) for blocks in range(made.stages)] if reduces else []
        return (*dict.fromkeys(made.moments()), *ends)
    return None


def gathering(layout: Layout, microbatches: Size) -> Size | None:
    """Return how many passes gather weights that are freed after each forward pass: those that no backward pass precedes.

    None for a schedule without a closed form.
    """
    return microbatches + 1 if layout.virtual_stages == 1 and layout.schedule in ("gpipe", "1f1b") else None


def _of_one_stage(microbatches: Size, before: Size, *, reshards: bool) -> Iterator[Moment]:
    """Yield the moments of a device with one stage, which runs ``before`` microbatches forward, and then one each way in turn.

    If it reshards, a pass gathers weights unless it follows a backward one: all at first, and later backward ones in turn.
    """
    last = microbatches - 1
    before = min(last, before)
    turn = last - before  # the backward pass after the last forward one
    yield Moment(Pass("forward", 0, reshards), (before,), (0,))
    yield from [Moment(Pass("forward", 0), (before,), (turn,))] if turn >= 1 else []
    yield Moment(Pass("backward", 0, reshards), (before,), (0,))
    if turn >= 1:
        yield Moment(Pass("backward", 0, reshards), (before,), (turn,))
    if before >= 1:
        yield Moment(Pass("backward", 0), (before - 1,), (turn + 1,))
        yield Moment(Pass("backward", 0), (0,), (last,))
