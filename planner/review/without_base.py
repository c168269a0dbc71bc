"""Reviews without a base: the budgets that ``planner run`` checks, and ``planner validate`` for CI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from math import ceil, floor
from pathlib import Path

from planner.report.planned import BudgetLimit, Planned
from planner.review import findings as rules
from planner.review import policy
from planner.review.findings import CheckedModel
from planner.review.policy import POLICY, Policy
from planner.review.review import Finding, Review, ReviewedModel
from planner.review.snapshot import from_root
from planner.spec.problems import Problem
from planner.spec.records import Spec


def findings(models: Iterable[Planned], folder: Path, today: date) -> tuple[Finding, ...]:
    """Check the policy of the repository around a folder, if there is one; limits on growth have no base here."""
    home = _home(folder)
    if not (home / POLICY).is_file():
        return ()
    read, problems = policy.read(home / POLICY, POLICY)
    if problems:
        return tuple(map(rules.of_problem, problems))
    checked = [CheckedModel(model, {}, dict.fromkeys(("", "name"), model.spec.places["name",])) for model in models]
    found, _ = rules.findings(checked, read, today, str)
    return tuple(finding for finding in found if finding.rule != "expect")  # reported before anything is written


def with_budgets(models: Iterable[Planned], folder: Path) -> list[Planned]:
    """Return the models with the budgets that apply to their scenarios; an invalid policy has none."""
    read, _ = policy.read(_home(folder) / POLICY, POLICY)
    return [replace(model, budgets=tuple(_limits(model, read))) for model in models]


def _limits(model: Planned, read: Policy) -> Iterator[BudgetLimit]:
    for plan in model.plans:
        for budget in read.budgets:
            if budget.covers(model.spec, plan.scenario):
                for limit in budget.limits:
                    worth = {"max": floor, "min": ceil}[limit.kind](limit.amount.value) if limit.kind != "max_increase" else None
                    yield BudgetLimit(budget.name, plan.scenario, budget.figure, limit.kind, worth, budget.severity)


def validation(specs: Iterable[Spec], problems: Iterable[Problem], folder: Path) -> Review:
    """Return the errors of specs as a review without a base, for the formats of CI systems."""
    home = _home(folder)
    placed = (replace(problem, place=replace(problem.place, file=from_root(home, problem.place.file))) for problem in problems)
    models = tuple(ReviewedModel(spec.name, "unchanged", from_root(home, spec.path)) for spec in specs)
    return Review("", models, tuple(map(rules.of_problem, placed)))


def _home(folder: Path) -> Path:
    """Return the root of the repository around a folder, or the folder."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
