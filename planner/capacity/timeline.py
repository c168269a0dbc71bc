"""The memory timeline of a training step: allocated bytes besides model states and inputs, and the samples that may be the peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, cast

from planner.capacity.figures import PHASES, Phase
from planner.trace.dominance import Comparison, largest, weight
from planner.trace.sizes import Size, ceil_div, evaluate, exceeds_one, total
from planner.trace.tensor import Tensor

PASSES = tuple(phase for phase in PHASES if phase != "optimizer")


class MemorySample(NamedTuple):
    """Allocated bytes while an operator runs: the sum of the first ``changes`` of the timeline, and of further sizes.

    They are added on first use: few samples of symbols are ever read.
    """

    phase: Phase
    operator: str
    changes: int
    further: list[Size]


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
    changes: list[Size] = field(default_factory=list)  # of the allocated bytes
    samples: list[MemorySample] = field(default_factory=list)
    of_forward: int = 0  # changes
    _highest: list[tuple[Phase, str, Size]] | None = None  # once it is known

    @property
    def after_forward(self) -> Size:
        """Allocated bytes after the forward pass."""
        return total(self.changes[: self.of_forward])

    @property
    def after_backward(self) -> Size:
        """Allocated bytes after the backward pass."""
        return total(self.changes)

    def size(self, tensor_bytes: Size) -> Size:
        """Return the bytes that the allocator uses for a tensor."""
        return tensor_bytes if self.block == 1 else ceil_div(tensor_bytes, self.block) * self.block

    def gradient(self, tensor: Tensor) -> Size:
        """Return the bytes that the allocator uses for a tensor's gradient."""
        return self.size(tensor.bytes)

    def add(self, size: Size) -> None:
        """Allocate bytes, or free them if the size is negative."""
        self.changes.append(size)

    def since(self, change: int) -> Size:
        """Return the bytes allocated since a change, less those freed."""
        return total(self.changes[change:])

    def sample(self, phase: Phase, operator: str, temporary: Size = 0) -> None:
        """Record a sample: allocated bytes plus the temporary bytes of the operator's kernels."""
        self.samples.append(MemorySample(phase, operator, len(self.changes), [temporary]))

    def pass_boundary(self, place: Place, phase: Phase) -> None:
        """Apply the changes at a boundary, each with a sample."""
        for change in self.around.get(place, ()):
            self.add(change.bytes)
            self.sample(phase, f"{change.why} at {place.unit}")

    def add_other_copies(self, left: Size, first_sample: int, count: Size) -> None:
        """Extend one traced copy of equal layers to all. Each copy leaves the same bytes allocated.

        So only the first and the last copy can be the peak. The last one has the samples of the traced one plus the change by all others.
        """
        others = left * (count - 1)
        self.add_samples(self.samples[first_sample:], others)
        self.add(others)

    def add_samples(self, samples: Sequence[MemorySample], size: Size) -> None:
        """Record samples once more, with further bytes."""
        self.samples += [sample._replace(further=[*sample.further, size]) for sample in samples]

    def free_in_last_copy(self, freed: Sequence[tuple[int, Size]], copies: int, count: Size) -> None:
        """Free bytes in the last copy from a sample on, and in the traced copy if there is no other.

        ``freed`` pairs the number of the sample in the traced copy with the bytes. Each of the two has ``copies`` of the latest samples.
        """
        for first, size in freed:
            without_others = size * (exceeds_one(count) - 1)
            for number in range(first, len(self.samples) - copies):
                self.samples[number].further.append(without_others)
                self.samples[number + copies].further.append(-size)
            self.add(-size)

    def count_once(self, added: Sequence[tuple[int, Size]], copies: int, count: Size) -> None:
        """Subtract what only the traced copy allocates, e.g. a gradient to which the other copies add in place.

        ``added`` pairs the number of the sample from which it is allocated with its bytes. In the last copy it is allocated from the start,
        besides what that copy itself allocates temporarily.
        """
        for first, size in added:
            of_others = size * (1 - count)
            before = of_others + size * exceeds_one(count)
            for number in range(len(self.samples) - copies, len(self.samples)):
                self.samples[number].further.append(before if number - copies < first else of_others)
            self.add(of_others)

    def sizes(self, samples: Sequence[MemorySample]) -> list[Size]:
        """Return the bytes of samples."""
        allocated: dict[int, Size] = {0: 0}
        previous = 0
        for change in sorted({sample.changes for sample in samples}):
            allocated[change] = total([allocated[previous], *self.changes[previous:change]])
            previous = change
        return [total([allocated[sample.changes], *sample.further]) for sample in samples]

    def highest(self) -> list[tuple[Phase, str, Size]]:
        """Return the operator and the bytes of the highest sample of each phase; no operator if that depends on symbols."""
        if self._highest is None:
            self._highest = self._found_highest()
        return self._highest

    def _found_highest(self) -> list[tuple[Phase, str, Size]]:
        of_phases = ((phase, [sample for sample in self.samples if sample.phase == phase]) for phase in PASSES)
        samples: dict[Phase, list[MemorySample]] = {phase: some for phase, some in of_phases if some}  # some stages have no loss
        further = {id(size): size for sample in self.samples for size in sample.further}
        if not all(isinstance(size, int) for size in (*self.changes, *further.values())):
            return [(phase, "", largest(self.sizes(found))) for phase, found in self._undominated(samples, further)]
        allocated = list(accumulate(cast("list[int]", self.changes), initial=0))

        def size(sample: MemorySample) -> int:
            return allocated[sample.changes] + sum(cast("list[int]", sample.further))

        tops = [max(found, key=size) for found in samples.values()]
        return [(top.phase, top.operator, size(top)) for top in tops]

    def highest_of(self, phase: Phase, values: Mapping[str, int], operator: str = "") -> tuple[str, Size]:
        """Return the operator and the bytes of a phase's highest sample for values of the symbols.

        ``operator`` is that operator for integers, if known; the path of an operator can have symbols here.
        """
        samples = [sample for sample in self.samples if sample.phase == phase]
        name = operator.partition(" at ")[0]
        found = [sample for sample in samples if sample.operator == operator] or [one for one in samples if one.operator.startswith(name)]
        sizes = self.sizes(found)
        top = max(range(len(found)), key=lambda number: evaluate(sizes[number], values))
        return found[top].operator, sizes[top]

    def _undominated(
        self, samples: Mapping[Phase, list[MemorySample]], further: Mapping[int, Size]
    ) -> Iterator[tuple[Phase, list[MemorySample]]]:
        """Yield the samples of each phase that may be the highest. ``further``: sizes of all samples by their identity."""
        weights = {number: weight(size) for number, size in further.items()}
        beside = max(sum(weights[id(size)] for size in sample.further) for sample in self.samples)
        comparison = Comparison(sum(map(weight, self.changes)) + beside)
        allocated = list(accumulate(map(comparison.packed, self.changes), initial=0))
        packed = {number: comparison.packed(size) for number, size in further.items()}
        for phase, found in samples.items():
            sums = [allocated[sample.changes] + sum([packed[id(size)] for size in sample.further]) for sample in found]
            yield phase, [found[number] for number in comparison.undominated(sums)]
