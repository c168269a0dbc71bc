"""A review as a pull-request comment: GitHub-flavored Markdown within a size limit.

If it is too long, parts are omitted in this order: names of unchanged models; folded tables of metrics; explanations; waivers and notes;
trends; changes of the policy; rows of the overview; findings, which use at most half of the space. Of each, the last ones are omitted
first. A last line lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote

from planner.report import quantity, units
from planner.report.columns import FIGURES, OVERVIEW
from planner.report.markdown import escape, line_of
from planner.report.overview import label
from planner.review import wording
from planner.review.headline import headline, next_steps
from planner.review.policy import POLICY
from planner.review.review import Edit, Finding, Review, ReviewedModel, ReviewedScenario
from planner.review.trend import REPORT
from planner.spec.edits import REQUIREMENTS
from planner.spec.records import Place

T = TypeVar("T")

LIMIT = 65_000  # GitHub's limit is 65,536 characters
_RESERVE = 900  # for the last lines, and for the headings of tables
_HEADING = ("| model | before | after | change |", "| --- | --: | --: | --: |")
_UNITS = "<sub>Memory is per device. B = 10⁹, GiB = 2³⁰ bytes, 1 multiply-add = 2 FLOPs.</sub>"
_UNIT = re.compile(r"(?<=\d) (?=[A-Za-z%])| (?=→)")
_UNCHANGED = ReviewedScenario("base", "unchanged", {}, {})  # of a model without rows
_MARKS = {"error": "❌", "warning": "⚠️", "waived": "🔕", "kept": "✅", "unchecked": "–"}


@dataclass(slots=True)
class _Space:
    """The number of characters left, and the number of omitted parts by kind."""

    left: int
    missing: dict[str, int] = field(default_factory=dict)

    def fit(self, things: Iterable[T], form: Callable[[T], str], what: str) -> list[str]:
        """Return the formatted things that fit, from the first one on, and count the others as missing."""
        fitting: list[str] = []
        for thing in things:
            part = "" if what in self.missing else form(thing)
            size = _size(part) + 1
            if what in self.missing or size > self.left:
                self.missing[what] = self.missing.get(what, 0) + 1
            else:
                self.left -= size
                fitting.append(part)
        return fitting


def markdown(review: Review, blob: str = "", limit: int = LIMIT) -> str:
    """Return the comment, which ends with a line feed. ``blob``, the base URL of the files, turns locations into links."""
    head = [*_head(review)]
    space = _Space(limit - sum(_size(line) + 1 for line in head) - _RESERVE)
    figures, statuses = wording.headlines(review), wording.budget_statuses(review)
    rows_of = ((model, row) for model in review.changed for row in model.rows or (_UNCHANGED,))
    half = _Space(space.left // 2, space.missing)
    findings = half.fit(review.findings, lambda finding: _finding(finding, blob), "findings")
    space.left -= sum(map(_size, findings)) + len(findings)
    rows = space.fit(rows_of, lambda pair: _overview(*pair, figures, statuses), "rows of the overview")
    policy = space.fit(enumerate(review.policy_edits, 1), lambda one: f"{one[0]}. {_edit(one[1], blob)}", "changes of the policy")
    trends = space.fit(wording.trends(review), lambda line: f"- {_whole(escape(line))}", "trends")
    notes = space.fit(_notes(review), str, "waivers and notes")
    why = space.fit((model for model in review.changed if model.edits), lambda model: "\n".join(_why(model, blob)), "explanations")
    folded = space.fit((model for model in review.changed if model.rows), lambda model: "\n".join(_details(model)), "tables of metrics")
    unchanged = space.fit(_unchanged(review), str, "lists of unchanged models")
    sections = [
        "\n".join(head),
        _section("Findings", [line_of(("", "finding", "where")), line_of(("---",) * 3), *findings] if findings else []),
        _section("Changes", [*_HEADING, *rows] if rows else []),
        _section(f"Changes of {POLICY}", policy),
        _section("Why", why, gap="\n\n"),
        _section(f"Trend of {REPORT}, up to this change", trends),
        "\n\n".join(folded),
        "\n".join(notes),
        "\n".join(unchanged),
        _UNITS,
        _missing(space.missing),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _size(text: str) -> int:
    """Count UTF-16 code units, as GitHub may."""
    return len(text.encode("utf-16-le")) // 2


def _head(review: Review) -> Iterator[str]:
    first, summary = headline(review), wording.summary(review)
    yield from ("## Model capacity", "", f"**{escape(first)}**", "")
    counted = filter(
        None, (summary if first != summary and review.changed else "", wording.verdict(review), f"Compared with {review.base}.")
    )
    yield escape(" ".join(counted))
    if steps := next_steps(review):
        yield from ("", "**Next:**", *(f"- {escape(one.what)}{one.code and f' <code>{escape(one.code)}</code>'}" for one in steps))


def _section(title: str, parts: Sequence[str], gap: str = "\n") -> str:
    return f"### {title}\n\n{gap.join(parts)}" if parts else ""


def _finding(finding: Finding, blob: str) -> str:
    return line_of((_MARKS[finding.severity], "<br>".join(map(escape, wording.sentences(finding))), _place(finding.place, blob)))


def _overview(model: ReviewedModel, row: ReviewedScenario, figures: Sequence[str], statuses: wording.BudgetStatuses) -> str:
    """Return the row of the name and its budgets, then a row per metric that has a value."""
    plain = model.status == "changed" and not (model.note or model.moved_from or model.renamed_from)
    name = f"**{escape(label(model.name, row.scenario))}**" + ("" if plain else f"<br>{escape(wording.status(model))}")
    by_state: dict[str, list[str]] = {}
    for budget, state in statuses.get((model.name, row.scenario), ()):
        by_state.setdefault(state, []).append(escape(budget))
    budgets = "<br>".join(f"{_MARKS[state]} {', '.join(names)}" for state, names in by_state.items())
    return "\n".join(map(line_of, [(name, "", "", budgets), *_metrics(model, row, figures)]))


def _metrics(model: ReviewedModel, row: ReviewedScenario, figures: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    if row.status == "unchanged":
        yield "no metric changed", "", "", ""
        return
    for figure in figures:
        cells = wording.cells(row, figure)
        after = cells.after if cells.after in ("", "=") else f"**{_whole(cells.after)}**"
        if (cells.after or cells.before) and not wording.repeats(model, row, figure):
            yield OVERVIEW[figure].heading, _whole(cells.before), after, _whole(cells.change)


def _why(model: ReviewedModel, blob: str) -> Iterator[str]:
    """Yield the causes of a model's changes, as a list."""
    yield f"**{escape(model.name)}**"
    yield ""
    still = not any(row.changes for row in model.rows)
    yield from (f"- {_edit(edit, blob)} — no metric changed" for edit in model.edits if still or edit.setting.startswith(REQUIREMENTS))
    for row in model.rows:
        scenario = f" ({escape(row.scenario)})" if row.scenario != "base" else ""
        for reason in wording.reasons(model, row, {name: column.heading for name, column in OVERVIEW.items()}):
            cause = " and ".join(_edit(edit, blob) for edit in reason.edits) or "interaction of the changes above"
            moves = ", ".join(f"{name} {_whole(by)}" for name, by in reason.moves)
            yield f"- {cause}{scenario} — {moves}"  # a colon would make an emoji of some locations


