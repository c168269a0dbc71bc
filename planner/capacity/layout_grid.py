"""Figures of many layouts at once, exact: layouts of one structure share a trace, over symbols whose values are arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, lt
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from planner.capacity.figures import Plan
from planner.capacity.layout_symbols import OF_LAYOUT, SIZES, Structure, Symbolic, data_degree, kinds, size_of, structure_of, with_sizes
from planner.capacity.layouts import refuse_unmodeled
from planner.capacity.plan import of_kinds, plan
from planner.spec.records import Model, Scenario, Spec, Training
from planner.trace.sizes import Choice
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.trace.arrays import Points

Grid: TypeAlias = "Mapping[str, NDArray[np.int64]]"
"""Sizes of layouts by name (SIZES), arrays of one length."""
Figure: TypeAlias = Callable[[Plan], "int | None"]
FEW = 6  # layouts: planning them one by one is faster than a trace over symbols
AT_ONCE = 20_000  # layouts evaluated at once, which limits the memory


@dataclass(frozen=True, slots=True)
class Columns:
    """Figures of layouts, each an array, or None without a value; and why layouts are not modeled, by their numbers."""

    figures: tuple[NDArray[Any] | None, ...]
    refused: Mapping[int, str]


def peaks(model: Model, training: Training, grid: Grid) -> Columns:
    """Return the peak of the fullest device of each layout of a grid, as ``evaluate`` does."""
    scenario = Scenario("base", training)
    return evaluate(Spec("layouts", "", model, (scenario,)), scenario, grid, [lambda plan: plan.memory.peak_bytes])


def evaluate(spec: Spec, scenario: Scenario, grid: Grid, figures: Sequence[Figure]) -> Columns:
    """Return figures of a scenario at each layout of a grid, as those of its plan: of the device with the largest peak.

    The layouts must be possible (planner.spec.possible). Sizes that the grid lacks are the scenario's.
    """
    count = len(next(iter(grid.values())))
    sizes = {name: grid.get(name, np.full(count, size_of(name, spec.model, scenario.training), dtype=np.int64)) for name in SIZES}
    made = _Evaluation(spec, scenario, sizes, figures, structure_of(spec.model, scenario.training, varies="n_layers" in grid))
    for alike in _groups(kinds(made.structure, sizes)):
        made.evaluate(alike)
    return Columns(tuple(made.columns), made.refused)


@dataclass(slots=True)
class _Evaluation:
    spec: Spec
    scenario: Scenario
    sizes: Grid
    figures: Sequence[Figure]
    structure: Structure
    columns: list[NDArray[Any] | None] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = [None for _ in self.figures]

    def evaluate(self, layouts: NDArray[np.int64]) -> None:
        """Evaluate layouts of one structure: at once those with the choices that a trace of the first one makes, then the others."""
        from planner.trace.arrays import Points

        layouts = self.modeled(layouts)
        while len(layouts):
            made = self.formulas(int(layouts[0])) if len(layouts) > FEW and not self.spec.model.prediction else None
            if made is None:
                for number in map(int, layouts):
                    self.plan(number)
                return
            over, plans = made
            values = {name: one[layouts] for name, one in self.structure.values(self.sizes).items() if name in over.names}
            same = _agreeing(over.choices, Points(values)) if values else np.ones(len(layouts), dtype=bool)
            for some in np.array_split(np.flatnonzero(same), -(-np.count_nonzero(same) // AT_ONCE)):
                self.store(layouts[some], plans, Points({name: one[some] for name, one in values.items()} or {"": layouts[some] + 1}))
            layouts = layouts[~same]

    def formulas(self, number: int) -> tuple[Symbolic, list[Plan]] | None:
        """Return the plans of the kinds of devices of layouts like one, over symbols; None if they depend on more than the structure."""
        over = self.structure.over_symbols(self.at(number))
        try:
            made = of_kinds(replace(self.spec, model=over.model), replace(self.scenario, training=over.training))
        except (TypeError, UnsupportedError):
            return None
        return over, cast("list[Plan]", made)  # of sizes, which figures read like integers

    def modeled(self, layouts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the layouts that are modeled: by their degrees, and by whether there are more devices of data than of experts."""
        data = np.minimum(data_degree(self.sizes), self.sizes["expert_parallel"] + 1)
        firsts, place = _distinct([one[layouts] for one in (*(self.sizes[name] for name in OF_LAYOUT), data)])
        refused = {kind: why for kind, first in enumerate(firsts) if (why := self.refusal(int(layouts[first])))}
        for kind, why in refused.items():
            self.refused |= dict.fromkeys(map(int, layouts[place == kind]), why)
        return layouts[~np.isin(place, list(refused))]

    def refusal(self, number: int) -> str:
        """Return why a layout is not modeled, or nothing."""
        try:
            refuse_unmodeled(*with_sizes(self.spec.model, self.scenario.training, self.at(number)))
        except UnsupportedError as error:
            return str(error)
        return ""

    def at(self, number: int) -> dict[str, int]:
        """Return the sizes of a layout."""
        return {name: int(values[number]) for name, values in self.sizes.items()}

    def plan(self, number: int) -> None:
        """Plan one layout."""
        model, training = with_sizes(self.spec.model, self.scenario.training, self.at(number))
        try:
            made = plan(replace(self.spec, model=model), replace(self.scenario, training=training))
        except UnsupportedError as error:
            self.refused[number] = str(error).rpartition(f" of {self.spec.name}: ")[2]
            return
        for column, figure in enumerate(self.figures):
            self.write(column, np.array([number]), figure(made))

    def store(self, layouts: NDArray[np.int64], plans: Sequence[Plan], points: Points) -> None:
        """Evaluate the figures of layouts, of which ``plans`` are those of the devices that may have the largest peak."""
        fullest = np.argmax([points.evaluate(one.memory.peak_bytes) for one in plans], axis=0) if len(plans) > 1 else None
        for column, figure in enumerate(self.figures):
            sizes = [figure(one) for one in plans]
            distinct = list(dict.fromkeys(sizes))
            if fullest is None or len(distinct) == 1:
                self.write(column, layouts, None if sizes[0] is None else points.evaluate(sizes[0]))
            else:
                values = [points.evaluate(one) for one in distinct if one is not None]
                self.write(column, layouts, np.choose(np.array([distinct.index(one) for one in sizes])[fullest], values))

    def write(self, column: int, layouts: NDArray[np.int64], values: NDArray[Any] | int | None) -> None:
        """Write a figure of some layouts; integers that int64 cannot hold make the whole column one of Python's integers."""
        if values is None:
            return
        known = self.columns[column]
        made = np.zeros(len(self.sizes["devices"]), dtype=np.int64) if known is None else known
        large = made.dtype != object and (np.asarray(values).dtype == object or (isinstance(values, int) and values >= 2**63))
        made = made.astype(object) if large else made
        made[layouts] = values
        self.columns[column] = made


