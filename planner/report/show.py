"""``planner show``: a model's breakdown as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from planner.capacity.explain import Explanation
from planner.capacity.figures import Plan
from planner.report import breakdown, devices, served, time, units
from planner.report.breakdown import Section
from planner.report.paths import display_path
from planner.report.terminal import GAP, PLAIN, Style, cells_of, table
from planner.spec.printable import printable
from planner.spec.records import Spec

_BRANCH, _LAST, _TRUNK, _SPACE = "├─ ", "└─ ", "│  ", "   "


def tree(spec: Spec, plan: Plan, extra: Sequence[Section] = (), style: Style = PLAIN, width: int | None = None) -> str:
    """Return the figures of a plan, ``extra`` sections and the settings as a tree.

    Beyond ``width`` cells words wrap and names are shortened, never numbers.
    """
    figures = (
        breakdown.parameters(plan),
        breakdown.model_states(plan),
        breakdown.activations(plan),
        breakdown.peak(plan),
        *(make(plan) for make in devices.SECTIONS),
        devices.remedies(spec, plan),
        time.section(plan),
        served.section(plan),
        breakdown.flops(plan),
        breakdown.prediction(plan),
        breakdown.conventions(plan),
        breakdown.expectations(plan),
        *extra,
        breakdown.accuracy(plan),
        breakdown.not_counted(plan),
        breakdown.waivers(spec),
    )
    return _tree(spec, plan, (*figures, *_settings(spec, plan), Section("Sources", notes=spec.sources)), style, width)


def sections(titled: Iterable[tuple[str, Section]], style: Style = PLAIN) -> str:
    """Return sections as tables, each under a title."""
    blocks = (
        ("", style.bold(f"{printable(title)}: {one.title}"), *table(one.headings, one.align, one.rows, style)) for title, one in titled
    )
    return "".join(f"{line}\n" for block in blocks for line in block)


def settings(spec: Spec, plan: Plan, style: Style = PLAIN, width: int | None = None) -> str:
    """Return only the settings as a tree."""
    return _tree(spec, plan, _settings(spec, plan), style, width)


def _settings(spec: Spec, plan: Plan) -> tuple[Section, ...]:
    return breakdown.model_settings(spec), breakdown.training_settings(spec, plan), *breakdown.layout_settings(spec, plan)


def _tree(spec: Spec, plan: Plan, sections: Iterable[Section], style: Style, width: int | None) -> str:
    shown = [section for section in sections if section.rows or section.notes]
    title = f"{printable(spec.name)}, scenario {printable(plan.scenario)} ({printable(display_path(spec.path))})"
    description = _wrapped(spec.description, _TRUNK, _TRUNK, width) if spec.description else []
    inner = (line for section in shown[:-1] for line in _section(section, _BRANCH, _TRUNK, style, width))
    return "\n".join([style.bold(title), *description, *inner, *_section(shown[-1], _LAST, _SPACE, style, width), ""])


def explanations(explained: Sequence[Explanation], style: Style = PLAIN) -> str:
    """Return each metric's formula, substituted values and source, group by group."""
    return "\n".join(line for group, members in groupby(explained, lambda one: one.group) for line in _group(group, members, style))


def _group(name: str, members: Iterable[Explanation], style: Style) -> Iterator[str]:
    yield style.bold(f"Formulas: {printable(name)}")
    yield ""
    for one in members:
        yield style.bold(f"{printable(one.figure)} = {units.exact(one.value)} {printable(one.unit)}")
        yield f"{_TRUNK}formula  {printable(one.formula)}"
        yield f"{_TRUNK}numbers  {printable(one.substituted)}"
        yield f"{_TRUNK}source   {printable(one.source)}"
        yield ""


def _section(section: Section, branch: str, trunk: str, style: Style, width: int | None) -> Iterator[str]:
    yield branch + style.bold(printable(section.title))
    rows = [*section.rows, *([section.total] if section.total else [])]
    leaves = len(rows) + len(section.notes)
    marks = [_LAST if number == leaves else _BRANCH for number in range(1, leaves + 1)]
    if rows:
        headings = (_SPACE + section.headings[0], *section.headings[1:])
        marked = [(mark + first, *rest) for mark, (first, *rest) in zip(marks, rows, strict=False)]
        yield from (trunk + line for line in _table(headings, section.align, marked, style, None if width is None else width - len(trunk)))
    for mark, note in zip(marks[len(rows) :], section.notes, strict=True):
        yield from _wrapped(note, trunk + mark, trunk + (_SPACE if mark == _LAST else _TRUNK), width)


def _wrapped(note: str, first: str, further: str, width: int | None) -> list[str]:
    """Wrap a note between words; a word wider than a line, such as a URL, is not broken."""
    text = printable(note)
    if width is None:
        return [first + text]
    return wrap(text, width, initial_indent=first, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def _table(headings: Sequence[str], align: str, rows: Sequence[Sequence[str]], style: Style, width: int | None) -> Iterable[str]:
    """Yield a table; if it is too wide, with two-line headings, then with columns of text shortened."""
    if width is None or _width(table(headings, align, rows)) <= width:
        return table(headings, align, rows, style)
    upper, lower = zip(*map(_stacked, headings), strict=True)
    stacked = [lower, *rows] if any(upper) else rows
    headings = upper if any(upper) else lower
    gap = GAP if _width(table(headings, align, stacked)) <= width else " "
    return table(headings, align, stacked, style, width, gap)


def _width(lines: Iterable[str]) -> int:
    return max(map(cells_of, lines), default=0)


def _stacked(heading: str) -> tuple[str, str]:
    """Put a heading's last word under the words before it."""
    before, _, last = heading.rpartition(" ")
    return (before, last) if before.strip() else ("", heading)
