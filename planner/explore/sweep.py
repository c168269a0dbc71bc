"""``planner sweep``: metrics over a grid of settings, exact at every point.

Batch sizes and sequence lengths are evaluated at once, from one trace over symbols; each combination of other settings has its own trace.
In a grid of layouts, other sizes are arrays, too (layouts.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, cast

from planner import capacity
from planner.capacity.symbolic import Values, values_at
from planner.explore.axes import MOST, Axis
from planner.explore.table import ALWAYS, AT_ONCE, METRICS, STEP, Load, Piece, Progress, Sweep, SweepError, missing, no_progress
from planner.spec.override import clash
from planner.spec.records import Spec
from planner.trace.sizes import Size, evaluate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Block:
    """The points with the same settings except B and n: every batch size with every sequence length."""

    settings: tuple[int | str, ...]  # of the other axes
    batch_sizes: tuple[int, ...]
    sequence_lengths: tuple[int, ...]
    sizes: Mapping[str, Size]  # metrics over B and n, evaluated when they are read: a grid may be larger than the memory

    @property
    def points(self) -> int:
        """The number of points."""
        return len(self.batch_sizes) * len(self.sequence_lengths)

    def at(self, metric: str, batch_size: int, sequence_length: int) -> int:
        """Return a metric at a point."""
        return evaluate(self.sizes[metric], {"B": batch_size, "n": sequence_length})

    def pieces(self) -> Iterator[Piece]:
        """Yield the settings and the metrics, some points at once, n varying fastest."""
        for first in range(0, self.points, AT_ONCE):
            B, n = _points(self.batch_sizes, self.sequence_lengths, first, min(first + AT_ONCE, self.points))
            found = [cast("Values", values) for values in values_at(self.sizes.values(), B, n)]
            yield [*self.settings, *(values if isinstance(values, int) else values.tolist() for values in (B, n, *found))]


@dataclass(frozen=True, slots=True)
class Steps(Sweep):
    """A grid of batch sizes and sequence lengths for each combination of other settings, in the order of the other axes."""

    blocks: tuple[Block, ...]

    @property
    def points(self) -> int:
        """The number of points."""
        return sum(block.points for block in self.blocks)

    def at(self, metric: str, point: Mapping[str, int | str]) -> int:
        """Return a metric at a point."""
        *settings, B, n = (axis.values.index(point[axis.key]) if axis.key in point else 0 for axis in self.axes)
        number = 0
        for axis, place in zip(self.axes, settings, strict=False):
            number = number * len(axis.values) + place
        block = self.blocks[number]
        return block.at(metric, block.batch_sizes[B], block.sequence_lengths[n])

    def pieces(self) -> Iterator[Piece]:
        """Yield the columns of some points at once."""
        for block in self.blocks:
            yield from block.pieces()


def sweep(load: Load, axes: Sequence[Axis], progress: Progress = no_progress, *, metric: str = ALWAYS[0]) -> Sweep:
    """Plan the base scenario of a spec, which ``load`` returns, for each combination of the axes but B and n.

    ``metric`` is evaluated in addition to ``ALWAYS``. Raises SweepError for a grid that is too large or exceeds the spec's positions, for
    a metric without a value, and for axes that set the same value; SpecError if the spec is invalid anywhere.
    """
    if twice := clash(axis.key for axis in axes):
        raise SweepError(f"{twice}; give all its values at once")
    metrics = tuple(dict.fromkeys((*ALWAYS, metric)))
    step = {axis.key: axis for axis in axes if axis.key in STEP}
    others = tuple(axis for axis in axes if axis.key not in STEP)
    points = prod(len(axis.values) for axis in axes)
    for axis in axes:
        if axis.key in STEP and not (axis.is_numeric and all(0 < int(value) < 2**63 for value in axis.values)):
            raise SweepError(f"{axis.key} must be a list of positive integers below 2^63")
    if points > MOST:
        raise SweepError(f"the grid has {points:,} points; the limit is {MOST:,}")
    if any(axis.key.startswith(("cluster", "layout")) for axis in axes):
        from planner.explore import layouts

        return layouts.sweep(load, others, step, metrics, progress)
    blocks: list[Block] = []
    name = ""
    omits: tuple[str, ...] = ()
    plans = points // prod(len(axis.values) for axis in step.values())
    for settings in product(*(axis.values for axis in others)):
        overrides = [f"{axis.key}={value}" for axis, value in zip(others, settings, strict=True)]
        spec = load(overrides)
        name, omits = spec.name, spec.omits
        blocks.append(_block(spec, settings, step, metrics))
        progress(len(blocks), plans)
    own = blocks[0].batch_sizes, blocks[0].sequence_lengths
    return Steps(name, metrics, (*others, *(Axis(key, values) for key, values in zip(STEP, own, strict=True))), omits, tuple(blocks))


def _block(spec: Spec, settings: tuple[int | str, ...], step: dict[str, Axis], metrics: tuple[str, ...]) -> Block:
    import numpy as np

    base = spec.scenarios[0]
    formulas = capacity.step_formulas(spec, base)
    own = dict(zip(STEP, (base.training.batch_size, base.training.sequence_length), strict=True))
    batch_sizes, lengths = (tuple(map(int, step[key].values)) if key in step else (own[key],) for key in STEP)
    try:
        formulas.at(np.array([max(batch_sizes)]), np.array([max(lengths)]))  # no other point fails if this one does not
    except ValueError as error:
        raise SweepError(str(error)) from None
    sizes: dict[str, Size] = {}
    for metric in metrics:
        size = formulas.size(METRICS[metric])
        if size is None:
            raise missing(spec, metric)
        sizes[metric] = size
    return Block(settings, batch_sizes, lengths, sizes)


def _points(batch_sizes: tuple[int, ...], lengths: tuple[int, ...], first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return B and n of some points, n varying fastest."""
    import numpy as np

    numbers = np.arange(first, end)
    return np.array(batch_sizes, dtype=np.int64)[numbers // len(lengths)], np.array(lengths, dtype=np.int64)[numbers % len(lengths)]