def _groups(columns: Sequence[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of the rows that are equal in all columns, in the order of their first one."""
    firsts, place = _distinct(columns)
    rows = np.argsort(place, kind="stable")
    found = np.split(rows, np.cumsum(np.bincount(place))[:-1])
    yield from (found[number] for number in np.argsort(firsts))


def _distinct(columns: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of the first row of each kind, all columns being equal, and the kind of each row."""
    place = np.zeros(len(columns[0]), dtype=np.int64)
    firsts = place[:1]
    for column in columns:
        if len(column) and column.min() < column.max():
            values, inverse = np.unique(column, return_inverse=True)
            _, firsts, place = np.unique(place * len(values) + inverse, return_index=True, return_inverse=True)
    return firsts, place


def _agreeing(choices: Sequence[Choice], points: Points) -> NDArray[np.bool_]:
    """Return at which points choices are as they were made."""
    distinct = {(one.function, one.sizes): one for one in choices}.values()
    return reduce(and_, (_agrees(one, points) for one in distinct), np.ones(points.shape, dtype=bool))


def _agrees(choice: Choice, points: Points) -> NDArray[np.bool_]:
    if choice.function is lt:
        found: NDArray[np.bool_] = (points.evaluate(choice.sizes[0]) < points.evaluate(choice.sizes[1])) == choice.made
        return found
    columns = [points.evaluate(size) for size in choice.sizes]
    firsts, place = _distinct(columns)
    return np.array([choice.function(*(int(one[row]) for one in columns)) == choice.made for row in firsts])[place]
