"""The ledger of a training step: bytes that are alive beside the model states and the inputs, and the moments that may be the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.capacity.figures import Phase
from planner.trace.sizes import Size, ceil_div, exceeds_one


class Moment(NamedTuple):
    """Bytes alive while an operator runs."""

    phase: Phase
    operator: str
    bytes: Size


@dataclass(slots=True)
class Alive:
    """Bytes that are alive now, and all moments so far. ``block``: bytes that the allocator rounds each tensor up to."""

    block: int = 1
    bytes: Size = 0
    moments: list[Moment] = field(default_factory=list)
    after_forward: Size = 0
    after_backward: Size = 0

    def size(self, tensor_bytes: Size) -> Size:
        """Return the bytes that the allocator gives to a tensor."""
        return tensor_bytes if self.block == 1 else ceil_div(tensor_bytes, self.block) * self.block

    def add(self, size: Size) -> None:
        """Let more bytes, or with a negative size fewer, be alive from now on."""
        self.bytes = self.bytes + size

    def note(self, phase: Phase, operator: str, temporary: Size = 0) -> None:
        """Record the moment: what is alive, and what the operator's kernels need while they run."""
        self.moments.append(Moment(phase, operator, self.bytes + temporary))

    def add_other_copies(self, bytes_before: Size, first_moment: int, count: Size) -> None:
        """Extend one walked copy of equal layers to all: each leaves behind as much as the walked one.

        The bytes grow or shrink evenly from copy to copy, so that only the first one and the last can be the peak. The last one has the
        moments of the walked one, plus what all others left behind.
        """
        others = (self.bytes - bytes_before) * (count - 1)
        self.moments += [Moment(moment.phase, moment.operator, moment.bytes + others) for moment in self.moments[first_moment:]]
        self.bytes = self.bytes + others

    def free_in_last_copy(self, freed: Sequence[tuple[int, Size]], copies: int, count: Size) -> None:
        """Free bytes from a moment of the walked copy on: in its last copy, and in itself if it is the only one.

        ``freed`` pairs the moment with the bytes. The walked copy and the last one have the latest ``copies`` moments each.
        """
        for moment, size in freed:
            for number in range(moment, len(self.moments) - copies):
                walked, last = self.moments[number], self.moments[number + copies]
                self.moments[number] = walked._replace(bytes=walked.bytes - size * (1 - exceeds_one(count)))
                self.moments[number + copies] = last._replace(bytes=last.bytes - size)
            self.bytes = self.bytes - size

    def count_once(self, added: Sequence[tuple[int, Size]], copies: int, count: Size) -> None:
        """Take off what the walked copy alone adds, such as a gradient that waits for the other copies to add to it in place.

        ``added`` pairs the moment from which it is there in the walked copy with its bytes. In the last copy it is there from the start,
        beside what the copy itself makes for a time.
        """
        for moment, size in added:
            for number in range(len(self.moments) - copies, len(self.moments)):
                beside = exceeds_one(count) if number - copies < moment else 0
                self.moments[number] = self.moments[number]._replace(bytes=self.moments[number].bytes - size * (count - 1 - beside))
            self.bytes = self.bytes - size * (count - 1)
