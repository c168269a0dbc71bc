"""A grid of layouts: sizes are arrays, and each combination of other settings is read once. Impossible layouts have rows, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from planner.capacity.layout_symbols import SIZES as FIGURED
from planner.capacity.layout_symbols import data_degree, size_of
from planner.explore.axes import Axis
from planner.explore.table import AT_ONCE, METRICS, STEP, Load, Piece, Progress, Sweep, SweepError, missing
from planner.spec.possible import conditions, of_kind
from planner.spec.problems import SpecError
from planner.spec.records import Cluster, Layout, Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 10**6  # layouts, whose figures are in memory
TRIED = 100  # layouts of a combination of other settings, to find one that is possible
_OF_TRAINING = ("batch_size", "sequence_length", "gradient_accumulation", "global_batch_size")
_OF_LAYOUT = ("tensor_parallel", "pipeline_parallel", "virtual_stages", "context_parallel", "expert_parallel", "shard_degree")
SIZES: Mapping[str, str] = {
    "cluster.devices": "devices",
    **{f"layout.{name}": name for name in _OF_LAYOUT},
    **{f"training.{name}": name for name in _OF_TRAINING},
    "model.n_layers": "n_layers",
}
"""The settings that are arrays, by key."""
PER_NODE = cast("int", next(one.default for one in fields(Cluster) if one.name == "per_node"))

Settings: TypeAlias = Mapping[str, "int | str"]
Arrays: TypeAlias = "Mapping[str, NDArray[np.int64]]"


@dataclass(frozen=True, slots=True)
class Layouts(Sweep):
    """A grid of layouts: batch sizes and sequence lengths of points, their metrics, and why a point is impossible or not modeled."""

    step: tuple[NDArray[np.int64], ...]
    figures: tuple[NDArray[Any], ...]
    problems: Mapping[int, str]

    @property
    def points(self) -> int:
        """The number of points."""
        return len(self.step[0])

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a point's settings and metrics."""
        return (*super(Layouts, self).columns, "problem")

    def at(self, metric: str, point: Mapping[str, int | str]) -> int | None:
        """Return a metric at a point."""
        number = 0
        for axis in self.axes:
            number = number * len(axis.values) + (axis.values.index(point[axis.key]) if axis.key in point else 0)
        return None if number in self.problems else int(self.figures[self.metrics.index(metric)][number])

    def pieces(self) -> Iterator[Piece]:
        """Yield the columns of some points at once."""
        for first in range(0, self.points, AT_ONCE):
            numbers = np.arange(first, min(first + AT_ONCE, self.points))
            settings: list[list[int | str]] = [
                [axis.values[place] for place in places]
                for axis, places in zip(self.axes[: -len(STEP)], _places(self.axes, numbers), strict=False)
            ]
            wrong = [self.problems.get(number, "") for number in range(first, first + len(numbers))]
            figures = [column[numbers].tolist() for column in self.figures]
            for column in figures if any(wrong) else ():
                column[:] = [None if why else cell for why, cell in zip(wrong, column, strict=True)]
            yield [*settings, *(column[numbers].tolist() for column in self.step), *figures, wrong]


def sweep(load: Load, others: Sequence[Axis], step: Mapping[str, Axis], metrics: tuple[str, ...], progress: Progress) -> Layouts:
    """Evaluate a grid of layouts. Raises what planner.explore.sweep.sweep does; SpecError if no layout is possible."""
    given = (*others, *step.values())
    points = prod(len(axis.values) for axis in given)
    if points > MOST:
        raise SweepError(f"the grid has {points:,} layouts; the limit is {MOST:,}")
    axes = (*others, *(step.get(key, Axis(key, ("",))) for key in STEP))  # without values: the spec's own
    sizes = [axis for axis in given if axis.key in SIZES and axis.is_numeric and min(map(int, axis.values)) > 0]
    rest = [axis for axis in given if axis not in sizes]
    places = dict(zip((axis.key for axis in axes), _places(axes, np.arange(points)), strict=True))
    made = _Grid(load, metrics, points)
    combinations = list(product(*(range(len(axis.values)) for axis in rest)))
    for done, combination in enumerate(combinations, 1):
        chosen = dict(zip((axis.key for axis in rest), combination, strict=True))
        alike = np.ones(points, dtype=bool)
        for key, place in chosen.items():
            alike &= places[key] == place
        rows = np.flatnonzero(alike)
        made.evaluate(
            {axis.key: axis.values[chosen[axis.key]] for axis in rest},
            {axis.key: np.array(axis.values, dtype=np.int64)[places[axis.key][rows]] for axis in sizes},
            rows,
        )
        progress(done, len(combinations))
    if made.spec is None or len(made.problems) == points:
        refused = SweepError(f"no layout of the grid has a plan: {made.problems[points - 1]}")
        raise made.error if made.error and made.spec is None else refused
    own = (step.get(key, Axis(key, (int(column[0]),))) for key, column in zip(STEP, made.step, strict=True))
    return Layouts(made.spec.name, metrics, (*others, *own), made.spec.omits, tuple(made.step), tuple(made.figures), made.problems)