def _edit(edit: Edit, blob: str) -> str:
    setting, values, _ = wording.edit(edit)
    return f"<code>{escape(setting)}</code> {escape(values)}{f', {_place(edit.place, blob)}' if edit.place else ''}"


def _details(model: ReviewedModel) -> Iterator[str]:
    """Yield every metric of a changed model, folded."""
    yield "<details>"
    yield f"<summary>{escape(model.name)}, all metrics</summary>"
    if model.edits:
        yield ""
        yield from (f"{number}. {_edit(edit, '')}" for number, edit in enumerate(model.edits, 1))
    for row in model.rows:
        if row.status == "unchanged":
            continue
        yield ""
        if len(model.rows) > 1 or row.scenario != "base":
            yield f"Scenario {escape(row.scenario)}"
            yield ""
        yield from _figures(model, row)
    yield ""
    yield "</details>"


def _figures(model: ReviewedModel, row: ReviewedScenario) -> Iterator[str]:
    if row.before is None or row.after is None:
        yield line_of(("metric", row.status, "exact value"))
        yield line_of(("---", "--:", "--:"))
        for name, value in (row.after or row.before or {}).items():
            if value and name in FIGURES and not wording.repeats(model, row, name):
                yield line_of((name, _whole(quantity.rounded(FIGURES[name], value)), units.exact(value)))
        return
    yield line_of(("metric", "before", "after", "change", "cause"))
    yield line_of(("---", "--:", "--:", "--:", "---"))
    for change in wording.own_changes(model, row):
        before, after = quantity.pair(FIGURES[change.figure], change.before, change.after)
        moved = wording.moved_by(change)
        yield line_of((change.figure, *map(_whole, (before, after, wording.change(change), moved))))


def _notes(review: Review) -> Iterator[str]:
    yield from (f"- 🔕 {escape(wording.waiver(*waiver))}" for waiver in review.waivers)
    yield from (f"- Formula update, not a model change: {escape(wording.formula(formula))}" for formula in review.formulas)
    yield from (f"- {escape(note)}" for note in review.notes)


def _unchanged(review: Review) -> Iterator[str]:
    same = wording.unchanged(review)
    if same and review.changed:
        yield f"<details>\n<summary>{len(same)} unchanged</summary>\n\n{', '.join(map(escape, same))}\n\n</details>"


def _missing(missing: dict[str, int]) -> str:
    if not missing:
        return ""
    omitted = ", ".join(f"{units.exact(number)} {what}" for what, number in missing.items())
    return (
        f"_Omitted to fit the limit of a comment: {omitted}. The full review is in the run's artifact (review.json) and in `planner diff`._"
    )


def _whole(text: str) -> str:
    """Keep a number, its unit and the arrow behind it on one line."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def _place(place: Place, blob: str) -> str:
    shown = escape(wording.where(place))
    return f'<a href="{blob}/{quote(place.file)}#L{place.line}">{shown}</a>' if blob and place.line else shown
