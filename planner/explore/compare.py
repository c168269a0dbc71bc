"""``planner compare``: metrics, differences and compute-optimal tokens of plans, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from textwrap import fill

from planner.capacity.figures import Plan
from planner.explore import optimal
from planner.report import markdown, omitted, quantity, settings, units
from planner.report.accuracy import accuracy
from planner.report.columns import FIGURES
from planner.report.overview import title
from planner.report.terminal import GAP, PLAIN, Style, shorten, table
from planner.spec.printable import printable

_WIDTH = 80  # cells of a terminal
_LABEL = 24  # of them for the names of metrics, which are shortened to that
_CELL = 32  # of them for a setting, such as a list of layers


@dataclass(frozen=True, slots=True)
class Line:
    """A metric or a setting of each plan; numbers are exact."""

    group: str  # "figures", "tokens", "settings"
    name: str
    unit: str  # of numbers
    values: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Plans side by side."""

    plans: tuple[Plan, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """Their metrics, compute-optimal tokens, and the settings that differ."""
        return lines(self.plans)

    def _repr_markdown_(self) -> str:
        return as_markdown(self.plans)


def lines(plans: Sequence[Plan]) -> tuple[Line, ...]:
    """Return the metrics of the plans, their compute-optimal tokens, and the settings that differ."""
    return (*_figures(plans), *_tokens(plans), *_settings(plans))


def _figures(plans: Sequence[Plan]) -> Iterator[Line]:
    for name, column in FIGURES.items():
        values = tuple(column.value(plan) for plan in plans)
        if any(values):
            yield Line("figures", name, column.unit, values)


def _tokens(plans: Sequence[Plan]) -> Iterator[Line]:
    counts = [plan.parameters.total for plan in plans]
    trained = [plan.train_tokens for plan in plans]
    if any(trained):
        ratios = (units.ratio(tokens, count).replace(",", "") if tokens else None for tokens, count in zip(trained, counts, strict=True))
        yield Line("tokens", "train_tokens per parameter", "", tuple(ratios))
    yield Line("tokens", "optimal, 20·N", "tokens", tuple(map(optimal.by_rule, counts)))
    for fit in optimal.FITS:
        yield Line("tokens", f"optimal, {fit.name}", "tokens", tuple(optimal.tokens(fit, count) for count in counts))


def _settings(plans: Sequence[Plan]) -> Iterator[Line]:
    every = [
        {f"model.{key}": value for key, value in settings.model(plan.model).items()}
        | {f"training.{key}": value for key, value in settings.training(plan.training).items()}
        | {f"{part}.{key}": value for part, values in settings.layout(plan.training).items() for key, value in values.items()}
        for plan in plans
    ]
    for key in dict.fromkeys(key for one in every for key in one):
        values = tuple(one.get(key) for one in every)
        if len(set(values)) > 1:
            yield Line("settings", key, "", values)


def _cells(line: Line) -> Iterator[str]:
    """Format each value, with its change from the first one."""
    first, column = line.values[0], FIGURES.get(line.name)
    for number, value in enumerate(line.values):
        if not isinstance(value, int):
            yield "–" if value is None else units.exact(int(value)) if value.isdecimal() else value
            continue
        rounded = quantity.rounded(column, value) if column else units.count(value)
        change = units.relative(first, value) if number and isinstance(first, int) and first != value else ""
        yield f"{rounded} ({change})" if change else rounded


def text(plans: Sequence[Plan], style: Style = PLAIN, width: int = _WIDTH) -> str:
    """Return the comparison for a terminal: as many plans side by side as fit, the others below."""
    made = lines(plans)
    rest = list(range(len(plans)))
    out: list[str] = []
    while rest:
        taken = len(rest)
        while taken > 1 and _width(_table(plans, made, rest[:taken], _CELL)) > width:
            taken -= 1
        written = _table(plans, made, rest[:taken], _CELL)
        out += [*([""] if out else []), *table(written[0], "l" + "r" * taken, written[1:], style, width)]
        rest = rest[taken:]
    return "\n".join([*out, "", *(fill(note, width) for note in _notes(plans)), ""])


def _table(plans: Sequence[Plan], made: Iterable[Line], chosen: Sequence[int], width: int | None = None) -> list[list[str]]:
    rows = [["", *(title(plans[number]) for number in chosen)]]
    for line in made:
        cells = list(_cells(line))
        cells = cells if width is None else shorten(cells, width)
        rows.append([line.name, *(cells[number] for number in chosen)])
    return rows


def _width(rows: Sequence[Sequence[str]]) -> int:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return _LABEL + sum(widths[1:]) + len(GAP) * (len(widths) - 1)


def _notes(plans: Sequence[Plan]) -> Iterator[str]:
    conventions = ", ".join(sorted({plan.flops.chosen.convention for plan in plans}))
    yield f"In parentheses: change from {printable(title(plans[0]))}. GiB is 2³⁰ bytes; FLOPs convention: {conventions}. {omitted.UNPADDED}"
    yield from map(printable, omitted.of_plans(plans))
    for fit in optimal.FITS:
        yield f"{fit.name}: {fit.source}."


def as_markdown(plans: Sequence[Plan]) -> str:
    """Return the comparison as Markdown."""
    rows = _table(plans, lines(plans), range(len(plans)))
    table = markdown.table(rows[0], "l" + "r" * len(plans), rows[1:])
    return "\n".join([*table, "", *(f"{markdown.escape(note)}  " for note in _notes(plans)), ""])


def as_json(plans: Sequence[Plan]) -> str:
    """Return the comparison as JSON, numbers exact."""
    made = {
        "candidates": [
            {
                "model": plan.name,
                "scenario": plan.scenario,
                "not_counted": plan.not_counted,
                "accuracy": accuracy(plan.model, plan.training).text,
            }
            for plan in plans
        ],
        "lines": [asdict(line) for line in lines(plans)],
        "sources": {fit.name: fit.source for fit in optimal.FITS},
    }
    return json.dumps(made, ensure_ascii=False, indent=2) + "\n"
