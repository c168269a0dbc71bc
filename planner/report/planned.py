"""What the room is handed: a spec beside what it takes in each of its scenarios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.capacity.figures import Plan
from planner.spec.records import Spec


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """One limit of a budget that is for a scenario of a model."""

    budget: str
    scenario: str
    figure: str  # a column of capacity.csv
    kind: Literal["max", "min", "max_increase"]
    worth: int | None  # in the figure's unit; None: it is a share of what a base has
    severity: Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Planned:
    """One spec with the plans of its scenarios, the base scenario first."""

    spec: Spec
    plans: tuple[Plan, ...]
    budgets: tuple[BudgetLimit, ...] = ()  # where a report tells them
