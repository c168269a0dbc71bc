"""A grid evaluated: its columns, and its rows as CSV and as tuples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias, cast

from planner.capacity.figures import Plan
from planner.explore.axes import Axis
from planner.report.columns import CLAIMABLE
from planner.report.csv import safe
from planner.spec.records import Spec

if TYPE_CHECKING:
    import pandas as pd

AT_ONCE = 20_000  # points evaluated at once, which limits the memory
STEP = ("training.batch_size", "training.sequence_length")
METRICS: Mapping[str, Callable[[Plan], int | None]] = {
    **{name: cast("Callable[[Plan], int | None]", column.read) for name, column in CLAIMABLE.items() if f"training.{name}" not in STEP},
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


Cell: TypeAlias = "int | str | None"  # None: no value
Piece: TypeAlias = "list[Cell | Sequence[Cell]]"
"""Columns of some points, each a list, or one cell for all."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid evaluated. ``axes`` has those of batch sizes and sequence lengths last."""

    model: str
    metrics: tuple[str, ...]
    axes: tuple[Axis, ...]
    omits: tuple[str, ...]  # parts of the source model that no metric counts

    @property
    @abstractmethod
    def points(self) -> int:
        """The number of points."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a point's settings and metrics."""
        return (*(axis.name for axis in self.axes), *self.metrics)

    @abstractmethod
    def at(self, metric: str, point: Mapping[str, int | str]) -> int | None:
        """Return a metric at a point, by the axes' keys; an axis has its first value if it is not there. None at an impossible point."""

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """Yield the columns of some points at once, in the order of the axes, the last one varying fastest."""

    def to_frame(self) -> pd.DataFrame:
        """Return the columns of sweep.csv, a row per point, every integer exact."""
        from planner.report.frame import frame

        return frame(dict(zip(self.columns, zip(*cells(self), strict=True), strict=True)))


def missing(spec: Spec, metric: str) -> SweepError:
    """Return the error of a metric that a spec has no value of."""
    needed = "training.tokens" if metric.startswith("train_") else "a cluster"
    return SweepError(f"{spec.name} has no value of {metric}; write {needed} in the spec")


def no_progress(_done: int, _of: int) -> None:
    """Report no progress."""


def csv(made: Sweep, progress: Progress = no_progress) -> Iterator[str]:
    """Yield the grid as CSV in pieces, a row per point; a last column has what the model omits, if anything."""
    yield ",".join((*made.columns, *(["omits"] if made.omits else []))) + "\n"
    omits = f",{_quoted('; '.join(made.omits))}".replace("%", "%%") if made.omits else ""
    done, of = 0, made.points
    for piece in made.pieces():
        lists = [one for one in piece if isinstance(one, list)]
        integers = [set(map(type, one)) == {int} for one in lists]
        forms = iter("%d" if is_integer else "%s" for is_integer in integers)
        figures = (next(forms) if isinstance(one, list) else _quoted(cast("Cell", one)).replace("%", "%%") for one in piece)
        line = f"{','.join(figures)}{omits}\n"
        columns = (one if is_integer else map(_quoted, one) for one, is_integer in zip(lists, integers, strict=True))
        rows = [line % point for point in zip(*columns, strict=True)]
        yield "".join(rows)
        done += len(rows)
        progress(done, of)


def cells(made: Sweep) -> Iterator[tuple[Cell, ...]]:
    """Yield the cells of each point."""
    for piece in made.pieces():
        columns = (one if isinstance(one, list) else repeat(cast("Cell", one)) for one in piece)
        yield from zip(*columns, strict=False)


def _quoted(value: Cell) -> str:
    text = safe(value) if isinstance(value, str) else "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') else text
