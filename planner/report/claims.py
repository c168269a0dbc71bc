"""The values under ``expect``, checked against the metrics of the base scenario."""

from __future__ import annotations

import linecache

from planner.report import units
from planner.report.columns import CLAIMABLE
from planner.report.planned import Planned
from planner.spec.problems import Problem


def failed(model: Planned) -> tuple[Problem, ...]:
    """Return a problem, at its location, for every expected value that differs from the plan."""
    base = model.plans[0]
    problems = []
    for claim in model.spec.claims:
        figure = CLAIMABLE[claim.figure].read(base)
        if figure != claim.value:
            linecache.checkcache(claim.place.file)
            line = linecache.getline(claim.place.file, claim.place.line).rstrip()  # empty for standard input
            problems.append(Problem(claim.place, "expect", _message(claim.figure, figure, claim.value), line))
    return tuple(problems)


def _message(name: str, figure: object, claimed: int) -> str:
    expects = f"expected {units.exact(claimed)}"
    if not isinstance(figure, int):
        return f"{name} has no value because the spec gives no {_needed(name)}, {expects}"
    side = "less" if claimed > figure else "more"
    return f"{name} is {units.exact(figure)}, {expects} ({units.exact(abs(claimed - figure))} {side})"


def _needed(name: str) -> str:
    """Return the setting without which a figure has no value."""
    return "tokens" if name.startswith("train_") else "such serving" if name.startswith("serving_") else "cluster"
