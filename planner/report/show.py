"""``planner show``: one model's breakdown as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby

from planner.capacity.explain import Explanation
from planner.capacity.records import Plan
from planner.report import breakdown, paths, units
from planner.report.breakdown import Section
from planner.report.terminal import PLAIN, Style, printable, table
from planner.spec.records import Spec

_BRANCH, _LAST, _TRUNK, _SPACE = "├─ ", "└─ ", "│  ", "   "


def tree(spec: Spec, plan: Plan, extra: Sequence[Section] = (), style: Style = PLAIN) -> str:
    """Write everything about one plan of a spec; ``extra`` are further sections, shapes or tensors."""
    sections = (
        breakdown.model_settings(spec),
        breakdown.training_settings(spec, plan),
        breakdown.parameters(plan),
        breakdown.model_states(plan),
        breakdown.activations(plan),
        breakdown.peak(plan),
        breakdown.flops(plan),
        breakdown.conventions(plan),
        breakdown.expectations(plan),
        *extra,
        breakdown.not_counted(plan),
        breakdown.waivers(spec),
        Section("Sources", notes=spec.sources),
    )
    shown = [section for section in sections if section.rows or section.notes]
    title = f"{printable(spec.name)}, scenario {printable(plan.scenario)} ({printable(paths.shown(spec.path))})"
    description = [_TRUNK + printable(spec.description)] if spec.description else []
    branches = [*([_section(section, _BRANCH, _TRUNK, style) for section in shown[:-1]]), _section(shown[-1], _LAST, _SPACE, style)]
    return "\n".join([style.bold(title), *description, *chain.from_iterable(branches), ""])


def explanations(explained: Sequence[Explanation], style: Style = PLAIN) -> str:
    """Write where each figure comes from, group by group: its formula, the numbers put in, and its source."""
    return "\n".join(line for group, members in groupby(explained, lambda one: one.group) for line in _group(group, members, style))


def _group(name: str, members: Iterable[Explanation], style: Style) -> Iterator[str]:
    yield style.bold(f"Where {printable(name)} come from")
    yield ""
    for one in members:
        yield style.bold(f"{printable(one.figure)} = {units.exact(one.value)} {printable(one.unit)}")
        yield f"{_TRUNK}formula  {printable(one.formula)}"
        yield f"{_TRUNK}numbers  {printable(one.substituted)}"
        yield f"{_TRUNK}source   {printable(one.source)}"
        yield ""


def _section(section: Section, branch: str, trunk: str, style: Style) -> Iterator[str]:
    yield branch + style.bold(printable(section.title))
    rows = [*section.rows, *([section.total] if section.total else [])]
    leaves = len(rows) + len(section.notes)
    marks = [_LAST if number == leaves else _BRANCH for number in range(1, leaves + 1)]
    if rows:
        headings = (_SPACE + section.headings[0], *section.headings[1:])
        marked = [(mark + first, *rest) for mark, (first, *rest) in zip(marks, rows, strict=False)]
        yield from (trunk + line for line in table(headings, section.align, marked, style))
    for mark, note in zip(marks[len(rows) :], section.notes, strict=True):
        yield trunk + mark + printable(note)
