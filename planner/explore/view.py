"""The pivot table of a sweep, for Markdown and terminals, and its chart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from math import prod
from typing import TypeVar

from planner.capacity.plan import PADDED_TOKENS
from planner.explore.axes import Axis
from planner.explore.table import STEP, Sweep, cells
from planner.report import markdown, omitted, quantity, units
from planner.report.columns import CLAIMABLE
from planner.report.html import markup
from planner.report.terminal import PLAIN, Style, cells_of, table
from planner.spec.printable import printable

_ROWS, _ROWS_OF_TEXT, _TABLES = 40, 20, 6  # of a pivot
_COLUMNS = 8  # of values
_LINES = 8  # of a chart
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 620, 40, 330  # its frame, in pixels
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")  # Okabe and Ito's, and grey
_DASHES = ("", "6 3", "2 2", "8 2 2 2")

Value = int | str
T = TypeVar("T")
_NO_AXIS = Axis("", ("",))


@dataclass(frozen=True, slots=True)
class Pivot:
    """The layout of a grid: one axis down, one across, and a table for each combination of the others."""

    down: Axis
    across: Axis  # _NO_AXIS if all others have one value
    others: tuple[Axis, ...]
    at: Callable[[Mapping[str, Value]], int | None]  # the metric at a point, by the axes' keys; None where that is impossible


def pivot(made: Sweep, figure: str) -> Pivot:
    """Lay out a metric: the numeric axis with most values goes down, the next one across."""
    axes = [axis for axis in made.axes if len(axis.values) > 1] or [made.axes[-len(STEP)]]
    down, *rest = sorted(axes, key=lambda axis: (not axis.is_numeric, -len(axis.values)))
    across, *others = rest or [_NO_AXIS]
    return Pivot(down, across, tuple(others), partial(made.at, figure))


def _evenly(values: Sequence[T], most: int) -> list[T]:
    """Pick values evenly, the first among them, and the last if there is room for two."""
    if len(values) <= most:
        return list(values)
    return [values[number * (len(values) - 1) // max(1, most - 1)] for number in range(most)]


def picked(values: Sequence[Value], most: int) -> list[Value]:
    """Pick the first and the last value and round ones: powers of two, then multiples of as large a one as there is room for.

    If few are round, the values are picked evenly.
    """
    numbers = [value for value in values if isinstance(value, int)]
    if len(values) <= most or len(numbers) < len(values):
        return _evenly(values, most)
    ends = {numbers[0], numbers[-1]}
    chosen = ends | {number for number in numbers if number & (number - 1) == 0}
    if len(chosen) > most:
        return _evenly([number for number in numbers if number in chosen], most)
    for power in reversed(range(max(numbers).bit_length())):
        more = chosen | {number for number in numbers if number % (1 << power) == 0}
        if len(more) > most:
            break
        chosen = more
    return [number for number in numbers if number in chosen] if 2 * len(chosen) > most else _evenly(values, most)


def _tables(made: Sweep, figure: str, rows_of_table: int, columns: int) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield the title, headings and rows of each table, which has at most so many rows, and columns of values."""
    laid = pivot(made, figure)
    across = picked(laid.across.values, columns)
    for combination in islice(product(*(axis.values for axis in laid.others)), _TABLES):
        fixed = {axis.key: value for axis, value in zip(laid.others, combination, strict=True)}
        what = ", ".join(f"{axis.name} = {_text(fixed[axis.key])}" for axis in laid.others)
        heads = [laid.down.name, *(_heading(laid.across, value, figure) for value in across)]
        rows = []
        for value in picked(laid.down.values, rows_of_table):
            points = [{**fixed, laid.down.key: value, laid.across.key: other} for other in across]
            rows.append([_text(value), *(rounded(figure, laid.at(point)) for point in points)])
        yield what, heads, rows


def _heading(axis: Axis, value: Value, otherwise: str) -> str:
    name = {"batch_size": "B", "sequence_length": "n"}.get(axis.name, axis.name)
    return otherwise if axis is _NO_AXIS else f"{name} = {_text(value)}"


def _text(value: Value) -> str:
    return units.exact(value) if isinstance(value, int) else value


def rounded(figure: str, value: int | None) -> str:
    """Format a metric of a sweep, rounded, with its unit."""
    if value is None:
        return "–"
    column = CLAIMABLE.get(figure)
    return quantity.rounded(column, value) if column else units.flops(value)


def text(made: Sweep, figure: str, style: Style = PLAIN, width: int = 80) -> str:
    """Return the pivot for a terminal, with as many columns as fit its width."""
    head = f"{printable(made.model)}: {figure} at {units.exact(made.points)} points"
    for across in range(_COLUMNS, 0, -1):
        tables = list(_tables(made, figure, _ROWS_OF_TEXT, across))
        lines = [(printable(what), list(table(heads, "r" * len(heads), rows, style))) for what, heads, rows in tables]
        if max(cells_of(line) for _, of_table in lines for line in of_table) <= width:
            break
    shown = [line for what, of_table in lines for line in ("", *([what] if what else []), *of_table)]
    return "\n".join((head, *shown, *_omitted(made, figure, _ROWS_OF_TEXT, across), "", *map(printable, _notes(made)), ""))


