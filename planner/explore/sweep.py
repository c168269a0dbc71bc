"""``planner sweep``: metrics over a grid of settings, exact at every point.

Batch sizes and sequence lengths are evaluated at once, from one trace over symbols; each combination of other settings has its own trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, repeat
from math import prod
from typing import TYPE_CHECKING, cast

from planner import capacity
from planner.capacity.figures import Plan
from planner.capacity.symbolic import Values, values_at
from planner.explore.axes import MOST, Axis
from planner.report.columns import CLAIMABLE
from planner.report.csv import safe
from planner.spec.override import clash
from planner.spec.records import Spec
from planner.trace.sizes import Size, evaluate

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

AT_ONCE = 20_000  # points evaluated at once, which limits the memory
_STEP = ("training.batch_size", "training.sequence_length")
METRICS: Mapping[str, Callable[[Plan], int | None]] = {
    **{name: cast("Callable[[Plan], int | None]", column.read) for name, column in CLAIMABLE.items() if f"training.{name}" not in _STEP},
    "train_flops_per_step": lambda plan: plan.flops.chosen.train_per_step,
}
"""What can be swept: each integer column of capacity.csv, and the FLOPs of a step."""
ALWAYS = (
    "params_total", "model_states_bytes", "activations_bytes", "logits_bytes", "peak_bytes",
    "forward_flops_per_token", "train_flops_per_token", "train_flops_per_step",
)  # fmt: skip
"""The metrics that each sweep.csv has."""

Load = Callable[[Sequence[str]], Spec]  # the spec with overrides such as "model.n_layers=24"; raises SpecError
Progress = Callable[[int, int], None]  # points done, and of how many


class SweepError(ValueError):
    """Why a grid cannot be evaluated, and the fix."""


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

    def pieces(self) -> Iterator[list[list[int] | int]]:
        """Yield batch sizes, sequence lengths and metrics, some points at once, n varying fastest; an integer for one value for all."""
        for first in range(0, self.points, AT_ONCE):
            B, n = _points(self.batch_sizes, self.sequence_lengths, first, min(first + AT_ONCE, self.points))
            found = [cast("Values", values) for values in values_at(self.sizes.values(), B, n)]
            yield [values if isinstance(values, int) else values.tolist() for values in (B, n, *found)]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid evaluated: blocks in the order of the axes that are neither B nor n."""

    model: str
    metrics: tuple[str, ...]
    others: tuple[Axis, ...]
    blocks: tuple[Block, ...]
    omits: tuple[str, ...] = ()  # parts of the source model that no metric counts

    @property
    def points(self) -> int:
        """The number of points."""
        return sum(block.points for block in self.blocks)

    def to_frame(self) -> pd.DataFrame:
        """Return the columns of sweep.csv, a row per point, every integer exact."""
        from planner.report.frame import frame

        return frame(dict(zip(columns(self), zip(*cells(self), strict=True), strict=True)))


def no_progress(_done: int, _of: int) -> None:
    """Report no progress."""


def sweep(load: Load, axes: Sequence[Axis], progress: Progress = no_progress, *, metric: str = ALWAYS[0]) -> Sweep:
    """Plan the base scenario of a spec, which ``load`` returns, for each combination of the axes but B and n.

    ``metric`` is evaluated in addition to ``ALWAYS``. Raises SweepError for a grid that is too large or exceeds the spec's positions, for
    a metric without a value, and for axes that set the same value; SpecError if the spec is invalid anywhere.
    """
    if twice := clash(axis.key for axis in axes):
        raise SweepError(f"{twice}; give all its values at once")
    metrics = tuple(dict.fromkeys((*ALWAYS, metric)))
    step = {axis.key: axis for axis in axes if axis.key in _STEP}
    others = tuple(axis for axis in axes if axis.key not in _STEP)
    points = prod(len(axis.values) for axis in axes)
    for axis in axes:
        if axis.key in _STEP and not (axis.is_numeric and all(0 < int(value) < 2**63 for value in axis.values)):
            raise SweepError(f"{axis.key} must be a list of positive integers below 2^63")
    if points > MOST:
        raise SweepError(f"the grid has {points:,} points; the limit is {MOST:,}")
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
    return Sweep(name, metrics, others, tuple(blocks), omits)


def _block(spec: Spec, settings: tuple[int | str, ...], step: dict[str, Axis], metrics: tuple[str, ...]) -> Block:
    import numpy as np

    base = spec.scenarios[0]
    formulas = capacity.step_formulas(spec, base)
    own = dict(zip(_STEP, (base.training.batch_size, base.training.sequence_length), strict=True))
    batch_sizes, lengths = (tuple(map(int, step[key].values)) if key in step else (own[key],) for key in _STEP)
    try:
        formulas.at(np.array([max(batch_sizes)]), np.array([max(lengths)]))  # no other point fails if this one does not
    except ValueError as error:
        raise SweepError(str(error)) from None
    sizes: dict[str, Size] = {}
    for metric in metrics:
        size = formulas.size(METRICS[metric])
        if size is None:
            missing = "training.tokens" if metric.startswith("train_") else "a cluster"
            raise SweepError(f"{spec.name} has no value of {metric}; write {missing} in the spec")
        sizes[metric] = size
    return Block(settings, batch_sizes, lengths, sizes)


def _points(batch_sizes: tuple[int, ...], lengths: tuple[int, ...], first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return B and n of some points, n varying fastest."""
    import numpy as np

    numbers = np.arange(first, end)
    return np.array(batch_sizes, dtype=np.int64)[numbers // len(lengths)], np.array(lengths, dtype=np.int64)[numbers % len(lengths)]


def columns(made: Sweep) -> tuple[str, ...]:
    """Return the names of a point's settings and metrics."""
    return (*(axis.name for axis in made.others), "batch_size", "sequence_length", *made.metrics)


def csv(made: Sweep, progress: Progress = no_progress) -> Iterator[str]:
    """Yield the grid as CSV in pieces, a row per point, integers only; a last column has what the model omits, if anything."""
    yield ",".join((*columns(made), *(["omits"] if made.omits else []))) + "\n"
    omits = f",{_quoted('; '.join(made.omits))}".replace("%", "%%") if made.omits else ""
    done, of = 0, made.points
    for block in made.blocks:
        lead = "".join(f"{_quoted(value)}," for value in block.settings).replace("%", "%%")
        for piece in block.pieces():
            figures = ",".join(str(one) if isinstance(one, int) else "%d" for one in piece)
            line = f"{lead}{figures}{omits}\n"
            rows = [line % cells for cells in zip(*(one for one in piece if not isinstance(one, int)), strict=True)]
            yield "".join(rows)
            done += len(rows)
            progress(done, of)


def cells(made: Sweep) -> Iterator[tuple[int | str, ...]]:
    """Yield the cells of each point."""
    for block in made.blocks:
        for piece in block.pieces():
            columns = (repeat(one) if isinstance(one, int) else one for one in piece)
            yield from ((*block.settings, *point) for point in zip(*columns, strict=False))


def _quoted(value: int | str) -> str:
    text = safe(str(value))
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') else text
