"""Rows of a comparison as text, Markdown or JSON, and their summary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from planner.report import markdown as md
from planner.report import omitted, units
from planner.report.overview import label
from planner.report.terminal import PLAIN, Style
from planner.report.terminal import table as aligned
from planner.spec.printable import printable
from planner.verify.measured import Compared

_HEADINGS = ("model", "check", "figure", "planner", "PyTorch", "difference", "")
_ALIGN = "lllrrrl"


Omits = Mapping[str, Sequence[str]]  # what a model's spec does not count, by its name


def text(rows: Sequence[Compared], omits: Omits, style: Style = PLAIN, width: int | None = None) -> str:
    """Return a table for a terminal, with the summary and omitted parts of the models below."""
    lines = aligned(_HEADINGS, _ALIGN, map(_cells, rows), style, width) if rows else ()
    return "\n".join([*lines, "", summary(rows), *map(printable, omitted.lines(omits.items())), ""])


def markdown(rows: Sequence[Compared], omits: Omits) -> str:
    """Return a table for GitHub, with the summary and omitted parts of the models above."""
    return "\n".join(
        [
            "  \n".join([summary(rows), *map(md.escape, omitted.lines(omits.items()))]),
            "",
            *md.table(_HEADINGS, _ALIGN, map(_cells, rows)),
            "",
        ]
    )


def as_json(rows: Sequence[Compared], omits: Omits) -> str:
    """Return a list with an object per row, with exact numbers."""
    objects = [asdict(row) | {"difference": row.difference, "agrees": row.agrees, "not_counted": omits.get(row.model, ())} for row in rows]
    return json.dumps(objects, ensure_ascii=False, indent=2) + "\n"


def summary(rows: Sequence[Compared]) -> str:
    """Return in one line how many values were compared, and how many differ."""
    equal = sum(row.ours == row.pytorch for row in rows)
    near = sum(row.agrees for row in rows) - equal
    models = len({row.model for row in rows})
    counted = f"{_number(len(rows), 'value')} compared with PyTorch for {_number(models, 'model')}"
    parts = [f"{equal} equal"]
    if near:
        parts.append(f"{near} within tolerance")
    parts.append(f"{len(rows) - equal - near} different")
    return f"{counted}: {', '.join(parts)}."


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cells(row: Compared) -> tuple[str, ...]:
    state = "equal" if row.ours == row.pytorch else "near" if row.agrees else "DIFFERS"
    name, figure = label(row.model, row.scenario), f"{row.figure}, {row.unit}"
    return name, row.check, figure, _value(row.ours), _value(row.pytorch), _difference(row), state


def _value(value: float | str | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, int):
        return units.exact(value)
    return units.loss(value) if isinstance(value, float) else value


def _difference(row: Compared) -> str:
    difference = row.difference
    if not difference:
        return ""
    sign = "+" if difference > 0 else "−"
    return sign + (units.exact(abs(difference)) if isinstance(difference, int) else units.loss(abs(difference)))
