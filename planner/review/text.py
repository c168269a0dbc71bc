"""A review for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.report import quantity
from planner.report.columns import FIGURES
from planner.report.terminal import PLAIN, Color, Style, table
from planner.review import wording
from planner.review.headline import headline, next_steps
from planner.review.policy import POLICY
from planner.review.review import Edit, Finding, Review, ReviewedModel, ReviewedScenario
from planner.review.trend import REPORT
from planner.spec.printable import printable

_STATES = {"kept": "ok", "unchecked": "not compared"}
_MARKS: Mapping[str, tuple[str, Color]] = {"new": ("+", "green"), "removed": ("-", "red"), "unreadable": ("!", "red")}
_CHANGED: tuple[str, Color] = ("~", "yellow")


def text(review: Review, style: Style = PLAIN) -> str:
    """Return the whole review, which ends with a line feed."""
    return "\n".join(_lines(review, style)) + "\n"


def _lines(review: Review, style: Style) -> Iterator[str]:
    first, summary = headline(review), wording.summary(review)
    yield from [style.bold(printable(first))] if first != summary else []
    counted = [] if first != summary and not review.changed else [summary]  # the headline has it
    yield printable(" ".join(filter(None, (f"Against {review.base}:", *counted, wording.verdict(review)))).removesuffix(":"))
    statuses = wording.budget_statuses(review)
    for model in review.changed:
        yield ""
        yield from _model(model, statuses, style)
    yield from _list(f"Changes of {POLICY}", list(_edits(review.policy_edits, style)), style)
    yield from _list("Findings", [line for one in review.findings for line in _finding(one, style)], style)
    yield from _list("Next", [printable(f"{one.what} {one.code}".rstrip()) for one in next_steps(review)], style)
    yield from _list(f"Trend of {REPORT}, up to this change", list(map(printable, wording.trends(review))), style)
    yield from _list("Waivers", [printable(wording.waiver(*waiver)) for waiver in review.waivers], style)
    yield from _list("Formula updates (same spec, new result)", [printable(wording.formula(one)) for one in review.formulas], style)
    yield from _list("Notes", list(map(printable, review.notes)), style)
    if review.changed:
        yield from _list("Unchanged", list(map(printable, wording.unchanged(review))), style)


def _list(title: str, lines: Sequence[str], style: Style) -> Iterator[str]:
    if lines:
        yield from ("", style.bold(title))
        yield from (f"  {line}" for line in lines)


def _finding(one: Finding, style: Style) -> Iterator[str]:
    message, *more = map(printable, wording.sentences(one))
    yield f"{wording.origin(one, style)}: {message}"
    yield from (f"  {line}" for line in more)


def _mark(status: str, style: Style) -> str:
    return style.paint(*_MARKS.get(status, _CHANGED))


def _edits(edits: Sequence[Edit], style: Style) -> Iterator[str]:
    for one, line in zip(edits, wording.numbered(edits), strict=True):
        yield f"{_mark('new' if not one.before else 'changed' if one.after else 'removed', style)} {printable(line)}"


def _model(model: ReviewedModel, statuses: wording.BudgetStatuses, style: Style) -> Iterator[str]:
    yield f"{_mark(model.status, style)} {style.bold(printable(f'{model.name} ({model.path}): {wording.status(model)}'))}"
    yield from (f"  {line}" for line in _edits(model.edits, style))
    for row in model.rows:
        if row.status == "unchanged":
            yield f"  {printable(row.scenario)}: no metric changed"
            continue
        if len(model.rows) > 1 or row.scenario != "base":
            yield printable(f"  scenario {row.scenario}")
        yield from (f"  {line}" for line in table(*_table(model, row), style))
        for budget, state in statuses.get((model.name, row.scenario), ()):
            shown = _STATES.get(state, f"exceeded ({state})")
            colored = style.paint(shown, "red" if state == "error" else "yellow") if state not in _STATES else shown
            yield f"  {printable(f'budget {budget}: ')}{colored}"
    if not model.rows and model.edits:
        yield "  no metric changed"


def _table(model: ReviewedModel, row: ReviewedScenario) -> tuple[Sequence[str], str, list[Sequence[str]]]:
    lines: list[Sequence[str]] = []
    if row.before is None or row.after is None:
        values = row.after or row.before or {}
        own = {name: value for name, value in values.items() if value and name in FIGURES and not wording.repeats(model, row, name)}
        lines += [(name, quantity.rounded(FIGURES[name], value), row.status) for name, value in own.items()]
        return ("metric", "", ""), "lrl", lines
    for change in wording.own_changes(model, row):
        before, after = quantity.pair(FIGURES[change.figure], change.before, change.after)
        lines.append((change.figure, before, "→", after, wording.change(change), wording.moved_by(change)))
    moved = "cause" if any(line[-1] for line in lines) else ""
    return ("metric", "before", "", "after", "change", moved), "lrlrll", lines
