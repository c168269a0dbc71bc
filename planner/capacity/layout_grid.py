"""Figures of many layouts at once, exact: layouts of one structure share a trace, over symbols whose values are arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from planner.capacity.figures import Plan
from planner.capacity.layout_groups import Alike, Grid, Groups
from planner.capacity.layout_symbols import SIZES, size_of, structure_of
from planner.capacity.plan import of_kinds, plan
from planner.spec.records import Model, Scenario, Spec, Training
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Figure: TypeAlias = Callable[[Plan], "int | None"]


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

    def over_symbols(model: Model, training: Training) -> list[Plan]:
        if model.prediction:
            raise UnsupportedError("plans of prediction layers are made one by one")
        return cast("list[Plan]", of_kinds(replace(spec, model=model), replace(scenario, training=training)))  # figures read sizes, too

    groups = Groups(structure_of(spec.model, scenario.training, varies="n_layers" in grid), sizes, over_symbols)
    made = _Evaluation(spec, scenario, groups, figures)
    for alike in groups.of_structure():
        made.evaluate(alike)
    return Columns(tuple(made.columns), groups.refused)


@dataclass(slots=True)
class _Evaluation:
    spec: Spec
    scenario: Scenario
    groups: Groups[list[Plan]]
    figures: Sequence[Figure]
    columns: list[NDArray[Any] | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.columns = [None for _ in self.figures]

    def evaluate(self, layouts: NDArray[np.int64]) -> None:
        """Evaluate layouts of one structure."""
        for some in self.groups.alike(layouts):
            if isinstance(some, int):
                self.plan(some)
            else:
                self.store(some)

    def plan(self, number: int) -> None:
        """Plan one layout."""
        model, training = self.groups.of(number)
        try:
            made = plan(replace(self.spec, model=model), replace(self.scenario, training=training))
        except UnsupportedError as error:
            self.groups.refused[number] = str(error).rpartition(f" of {self.spec.name}: ")[2]
            return
        for column, figure in enumerate(self.figures):
            self.write(column, np.array([number]), figure(made))

    def store(self, some: Alike[list[Plan]]) -> None:
        """Evaluate the figures of layouts, of which there are plans of the devices that may have the largest peak."""
        points, plans = some.points, some.made
        fullest = np.argmax([points.evaluate(one.memory.peak_bytes) for one in plans], axis=0) if len(plans) > 1 else None
        for column, figure in enumerate(self.figures):
            sizes = [figure(one) for one in plans]
            every = list(dict.fromkeys(sizes))
            if fullest is None or len(every) == 1:
                self.write(column, some.layouts, None if sizes[0] is None else points.evaluate(sizes[0]))
            else:
                values = [points.evaluate(one) for one in every if one is not None]
                self.write(column, some.layouts, np.choose(np.array([every.index(one) for one in sizes])[fullest], values))

    def write(self, column: int, layouts: NDArray[np.int64], values: NDArray[Any] | int | None) -> None:
        """Write a figure of some layouts; integers that int64 cannot hold make the whole column one of Python's integers."""
        if values is None:
            return
        known = self.columns[column]
        made = np.zeros(len(self.groups.sizes["devices"]), dtype=np.int64) if known is None else known
        large = made.dtype != object and (np.asarray(values).dtype == object or (isinstance(values, int) and values >= 2**63))
        made = made.astype(object) if large else made
        made[layouts] = values
        self.columns[column] = made