def _places(axes: Sequence[Axis], numbers: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the place of points in the values of each axis, the last one varying fastest."""
    stride = prod(len(axis.values) for axis in axes)
    for axis in axes:
        stride //= len(axis.values)
        yield numbers // stride % len(axis.values)


class _Grid:
    """The columns of a grid, filled by combinations of settings that are no sizes, one after the other."""

    def __init__(self, load: Load, metrics: tuple[str, ...], points: int) -> None:
        self.load, self.metrics = load, metrics
        self.step = [np.zeros(points, dtype=np.int64) for _ in STEP]
        self.figures: list[NDArray[Any]] = [np.zeros(points, dtype=np.int64) for _ in metrics]
        self.problems: dict[int, str] = {}
        self.spec: Spec | None = None
        self.error: SpecError | None = None  # of the first layout that is not possible

    def evaluate(self, settings: Settings, values: Arrays, rows: NDArray[np.int64]) -> None:
        """Evaluate the points ``rows``, with settings, and sizes by their keys."""
        outside = {key: value for key, value in settings.items() if not key.startswith(("cluster", "layout"))}
        base = self.read(outside)
        wrong = _problems(base, _sizes(base, values, len(rows))) if base else [""] * len(rows)
        spec = self.possible(settings, values, wrong)
        if spec is None:
            why = self.error.problems[0].message if self.error else ""
            self.problems |= {int(row): own or why for row, own in zip(rows, wrong, strict=True)}
            return
        self.spec, scenario = spec, spec.scenarios[0]
        sizes = _sizes(spec, values, len(rows))
        for column, key in zip(self.step, STEP, strict=True):
            column[rows] = sizes[SIZES[key]]
        wrong = _problems(spec, sizes, of_this_kind=True)
        fine = np.flatnonzero(np.array([not why for why in wrong]))
        self.problems |= {int(rows[number]): why for number, why in enumerate(wrong) if why}
        if not len(fine):
            return
        grid = {name: column[fine] for name, column in sizes.items() if name in FIGURED}
        if "model.n_layers" not in values:
            grid.pop("n_layers")
        from planner.capacity import layout_grid

        made = layout_grid.evaluate(spec, scenario, grid, [METRICS[name] for name in self.metrics])
        self.problems |= {int(rows[fine[number]]): why for number, why in made.refused.items()}
        for place, (name, figures) in enumerate(zip(self.metrics, made.figures, strict=True)):
            if figures is None and len(made.refused) < len(fine):
                raise missing(spec, name)
            if figures is not None:
                known = self.figures[place]
                self.figures[place] = known.astype(object) if figures.dtype == object else known
                self.figures[place][rows[fine]] = figures

    def possible(self, settings: Settings, values: Arrays, wrong: Sequence[str]) -> Spec | None:
        """Return the spec of the first possible layout, None if there is none; one layout of each kind is tried, then others."""
        kinds = np.stack([np.minimum(column, 2) for column in (np.array([why != "" for why in wrong]), *values.values())])
        _, firsts = np.unique(kinds, axis=1, return_index=True)
        others = islice((number for number, why in enumerate(wrong) if not why), TRIED)
        for number in [*sorted(firsts, key=lambda number: (wrong[number] != "", number)), *others][:TRIED]:
            if spec := self.read({**settings, **{key: int(column[number]) for key, column in values.items()}}):
                return spec
        return None

    def read(self, settings: Settings) -> Spec | None:
        """Return the spec with settings; None if it is not valid."""
        try:
            return self.load([f"{key}={value}" for key, value in settings.items()])
        except SpecError as error:
            self.error = self.error or error
            return None


def _sizes(spec: Spec, values: Arrays, count: int) -> dict[str, NDArray[np.int64]]:
    """Return all sizes of layouts, those of the spec where no other ones are given, or what follows from others."""
    training = spec.scenarios[0].training
    if training.layout is None:
        training = replace(training, layout=Layout(Cluster("", 0, 1)))
    own = {name: size_of(name, spec.model, training) for name in FIGURED}
    degree, written = data_degree(own), {path[-1] for path in spec.places if path[:1] == ("training",)}
    own["global_batch_size"] = own["batch_size"] * own["gradient_accumulation"] * degree if "global_batch_size" in written else 0
    steps = (
        own["tokens"] // (own["batch_size"] * own["sequence_length"] * own["gradient_accumulation"] * degree) if "steps" in written else 0
    )
    given = {SIZES[key]: column for key, column in values.items()}
    sizes = {name: given.get(name, np.full(count, size, dtype=np.int64)) for name, size in own.items()}
    together = sizes["batch_size"] * data_degree(sizes)
    if sizes["global_batch_size"].any():
        sizes["gradient_accumulation"] = sizes["global_batch_size"] // together.clip(1)
    if steps:
        sizes["tokens"] = steps * together * sizes["gradient_accumulation"] * sizes["sequence_length"]
    return sizes


def _problems(spec: Spec, sizes: Arrays, *, of_this_kind: bool = False) -> list[str]:
    """Return why each layout is impossible, or nothing; ``of_this_kind``: by the spec's other settings, too."""
    training, cluster = spec.scenarios[0].training, spec.written.items().get("cluster") if spec.written else None
    node = cluster.items().get("per_node") if cluster else None
    per_node = node.value if node and isinstance(node.value, int) else PER_NODE
    found = [""] * len(sizes["devices"])
    kinds = of_kind(spec.model, training, training.layout, sizes) if of_this_kind and training.layout else ()
    for condition in (*conditions(spec.model, training, sizes, per_node), *kinds):
        for number in np.flatnonzero(condition.fails):
            found[number] = found[number] or condition.why.format_map({name: int(column[number]) for name, column in sizes.items()})
    return found
