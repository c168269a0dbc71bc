"""A review for programs: everything, exact. Integers are JSON numbers of any size."""

from __future__ import annotations

import json as writer
from dataclasses import fields, is_dataclass
from datetime import date
from typing import TypeAlias

from planner.report.columns import FIGURES, METHODS
from planner.review import wording
from planner.review.review import Review

VERSION = 1  # of this format; raised when a key changes its meaning or goes

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | bool | None"


def json(review: Review) -> str:
    """Write the review; it ends with a line feed."""
    told: Json = {
        "version": VERSION,
        "base": review.base,
        "summary": wording.summary(review),
        "changed": len(review.changed),
        "failed": review.failed,
        "models": _plain(review.models),
        "findings": _plain(review.findings),
        "budgets": _plain(review.standings),
        "waivers": [{"model": model, "waiver": _plain(waiver)} for model, waiver in review.waivers],
        "formula_changes": _plain(review.formulas),
        "notes": _plain(review.notes),
        "methods": {name: METHODS.get(name, "as written") for name in FIGURES},
        "units": {name: column.unit for name, column in FIGURES.items()},
    }
    return writer.dumps(told, ensure_ascii=False, indent=2) + "\n"


def _plain(value: object) -> Json:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, (str, int)):
        return value
    raise TypeError(f"a review has no JSON for {type(value).__name__}")
