"""A layout that a search found, and what orders layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.spec.records import Layout, Training
from planner.spec.records.layout import DataParallel
from planner.spec.records.training import Recompute
from planner.time.estimate import Estimate

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
SHARING: tuple[DataParallel, ...] = ("ddp", "zero1", "zero2", "fsdp", "hsdp")
TIE = 0.02  # of the time: how far the best of a sweep's first three predictions is from its best measured layout
Sort: TypeAlias = Literal["time", "cost", "memory", "devices"]


@dataclass(frozen=True, slots=True)
class Found:
    """A layout that fits."""

    training: Training
    peak_bytes: int
    free_bytes: int
    time: Estimate

    @property
    def layout(self) -> Layout:
        """The layout."""
        return layout_of(self.training)

    @property
    def devices(self) -> int:
        """The devices of its cluster."""
        return self.layout.cluster.devices

    def value(self, by: Sort) -> float:
        """Return what layouts are sorted by; cost is proportional to seconds times devices."""
        seconds = self.time.seconds
        return {"time": seconds, "cost": seconds * self.devices, "memory": self.peak_bytes, "devices": self.devices}[by]


def layout_of(training: Training) -> Layout:
    """Return the layout of a training that has one."""
    assert training.layout is not None  # noqa: S101 - the caller has one
    return training.layout
