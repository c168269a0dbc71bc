"""Peaks and step times of layouts of one structure as arrays, each with the least recomputation with which it fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from planner.capacity.figures import Fleet, RankPeak, Traffic, Work
from planner.capacity.layout_groups import Groups
from planner.capacity.layout_symbols import structure_of, with_sizes
from planner.capacity.plan import divided, unlike
from planner.explore.candidates import Kind
from planner.explore.found import layout_of
from planner.spec.records import Model
from planner.spec.records.training import Recompute
from planner.time.estimate import Slowest, full_rates, known_for, setting, slowest, step_time, top_k
from planner.time.terms import Value
from planner.trace.sizes import Size
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.trace.arrays import Points

EXACT = 2**50  # bytes of a collective, whose sums and multiples are exact in floating-point numbers
SUMMED = 2**60  # other amounts, whose sums int64 holds


class Times(NamedTuple):
    """Layouts that fit: their numbers, the place of their recomputation, their peaks, and the times of a step."""

    numbers: NDArray[np.int64]
    recompute: NDArray[np.int64]
    peaks: NDArray[np.int64]
    seconds: NDArray[np.float64]
    executed: NDArray[Any]
    shares: NDArray[np.float64]  # a column per layout, in the order of the shares of an estimate


@dataclass(frozen=True, slots=True)
class Timed:
    """The times of layouts, the bytes that the nearest of those that do not fit lacks, their number, and why some are not modeled."""

    times: Sequence[Times]
    too_large: int
    nearest_bytes: int | None
    refused: Counter[str]


def timed(model: Model, kind: Kind, recompute: Sequence[tuple[int, Recompute]]) -> Timed:
    """Return layouts of one structure, each with the first recomputation with which it fits. ``recompute``: kinds with their places."""
    found, refused = list[Times](), Counter[str]()
    too_large, nearest = 0, list[int]()
    rest = kind
    for place, name in recompute:
        made = _Evaluation(model, replace(rest, training=replace(kind.training, recompute=name)), place)
        made.evaluate()
        found += made.times
        refused.update(made.groups.refused.values())
        too_large += len(made.lacking)
        nearest += [min(made.lacking)] if made.lacking else []
        for one in made.times:
            rest = rest.some(np.flatnonzero(~np.isin(rest.numbers, one.numbers)))
        if not len(rest.numbers):
            break
    return Timed(found, too_large, min(nearest, default=None), refused)


class _Evaluation:
    """Layouts with one recomputation."""

    def __init__(self, model: Model, kind: Kind, place: int) -> None:
        self.model, self.kind, self.place = model, kind, place
        self.groups = Groups(structure_of(model, kind.training, varies=False), kind.sizes, unlike)
        self.times = list[Times]()
        self.lacking = list[int]()  # bytes, of layouts that do not fit

    def evaluate(self) -> None:
        for some in self.groups.alike(np.arange(len(self.kind.numbers))):
            if isinstance(some, int):
                self.plan(some)
            else:
                self.store(some.layouts, some.made, some.points)

    def plan(self, row: int) -> None:
        """Plan one layout."""
        model, training = self.groups.of(row)
        try:
            fleet = cast("Fleet", divided(model, training))  # of integers, as the model
        except UnsupportedError as error:
            self.groups.refused[row] = str(error)
            return
        if fleet.free_bytes < 0:
            self.lacking.append(-fleet.free_bytes)
        else:
            self.write(np.array([row]), np.array([fleet.peak_bytes]), step_time(model, training, fleet).time)

    def store(self, rows: NDArray[np.int64], ranks: Sequence[RankPeak[Size]], points: Points) -> None:
        """Evaluate layouts, of which there are devices over symbols."""
        layout = layout_of(self.kind.training)
        peaks = np.max([points.evaluate(rank.peak_bytes) for rank in ranks], axis=0)
        free = layout.cluster.memory_bytes - layout.cluster.reserve_bytes - peaks
        fits = np.flatnonzero(free >= 0)
        self.lacking += (-free[free < 0]).tolist()
        if len(fits):
            of_fits = points if len(fits) == len(rows) else points.some(fits)
            self.write(rows[fits], peaks[fits], self.time(rows[fits], [_at(rank, of_fits) for rank in ranks]))

    def time(self, rows: NDArray[np.int64], ranks: Sequence[RankPeak[Any]]) -> Slowest:
        """Return the times of layouts."""
        one, cluster = self.kind.training, layout_of(self.kind.training).cluster
        sizes = {name: column[rows] for name, column in self.kind.sizes.items()} | {"n_layers": self.model.n_layers}
        _, training = with_sizes(self.model, one, cast("dict[str, Size]", sizes))  # arrays in place of integers
        of = setting(training, layout_of(training), top_k(self.model))
        return slowest(ranks, of, known_for(layout_of(one)), full_rates(one, layout_of(one)), cluster.device)

    def write(self, rows: NDArray[np.int64], peaks: NDArray[np.int64], time: Slowest) -> None:
        """Add layouts that fit."""
        shares = np.array([np.broadcast_to(share, rows.shape) for share in time.shares.values()])
        seconds, executed = (np.broadcast_to(one, rows.shape) for one in (time.seconds, time.executed))
        self.times.append(Times(self.kind.numbers[rows], np.full(len(rows), self.place), peaks, seconds, executed, shares))


def _at(rank: RankPeak[Size], points: Points) -> RankPeak[Any]:
    """Return the work, the traffic and the updates of a device at points."""

    def at(size: Size, limit: int = SUMMED) -> Value:
        if isinstance(size, int):
            return size
        made = points.evaluate(size)
        return made.astype(object) if points.bound(size) > limit else made

    work = replace(cast("Work[Any]", rank.work), **{one.name: at(getattr(rank.work, one.name)) for one in fields(Work)})
    traffic = tuple(Traffic(one.collective, at(one.bytes, EXACT), one.spans, one.group) for one in rank.traffic)
    return replace(cast("RankPeak[Any]", rank), work=work, traffic=traffic, updated_bytes=at(rank.updated_bytes))
