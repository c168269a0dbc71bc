"""What the room is handed: a spec beside what it takes in each of its scenarios."""

from __future__ import annotations

from dataclasses import dataclass

from planner.capacity.records import Plan
from planner.spec.records import Spec


@dataclass(frozen=True, slots=True)
class Planned:
    """One spec with the plans of its scenarios, the base scenario first."""

    spec: Spec
    plans: tuple[Plan, ...]
