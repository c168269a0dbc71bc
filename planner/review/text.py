"""A review for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.report import quantity
from planner.report.columns import FIGURES
from planner.report.terminal import PLAIN, Style, table
from planner.review import wording
from planner.review.policy import POLICY
from planner.review.review import Review, ReviewedModel, ReviewedScenario
from planner.spec.printable import printable

_STATES = {"kept": "ok", "unchecked": "not compared"}


def text(review: Review, style: Style = PLAIN) -> str:
    """Return the whole review, which ends with a line feed."""
    return "\n".join(_lines(review, style)) + "\n"


def _lines(review: Review, style: Style) -> Iterator[str]:
    yield f"Against {printable(review.base)}: {wording.summary(review)} {wording.verdict(review)}".rstrip()
    statuses = wording.budget_statuses(review)
    for model in review.changed:
        yield ""
        yield from _model(model, statuses, style)
    yield from _list(f"Changes of {POLICY}", wording.numbered(review.policy_edits), style)
    yield from _list("Findings", list(map(wording.line, review.findings)), style)
    yield from _list("Waivers", [wording.waiver(*waiver) for waiver in review.waivers], style)
    yield from _list("Formula updates (same spec, new result)", list(map(wording.formula, review.formulas)), style)
    yield from _list("Notes", list(review.notes), style)
    if review.changed:
        yield from _list("Unchanged", wording.unchanged(review), style)


def _list(title: str, lines: list[str], style: Style) -> Iterator[str]:
    if lines:
        yield ""
        yield style.bold(title)
        yield from (printable(f"  {line}") for line in lines)


def _model(model: ReviewedModel, statuses: wording.BudgetStatuses, style: Style) -> Iterator[str]:
    yield style.bold(printable(f"{model.name} ({model.path}): {wording.status(model)}"))
    yield from (printable(f"  {line}") for line in wording.numbered(model.edits))
    for row in model.rows:
        if row.status == "unchanged":
            yield f"  {printable(row.scenario)}: no metric changed"
            continue
        if len(model.rows) > 1 or row.scenario != "base":
            yield printable(f"  scenario {row.scenario}")
        yield from (f"  {line}" for line in table(*_table(row), style))
        for budget, state in statuses.get((model.name, row.scenario), ()):
            yield printable(f"  budget {budget}: {_STATES.get(state, f'exceeded ({state})')}")
    if not model.rows and model.edits:
        yield "  no metric changed"


def _table(row: ReviewedScenario) -> tuple[Sequence[str], str, list[Sequence[str]]]:
    lines: list[Sequence[str]] = []
    if row.before is None or row.after is None:
        values = row.after or row.before or {}
        lines += [(name, quantity.rounded(FIGURES[name], value), row.status) for name, value in values.items() if value and name in FIGURES]
        return ("metric", "", ""), "lrl", lines
    for change in row.changes:
        before, after = quantity.pair(FIGURES[change.figure], change.before, change.after)
        lines.append((change.figure, before, "→", after, wording.change(change), wording.moved_by(change)))
    moved = "cause" if any(line[-1] for line in lines) else ""
    return ("metric", "before", "", "after", "change", moved), "lrlrll", lines
