"""``planner sweep``: metrics over a grid of settings, exact at every point.

Batch sizes and sequence lengths are evaluated at once, from one trace over symbols; each combination of other settings has its own trace.
In a grid of layouts, other sizes are arrays, too (layouts.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, cast

from planner import capacity
from planner.capacity.symbolic import Values, values_at
from planner.explore.axes import MOST, Axis
from planner.explore.table import ALWAYS, AT_ONCE, METRICS, STEP, Load, Piece, Progress, Sweep, SweepError, missing, no_progress
from planner.spec.override import clash
from planner.spec.problems import SpecError
from planner.spec.records import Spec
from planner.trace.sizes import Size, evaluate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Block:
    """The points with the same settings except B and n: every batch size with every sequence length."""

    settings: tuple[int | str, ...]  # of the other axes
    step: tuple[tuple[int, ...], ...]  # batch sizes and sequence lengths
    sizes: Mapping[str, Size]  # metrics over B and n, evaluated when they are read: a grid may be larger than the memory

    @property
    def points(self) -> int:
        """The number of points."""
        return prod(map(len, self.step))

    def at(self, metric: str, batch_size: int, sequence_length: int) -> int:
        """Return a metric at a point."""
        return evaluate(self.sizes[metric], {"B": batch_size, "n": sequence_length})

    def pieces(self) -> Iterator[Piece]:
        """Yield the settings and the metrics, some points at once, n varying fastest."""
        for first in range(0, self.points, AT_ONCE):
            B, n = _points(self.step, first, min(first + AT_ONCE, self.points))
            found = [cast("Values", values) for values in values_at(self.sizes.values(), B, n)]
            yield [*self.settings, *(values if isinstance(values, int) else values.tolist() for values in (B, n, *found))]


@dataclass(frozen=True, slots=True)
class Steps(Sweep):
    """A grid of batch sizes and sequence lengths for each combination of other settings, in the order of the other axes.

    A combination has one block, or several if passes or operators depend on the batch size.
    """

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
        batches, lengths = (len(axis.values) for axis in self.axes[-len(STEP) :])
        place = (number * batches + B) * lengths + n
        for block in self.blocks:
            if place < block.points:
                break
            place -= block.points
        batch, length = divmod(place, len(block.step[1]))
        return block.at(metric, block.step[0][batch], block.step[1][length])

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
    if any(axis.key.startswith(("cluster", "layout")) for axis in axes) or _has_devices(load, axes):
        from planner.explore import layouts

        return layouts.sweep(load, others, step, metrics, progress)
    blocks: list[Block] = []
    plans = points // prod(len(axis.values) for axis in step.values())
    for done, settings in enumerate(product(*(axis.values for axis in others)), 1):
        blocks += _blocks(load, dict(zip((axis.key for axis in others), settings, strict=True)), step, metrics)
        progress(done, plans)
    spec = load(_overrides({axis.key: axis.values[0] for axis in axes}))
    last = (step.get(key, Axis(key, own)) for key, own in zip(STEP, blocks[0].step, strict=True))
    return Steps(spec.name, metrics, (*others, *last), spec.omits, tuple(blocks))


def _overrides(settings: Mapping[str, int | str]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def _has_devices(load: Load, axes: Sequence[Axis]) -> bool:
    """Return whether the spec has several devices: not every batch size and sequence length may be possible on them."""
    for settings in ({}, {axis.key: axis.values[0] for axis in axes}):
        with suppress(SpecError):
            layout = load(_overrides(settings)).scenarios[0].training.layout
            return layout is not None and layout.cluster.devices > 1
    return False


def _blocks(load: Load, settings: Mapping[str, int | str], step: Mapping[str, Axis], metrics: tuple[str, ...]) -> Iterator[Block]:
    """Yield the blocks of a combination of other settings."""
    spec = load(_overrides({**settings, **{key: axis.values[0] for key, axis in step.items()}}))
    training = spec.scenarios[0].training
    own = dict(zip(STEP, (training.batch_size, training.sequence_length), strict=True))
    groups = {key: [tuple(map(int, step[key].values)) if key in step else (value,)] for key, value in own.items()}
    apart: tuple[str, ...] = STEP[:1] if ("training", "global_batch_size") in spec.places else ()  # which determines the passes
    for key in STEP if training.offload_activations else apart:  # of tensors of 1024 bytes and more
        groups[key] = [(value,) for value in groups[key][0]]
    for B, n in product(*groups.values()):
        here = {key: sizes[0] for key, sizes in zip(STEP, (B, n), strict=True) if key in step}
        yield _block(load(_overrides({**settings, **here})), tuple(settings.values()), (B, n), metrics)
    load(_overrides({**settings, **{key: max(map(int, axis.values)) for key, axis in step.items()}}))  # raises if that is no valid spec


def _block(spec: Spec, settings: tuple[int | str, ...], step: tuple[tuple[int, ...], ...], metrics: tuple[str, ...]) -> Block:
    sizes = dict(zip(metrics, _sizes(spec, step, metrics), strict=True))
    if absent := [metric for metric, size in sizes.items() if size is None]:
        raise missing(spec, absent[0])
    return Block(settings, step, cast("Mapping[str, Size]", sizes))


def _sizes(spec: Spec, step: tuple[tuple[int, ...], ...], metrics: tuple[str, ...]) -> list[Size | None]:
    """Return metrics over B and n; of one point, its integers."""
    if prod(map(len, step)) == 1:
        plan = capacity.plan(spec, spec.scenarios[0])
        return [METRICS[metric](plan) for metric in metrics]
    import numpy as np

    formulas = capacity.step_formulas(spec, spec.scenarios[0])
    try:
        longest, most = (np.array([max(sizes)]) for sizes in reversed(step))
        formulas.at(most, longest)  # no other point fails if this one does not
    except ValueError as error:
        raise SweepError(str(error)) from None
    return [formulas.size(METRICS[metric]) for metric in metrics]


def _points(step: tuple[tuple[int, ...], ...], first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return B and n of some points, n varying fastest."""
    import numpy as np

    numbers, (batch_sizes, lengths) = np.arange(first, end), step
    return np.array(batch_sizes, dtype=np.int64)[numbers // len(lengths)], np.array(lengths, dtype=np.int64)[numbers % len(lengths)]
