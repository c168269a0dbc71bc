"""The memory timeline of a training step: allocated bytes besides model states and inputs, and the samples that may be the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from planner.capacity.figures import Phase
from planner.trace.sizes import Size, ceil_div, exceeds_one, total


@dataclass(slots=True)
class MemorySample:
    """Allocated bytes while an operator runs, as parts that are added on first use: few samples of symbols are ever read."""

    phase: Phase
    operator: str
    parts: list[Size]

    @property
    def bytes(self) -> Size:
        """The sum of the parts."""
        if len(self.parts) > 1:
            self.parts = [total(self.parts)]
        return self.parts[0]

    def plus(self, size: Size) -> MemorySample:
        """Return this sample with further bytes."""
        return MemorySample(self.phase, self.operator, [*self.parts, size])


class Place(NamedTuple):
    """A boundary of a unit in one of the passes."""

    unit: str
    starts: bool
    forward: bool


class Change(NamedTuple):
    """Bytes that are allocated at a boundary, negative ones freed, and by what."""

    bytes: Size
    why: str


Changes: TypeAlias = Mapping[Place, Sequence[Change]]
"""What happens at boundaries, in order."""


@dataclass(slots=True)
class MemoryTimeline:
    """Currently allocated bytes, and all samples so far. ``block``: bytes to a multiple of which the allocator rounds each tensor up.

    ``around``: what devices that share weights allocate and free at boundaries.
    """

    block: int = 1
    around: Changes = field(default_factory=lambda: MappingProxyType({}))
    changes: list[Size] = field(default_factory=list)
    samples: list[MemorySample] = field(default_factory=list)
    after_forward: Size = 0
    after_backward: Size = 0

    @property
    def bytes(self) -> Size:
        """The currently allocated bytes."""
        self.changes = [total(self.changes)]
        return self.changes[0]

    def size(self, tensor_bytes: Size) -> Size:
        """Return the bytes that the allocator uses for a tensor."""
        return tensor_bytes if self.block == 1 else ceil_div(tensor_bytes, self.block) * self.block

    def add(self, size: Size) -> None:
        """Allocate bytes, or free them if the size is negative."""
        self.changes.append(size)

    def sample(self, phase: Phase, operator: str, temporary: Size = 0) -> None:
        """Record a sample: allocated bytes plus the temporary bytes of the operator's kernels."""
        self.samples.append(MemorySample(phase, operator, [self.bytes, temporary]))

    def pass_boundary(self, place: Place, phase: Phase) -> None:
        """Apply the changes at a boundary, each with a sample."""
        for change in self.around.get(place, ()):
            self.add(change.bytes)
            self.sample(phase, f"{change.why} at {place.unit}")

    def add_other_copies(self, bytes_before: Size, first_sample: int, count: Size) -> None:
        """Extend one traced copy of equal layers to all. Each copy changes the allocated bytes by the same amount.

        So only the first and the last copy can be the peak. The last one has the samples of the traced one plus the change by all others.
        """
        others = (self.bytes - bytes_before) * (count - 1)
        self.samples += [sample.plus(others) for sample in self.samples[first_sample:]]
        self.add(others)

    def free_in_last_copy(self, freed: Sequence[tuple[int, Size]], copies: int, count: Size) -> None:
        """Free bytes in the last copy from a sample on, and in the traced copy if there is no other.

        ``freed`` pairs the number of the sample in the traced copy with the bytes. Each of the two has ``copies`` of the latest samples.
        """
        for first, size in freed:
            for number in range(first, len(self.samples) - copies):
                self._subtract(number, size * (1 - exceeds_one(count)))
                self._subtract(number + copies, size)
            self.add(-size)

    def count_once(self, added: Sequence[tuple[int, Size]], copies: int, count: Size) -> None:
        """Subtract what only the traced copy allocates, e.g. a gradient to which the other copies add in place.

        ``added`` pairs the number of the sample from which it is allocated with its bytes. In the last copy it is allocated from the start,
        besides what that copy itself allocates temporarily.
        """
        for first, size in added:
            for number in range(len(self.samples) - copies, len(self.samples)):
                self._subtract(number, size * (count - 1 - (exceeds_one(count) if number - copies < first else 0)))
            self.add(size * (1 - count))

    def _subtract(self, number: int, size: Size) -> None:
        self.samples[number].parts.append(-size)
