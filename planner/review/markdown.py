"""A review as the comment of a pull request: GitHub-flavoured Markdown that stays under GitHub's limit.

What does not fit is dropped in this order: the names of unchanged models; the folded tables of figures, the last model's first; why figures
changed, the last model's first; waivers and notes; rows of the overview, the last first; findings, the last first. Findings never take more
than half of the room. A last line says what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote

from planner.report import quantity, units
from planner.report.columns import FIGURES, OVERVIEW
from planner.report.markdown import escape
from planner.report.overview import label
from planner.review import wording
from planner.review.review import Edit, Finding, Review, ReviewedModel, ReviewedScenario
from planner.spec.records import Place

T = TypeVar("T")

LIMIT = 65_000  # GitHub takes 65,536 characters
_RESERVE = 700  # for the last line, and for what closes a table
_UNIT = re.compile(r"(?<=\d) (?=[A-Za-z%])| (?=→)")
_AS_IT_WAS = ReviewedScenario("base", "unchanged", {}, {})  # of a model without rows
_MARKS = {"error": "❌", "warning": "⚠️", "waived": "🔕", "kept": "✅"}


@dataclass(slots=True)
class _Room:
    """How many characters are left, and what has been left out."""

    left: int
    missing: dict[str, int] = field(default_factory=dict)

    def fit(self, things: Iterable[T], tell: Callable[[T], str], what: str) -> list[str]:
        """Return as many of the things, told, as fit, from the first one on; the others are noted as missing."""
        kept: list[str] = []
        for thing in things:
            part = "" if what in self.missing else tell(thing)
            size = _size(part) + 1
            if what in self.missing or size > self.left:
                self.missing[what] = self.missing.get(what, 0) + 1
            else:
                self.left -= size
                kept.append(part)
        return kept


def markdown(review: Review, blob: str = "", limit: int = LIMIT) -> str:
    """Write the comment; it ends with a line feed. ``blob`` is where the files of this revision are on the web, and makes places links."""
    head = [*_head(review)]
    room = _Room(limit - sum(_size(line) + 1 for line in head) - _RESERVE)
    figures, standings = wording.headlines(review), wording.standings(review)
    rows_of = ((model, row) for model in review.changed for row in model.rows or (_AS_IT_WAS,))
    half = _Room(room.left // 2, room.missing)
    findings = half.fit(review.findings, lambda finding: _finding(finding, blob), "findings")
    room.left -= sum(map(_size, findings)) + len(findings)
    rows = room.fit(rows_of, lambda pair: _overview(*pair, figures, standings), "rows of the overview")
    notes = room.fit(_notes(review), str, "waivers and notes")
    why = room.fit((model for model in review.changed if model.edits), lambda model: "\n".join(_why(model, blob)), "explanations")
    folded = room.fit((model for model in review.changed if model.rows), lambda model: "\n".join(_details(model)), "tables of figures")
    unchanged = room.fit(_unchanged(review), str, "lists of unchanged models")
    sections = [
        "\n".join(head),
        _section("Findings", [_line(("", "finding", "where")), _line(("---",) * 3), *findings] if findings else []),
        _section("Changes", [*_heading(figures, standings), *rows] if rows else []),
        _section("Why", why, gap="\n\n"),
        "\n\n".join(folded),
        "\n".join(notes),
        "\n".join(unchanged),
        _missing(room.missing),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _size(text: str) -> int:
    """Count characters as GitHub may: those beyond the basic plane are two."""
    return len(text.encode("utf-16-le")) // 2


def _head(review: Review) -> Iterator[str]:
    yield "## Model capacity"
    yield ""
    yield f"**{escape(wording.summary(review))}** {escape(wording.verdict(review))}".rstrip()
    yield ""
    yield f"Compared with {escape(review.base)}. Memory is per device; B = 10⁹, GiB = 2³⁰ bytes, 1 multiply-add = 2 FLOPs."


def _section(title: str, parts: Sequence[str], gap: str = "\n") -> str:
    return f"### {title}\n\n{gap.join(parts)}" if parts else ""


def _finding(finding: Finding, blob: str) -> str:
    return _line((_MARKS[finding.severity], escape(wording.finding(finding)), _place(finding.place, blob)))


def _heading(figures: Sequence[str], standings: wording.Standings) -> Iterator[str]:
    budget = ("budget",) if standings else ()
    yield _line(("model", *budget, *(OVERVIEW[figure].heading for figure in figures)))
    yield _line(("---", *("---" for _ in budget), *("--:" for _ in figures)))


def _overview(model: ReviewedModel, row: ReviewedScenario, figures: Sequence[str], standings: wording.Standings) -> str:
    plain = model.status in ("changed", "new", "removed") and not model.note and not model.moved_from
    name = f"**{escape(label(model.name, row.scenario))}**" + ("" if plain else f"<br>{escape(wording.status(model))}")
    budgets = (f"{_MARKS[state]} {escape(budget)}" for budget, state in standings.get((model.name, row.scenario), ()))
    cells = (wording.cell(row, figure) for figure in figures)
    figures_told = (_whole(f"{cell.figure}<br>{cell.change}" if cell.change else cell.figure) for cell in cells)
    return _line((name, *(("<br>".join(budgets),) if standings else ()), *figures_told))


def _why(model: ReviewedModel, blob: str) -> Iterator[str]:
    """Yield what moved the figures of a changed model, as a list."""
    yield f"**{escape(model.name)}**"
    yield ""
    if not any(row.changes for row in model.rows):
        yield from (f"- {_edit(edit, blob)}: no metric changed" for edit in model.edits)
    for row in model.rows:
        scenario = f" ({escape(row.scenario)})" if row.scenario != "base" else ""
        for reason in wording.reasons(model, row, {name: column.heading for name, column in OVERVIEW.items()}):
            said = " and ".join(_edit(edit, blob) for edit in reason.edits) or "interaction of the changes above"
            moves = ", ".join(f"{name} {_whole(by)}" for name, by in reason.moves)
            yield f"- {said}{scenario}: {moves}"


def _edit(edit: Edit, blob: str) -> str:
    setting, values, _ = wording.edit(edit)
    return f"<code>{escape(setting)}</code> {escape(values)}{f', {_place(edit.place, blob)}' if edit.place else ''}"


def _details(model: ReviewedModel) -> Iterator[str]:
    """Yield every figure of a changed model, folded."""
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
            yield f"Scenario {escape(row.scenario)}:"
            yield ""
        yield from _figures(row)
    yield ""
    yield "</details>"


def _figures(row: ReviewedScenario) -> Iterator[str]:
    if row.before is None or row.after is None:
        yield _line(("metric", row.status, "exact value"))
        yield _line(("---", "--:", "--:"))
        for name, value in (row.after or row.before or {}).items():
            if value and name in FIGURES:
                yield _line((name, _whole(quantity.rounded(FIGURES[name], value)), units.exact(value)))
        return
    yield _line(("metric", "before", "after", "change", "cause"))
    yield _line(("---", "--:", "--:", "--:", "---"))
    for change in row.changes:
        before, after = quantity.pair(FIGURES[change.figure], change.before, change.after)
        moved = wording.moved_by(change)
        yield _line((change.figure, *map(_whole, (before, after, wording.said(change), moved))))


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
    said = ", ".join(f"{units.exact(number)} {what}" for what, number in missing.items())
    return f"_Omitted to fit GitHub's comment limit: {said}. The full review is in the run's artifact (review.json) and in `planner diff`._"


def _whole(text: str) -> str:
    """Keep a number, its unit and the arrow behind it on one line."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _place(place: Place, blob: str) -> str:
    shown = escape(wording.where(place))
    return f'<a href="{blob}/{quote(place.file)}#L{place.line}">{shown}</a>' if blob and place.line else shown
