"""A review as JSON: everything, exact. Integers are JSON numbers of any size."""

from __future__ import annotations

import json as writer

from planner.report.columns import FIGURES, METHODS
from planner.report.json import Json, plain
from planner.review import wording
from planner.review.headline import headline, next_steps
from planner.review.review import Review

VERSION = 1  # of this format; raised when a key changes its meaning or is removed


def json(review: Review) -> str:
    """Return the review, which ends with a line feed."""
    made: Json = {
        "version": VERSION,
        "base": review.base,
        "headline": headline(review),
        "next": [f"{one.what} {one.code}".rstrip() for one in next_steps(review)],
        "summary": wording.summary(review),
        "changed": len(review.changed),
        "failed": review.failed,
        "models": plain(review.models),
        "findings": plain(review.findings),
        "budgets": plain(review.budget_statuses),
        "policy_edits": plain(review.policy_edits),
        "waivers": [{"model": model, "waiver": plain(waiver)} for model, waiver in review.waivers],
        "formula_changes": plain(review.formulas),
        "trends": plain(review.trends),
        "notes": plain(review.notes),
        "methods": {name: METHODS.get(name, "as written") for name in FIGURES},
        "units": {name: column.unit for name, column in FIGURES.items()},
    }
    return writer.dumps(made, ensure_ascii=False, indent=2) + "\n"
