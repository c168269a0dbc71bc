"""What the metrics omit, and how accurate they are, in the few lines of outputs without a breakdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.capacity.figures import Plan
from planner.report import accuracy
from planner.spec.records import Spec

UNPADDED = "Batches are assumed to contain no padding."


def lines(models: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return a line per part that models omit, given the omitted parts of each model by its name."""
    names: dict[str, dict[str, None]] = {}
    for name, omits in models:
        for part in omits:
            names.setdefault(part, {})[name] = None
    return tuple(f"Not counted in {', '.join(of)}: {part}." for part, of in names.items())


def of_plans(plans: Sequence[Plan]) -> tuple[str, ...]:
    """Return a line per omitted part, and one per measurement that differs from plans or is missing."""
    measured = accuracy.notes((plan.name, plan.model, plan.training) for plan in plans)
    return (*lines((plan.name, plan.omits) for plan in plans), *measured)


def of_specs(specs: Sequence[Spec], scenario: str | None = None) -> tuple[str, ...]:
    """Return the same for specs, of all scenarios or those of one name."""
    chosen = ((spec, one) for spec in specs for one in spec.scenarios if scenario in {None, one.name})
    measured = accuracy.notes((spec.name, spec.model, one.training) for spec, one in chosen)
    return (*lines((spec.name, spec.omits) for spec in specs), *measured)
