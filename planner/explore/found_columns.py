"""Layouts that fit, as columns: each is a record only when it is read. Their order, and the front of memory and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from planner.capacity.layout_symbols import SIZES, with_sizes
from planner.explore.found import RECOMPUTE, SHARING, TIE, Found, Sort, layout_of
from planner.spec.records import Model, Training
from planner.time.estimate import SHARES, Slowest, completed, full_rates, known_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.explore.candidates import Kind
    from planner.explore.layout_times import Times

_ORDER = ("tensor_parallel", "context_parallel", "expert_parallel", "virtual_stages", "batch_size")


class Layouts(Sequence[Found]):
    """Layouts that fit, in an order. ``causal``: FLOPs of the model in a step, with causal attention."""

    def __init__(self, model: Model, kinds: Sequence[Training], columns: Mapping[str, NDArray[Any]], causal: int) -> None:
        self.model, self.kinds, self.columns, self.causal = model, kinds, columns, causal

    @classmethod
    def of(cls, model: Model, kinds: Sequence[Kind], times: Sequence[Times], causal: int) -> Layouts:
        """Return the layouts with these times, in the order of their numbers."""
        numbers = np.concatenate([one.numbers for one in kinds]) if kinds else np.zeros(0, dtype=np.int64)
        every = np.argsort(numbers, kind="stable")
        found = np.concatenate([one.numbers for one in times]) if times else np.zeros(0, dtype=np.int64)
        order = np.argsort(found, kind="stable")
        rows = every[np.searchsorted(numbers, found[order], sorter=every)]
        columns: dict[str, NDArray[Any]] = {
            "kind": np.repeat(np.arange(len(kinds)), [len(one.numbers) for one in kinds])[rows],
            **{name: np.concatenate([one.sizes[name] for one in kinds])[rows] if kinds else numbers for name in SIZES},
        }
        for name in ("recompute", "peaks", "seconds", "executed"):
            columns[name] = np.concatenate([getattr(one, name) for one in times])[order] if times else found
        for place, name in enumerate(SHARES):
            columns[name] = np.concatenate([one.shares[place] for one in times])[order] if times else found
        return cls(model, [one.training for one in kinds], columns, causal)

    def __len__(self) -> int:
        return len(self.columns["kind"])

    @overload
    def __getitem__(self, place: int) -> Found: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Found]: ...
    def __getitem__(self, place: int | slice) -> Found | Sequence[Found]:
        if isinstance(place, slice):
            return self.some(np.arange(len(self))[place])
        one = {name: column[place].item() if column.dtype != object else column[place] for name, column in self.columns.items()}
        kind = replace(self.kinds[one["kind"]], recompute=RECOMPUTE[one["recompute"]])
        _, training = with_sizes(self.model, kind, one)
        cluster = layout_of(training).cluster
        time = Slowest(one["seconds"], {name: one[name] for name in SHARES}, one["executed"], 0)
        known, full = known_for(layout_of(training)), full_rates(training, layout_of(training))
        free = cluster.memory_bytes - cluster.reserve_bytes - one["peaks"]
        return Found(training, one["peaks"], free, completed(time, known, full, self.model, training, self.causal))

    def some(self, rows: NDArray[np.int64]) -> Layouts:
        """Return some of the layouts, in the order of the rows."""
        return Layouts(self.model, self.kinds, {name: column[rows] for name, column in self.columns.items()}, self.causal)

    def values(self, by: Sort) -> NDArray[Any]:
        """Return what layouts are sorted by, as ``Found.value``."""
        seconds, devices = self.columns["seconds"], self.columns["devices"]
        values: dict[Sort, NDArray[Any]] = {"time": seconds, "cost": seconds * devices, "memory": self.columns["peaks"], "devices": devices}
        return values[by]

    def ranked(self, by: Sort = "time") -> Layouts:
        """Return the layouts, the best first. Those within TIE of the best one that is left are ordered by simplicity."""
        values, simple = self.values(by), self._simplicity()
        if by in ("time", "cost"):
            return self.some(_sorted(_bands(values), *simple))
        return self.some(_sorted(values, self.columns["seconds"], *simple))

    def front(self) -> Layouts:
        """Return the layouts that are faster than all with as much free memory, by memory."""
        rows = _sorted(self.columns["peaks"], self.columns["seconds"], *self._simplicity())
        seconds = self.columns["seconds"][rows]
        before = np.concatenate([[np.inf], np.minimum.accumulate(seconds)[:-1]])[: len(seconds)]
        return self.some(rows[seconds < before])

    def largest(self, shares: Sequence[str], least: float) -> Counter[str]:
        """Return of how many layouts each of some shares is the largest; none, if that is below the least."""
        if not len(self):
            return Counter()
        columns = np.array([self.columns[name] for name in shares])
        places = np.where(columns.max(axis=0) >= least, columns.argmax(axis=0), len(shares))
        found, firsts, counts = np.unique(places, return_index=True, return_counts=True)
        names = (*shares, "")
        return Counter({names[found[one]]: int(counts[one]) for one in np.argsort(firsts)})

    def _simplicity(self) -> tuple[NDArray[Any], ...]:
        """Return what orders layouts whose times are equal: fewer devices and stages, less recomputation, then the degrees."""
        sharing = np.array([SHARING.index(layout_of(one).data_parallel) for one in self.kinds], dtype=np.int64)[self.columns["kind"]]
        names = ("devices", "pipeline_parallel", "recompute")
        return *(self.columns[name] for name in names), sharing, *(self.columns[name] for name in _ORDER)


def _sorted(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return the order of rows by keys, the most significant one first; equal rows keep their order."""
    return np.lexsort(keys[::-1])


def _bands(values: NDArray[Any]) -> NDArray[Any]:
    """Return for each value the least one of its band: of the values within TIE of the least one that is in no band before."""
    ordered, made, start = np.sort(values), np.empty_like(values), 0
    while start < len(values):
        end = int(np.searchsorted(ordered, ordered[start] * (1 + TIE), side="right"))
        made[start:end] = ordered[start]
        start = end
    return made[np.searchsorted(ordered, values)]