def as_markdown(made: Sweep, figure: str) -> str:
    """Return the pivot as Markdown."""
    lines = [f"# {markdown.escape(made.model)}: {figure}", "", f"{units.exact(made.points)} points; all of them are in `sweep.csv`."]
    for what, heads, rows in _tables(made, figure, _ROWS, _COLUMNS):
        lines += ["", *([f"**{markdown.escape(what)}**", ""] if what else [])]
        lines += markdown.table(heads, "r" * len(heads), rows)
    return "\n".join((*lines, *_omitted(made, figure, _ROWS, _COLUMNS), "", *(f"{markdown.escape(note)}  " for note in _notes(made)), ""))


def _notes(made: Sweep) -> tuple[str, ...]:
    return (*omitted.lines([(made.model, made.omits)]), omitted.UNPADDED)


def _omitted(made: Sweep, figure: str, rows: int, columns: int) -> list[str]:
    laid = pivot(made, figure)
    tables = prod(len(axis.values) for axis in laid.others)
    fits = len(laid.down.values) <= rows and len(laid.across.values) <= columns and tables <= _TABLES
    return [] if fits else ["", "A selection of the points, round values first; sweep.csv has all of them."]


def as_json(made: Sweep) -> Iterator[str]:
    """Yield the grid as JSON in pieces: the columns, and a row per point."""
    head = {"model": made.model, "columns": made.columns, "not_counted": (*made.omits, PADDED_TOKENS)}
    yield json.dumps(head, ensure_ascii=False, indent=1).removesuffix("\n}") + ',\n "rows": ['
    for number, row in enumerate(cells(made)):
        yield f"{',' if number else ''}\n  {json.dumps(row, ensure_ascii=False)}"
    yield "\n ]\n}\n"


def chart(made: Sweep, figure: str) -> str:
    """Draw the first table of the pivot as SVG, a curve per column."""
    laid = pivot(made, figure)
    fixed = {axis.key: axis.values[0] for axis in laid.others}
    across = picked(laid.across.values, _LINES)
    down = [value for value in _evenly(laid.down.values, 200) if isinstance(value, int)]
    every = [[(value, laid.at({**fixed, laid.across.key: other, laid.down.key: value})) for value in down] for other in across]
    curves = [[(x, y) for x, y in curve if y is not None] for curve in every]
    title = f"{made.model}: {figure} over {laid.down.name}"
    fixed_values = "".join(f", {axis.name} = {_text(axis.values[0])}" for axis in laid.others)
    names = [_heading(laid.across, other, title) for other in across]
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 380" role="img" font-family="sans-serif" font-size="12">'
    parts = [
        head,
        f"<title>{markup.text(title)}</title>",
        f"<desc>{markup.text(f'{figure} over {laid.down.name}{fixed_values}; the values are in sweep.csv')}</desc>",
        '<rect width="800" height="380" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{markup.text(title + fixed_values)}</text>',
        *_drawn(curves, names, figure),
        f'<text x="{_LEFT}" y="372">{markup.text(" ".join(_notes(made)))}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _drawn(curves: Sequence[Sequence[tuple[int, int]]], names: Sequence[str], figure: str) -> Iterator[str]:
    along = sorted({x for curve in curves for x, _ in curve})
    if len(along) < 2:  # noqa: PLR2004 - a curve has two ends
        yield f'<text x="{_LEFT}" y="{_TOP + 20}">only one point; no chart</text>'
        return
    low, high = min(y for curve in curves for _, y in curve), max(y for curve in curves for _, y in curve)
    first, last = along[0], along[-1]
    low, high = max(1, low), max(high, low + 1)
    for number in range(5):
        value = low + (high - low) * number // 4
        y = _BOTTOM - units.along(value - low, high - low, _BOTTOM - _TOP)
        yield f'<path d="M{_LEFT},{y}H{_RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{rounded(figure, value)}</text>'
    for anchor, x, value in (("start", _LEFT, first), ("end", _RIGHT, last)):
        yield f'<text x="{x}" y="{_BOTTOM + 20}" text-anchor="{anchor}">{units.exact(value)}</text>'
    for number, (curve, name) in enumerate(zip(curves, names, strict=True)):
        points = " ".join(
            f"{_LEFT + units.along(x - first, last - first, _RIGHT - _LEFT)},{_BOTTOM - units.along(y - low, high - low, _BOTTOM - _TOP)}"
            for x, y in curve
        )
        color, dash = _COLORS[number], _DASHES[number % len(_DASHES)]
        stroke = f'stroke="{color}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")
        y = _TOP + 10 + 18 * number
        yield f'<polyline points="{points}" fill="none" {stroke}/>'
        yield f'<path d="M{_RIGHT + 14},{y - 4}h22" {stroke}/><text x="{_RIGHT + 42}" y="{y}">{markup.text(name)}</text>'
