"""A spec with the plans of its scenarios, as reports need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.capacity.figures import Plan
from planner.spec.records import Spec


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """A limit of a budget that applies to a scenario of a model."""

    budget: str
    scenario: str
    figure: str  # a column of capacity.csv
    kind: Literal["max", "min", "max_increase"]
    worth: int | None  # in the metric's unit; None: it is relative to a base
    severity: Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A spec with the plans of its scenarios, the base scenario first."""

    spec: Spec
    plans: tuple[Plan, ...]
    budgets: tuple[BudgetLimit, ...] = ()  # that a report shows
