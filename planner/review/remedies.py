"""Remedies for an exceeded budget: the largest batch size, sequence length or number of layers that fits, other settings unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from planner.capacity import vary
from planner.report.columns import CLAIMABLE
from planner.spec.records import Spec

_SETTINGS = ("batch_size", "sequence_length", "n_layers")


@dataclass(frozen=True, slots=True)
class Remedy:
    """The largest value of a setting at which the figure stays within its limit; None if not even 1 does."""

    setting: str
    largest: int | None


def find_remedies(spec: Spec, scenario: str, figure: str, limit: Fraction) -> Iterator[Remedy]:
    """Yield the settings that can bring a figure of a scenario down to its limit, exactly, by bisection over plans.

    Settings that do not affect the figure are omitted, and so is n_layers where the spec lists layer groups.
    """
    for setting in _SETTINGS:
        now = vary.value_of(spec, scenario, setting)
        if now is None:
            continue
        measure = partial(_measured, spec, scenario, figure, setting)
        smallest = measure(1)
        if smallest is None or smallest == measure(now):
            continue
        if smallest > limit:
            yield Remedy(setting, None)
        else:
            yield Remedy(setting, vary.largest(measure, limit, 1, now))


def _measured(spec: Spec, scenario: str, figure: str, setting: str, value: int) -> int | None:
    """Return the figure with the setting at a value; None if the spec would be invalid."""
    plan = vary.planned(spec, scenario, setting, value)
    return CLAIMABLE[figure].value(plan) if plan else None
