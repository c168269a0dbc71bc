"""Layouts in groups of one structure, each with what is made of the model over symbols, and the values of these symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, lt
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from planner.capacity.layout_symbols import OF_LAYOUT, Structure, Symbolic, data_degree, kinds, with_sizes
from planner.capacity.layouts import refuse_unmodeled
from planner.spec.records import Model, Training
from planner.trace.sizes import Choice
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.trace.arrays import Points

Grid: TypeAlias = "Mapping[str, NDArray[np.int64]]"
"""Sizes of layouts by name (SIZES), arrays of one length."""
Made = TypeVar("Made")
FEW = 3  # layouts: planning them one by one is faster than a trace over symbols
AT_ONCE = 8_000  # layouts evaluated at once, which limits the memory


class Alike(NamedTuple, Generic[Made]):
    """Layouts, by their numbers, what is made of their model over symbols, and the values of the symbols."""

    layouts: NDArray[np.int64]
    made: Made
    points: Points


@dataclass(slots=True)
class Groups(Generic[Made]):
    """Groups of the layouts of a grid. ``make`` returns what is made of a model and its training over symbols.

    ``refused``: why layouts are not modeled, by their numbers.
    """

    structure: Structure
    sizes: Grid
    make: Callable[[Model, Training], Made]
    refused: dict[int, str] = field(default_factory=dict)

    def of_structure(self) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of the layouts of each structure."""
        columns = kinds(self.structure, self.sizes)
        firsts, place = distinct(columns)
        rows = np.argsort(place, kind="stable")
        found = np.split(rows, np.cumsum(np.bincount(place))[:-1])
        yield from (found[number] for number in np.argsort(firsts))

    def alike(self, layouts: NDArray[np.int64]) -> Iterator[Alike[Made] | int]:
        """Yield modeled layouts of one structure: those with the choices that a trace of the first one makes, then the others.

        A layout without formulas is yielded by its number. If it is refused then as its formulas are, so are those with the same choices.
        """
        from planner.trace.arrays import Points

        layouts = self.modeled(layouts)
        while len(layouts):
            over = self.structure.over_symbols(self.at(int(layouts[0]))) if len(layouts) > FEW else None
            if over is None:
                yield from map(int, layouts)
                return
            try:
                made = self.make(over.model, over.training)
            except (TypeError, UnsupportedError) as error:
                yield (first := int(layouts[0]))
                if self.refused.get(first) != str(error):
                    yield from map(int, layouts[1:])
                    return
                _, same = self.agreeing(over, layouts)
                self.refused |= dict.fromkeys(map(int, layouts[same]), str(error))
                layouts = layouts[~same]
                continue
            values, same = self.agreeing(over, layouts)
            rows = np.flatnonzero(same)
            for some in (rows[block] for block in _blocks(len(rows))):
                points = Points({name: one[some] for name, one in values.items()} or {"": layouts[some] + 1})
                yield Alike(layouts[some], made, points)
            layouts = layouts[~same]

    def agreeing(self, over: Symbolic, layouts: NDArray[np.int64]) -> tuple[Grid, NDArray[np.bool_]]:
        """Return the values of symbols at layouts, and whether these lead to the choices that were made."""
        from planner.trace.arrays import Points

        values = {name: one[layouts] for name, one in self.structure.values(self.sizes).items() if name in over.names}
        if not values:
            return values, np.ones(len(layouts), dtype=bool)
        points = (Points({name: one[some] for name, one in values.items()}) for some in _blocks(len(layouts)))
        return values, np.concatenate([_agreeing(over.choices, some) for some in points])

    def modeled(self, layouts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the layouts that are modeled: by their degrees, and by whether there are more devices of data than of experts."""
        data = np.minimum(data_degree(self.sizes), self.sizes["expert_parallel"] + 1)
        firsts, place = distinct([one[layouts] for one in (*(self.sizes[name] for name in OF_LAYOUT), data)])
        refused = {kind: why for kind, first in enumerate(firsts) if (why := self.refusal(int(layouts[first])))}
        for kind, why in refused.items():
            self.refused |= dict.fromkeys(map(int, layouts[place == kind]), why)
        return layouts[~np.isin(place, list(refused))]

    def refusal(self, number: int) -> str:
        """Return why a layout is not modeled, or nothing."""
        try:
            refuse_unmodeled(*self.of(number))
        except UnsupportedError as error:
            return str(error)
        return ""

    def of(self, number: int) -> tuple[Model, Training]:
        """Return the model and the training of a layout."""
        return with_sizes(self.structure.model, self.structure.training, self.at(number))

    def at(self, number: int) -> dict[str, int]:
        """Return the sizes of a layout."""
        return {name: int(values[number]) for name, values in self.sizes.items()}


def _blocks(count: int) -> Iterator[slice]:
    """Yield slices of so many layouts, those evaluated at once."""
    yield from (slice(first, first + AT_ONCE) for first in range(0, count, AT_ONCE))


def distinct(columns: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    every = {(one.function, one.sizes): one for one in choices}.values()
    return reduce(and_, (_agrees(one, points) for one in every), np.ones(points.shape, dtype=bool))


def _agrees(choice: Choice, points: Points) -> NDArray[np.bool_]:
    if choice.function is lt:
        found: NDArray[np.bool_] = (points.evaluate(choice.sizes[0]) < points.evaluate(choice.sizes[1])) == choice.made
        return found
    columns = [points.evaluate(size) for size in choice.sizes]
    firsts, place = distinct(columns)
    return np.array([choice.function(*(int(one[row]) for one in columns)) == choice.made for row in firsts])[place]
