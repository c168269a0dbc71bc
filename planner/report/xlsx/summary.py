"""Summary: what matters of each plan, whether it fits its device, and charts of memory and of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.capacity.figures import COMPONENTS
from planner.report.devices import reserve
from planner.report.xlsx.book import GIB, Book, Row, figure_cell, figure_columns, place, span
from planner.report.xlsx.inputs import CHECK, DEVICE, device_of

_COPIED = (
    ("params_total", "parameters"), ("model_states_bytes", "GiB"), ("activations_bytes", "GiB"), ("peak_bytes", "GiB"),
    ("train_flops_per_token", "FLOP"), ("train_flops", "FLOP"),
)  # fmt: skip
_HEADINGS = (
    "model", "scenario", "parameters", "model states (GiB)", "activations (GiB)", "peak (GiB)", "training per token (FLOP)",
    "training (FLOP)", "device", "device memory, less the reserve (GiB)", "free (GiB)", "verdict",
)  # fmt: skip
_FORMS = {"GiB": "GiB", "FLOP": "FLOP"}
_ABOVE, _DRAWN = 21, 20  # rows for the charts, and plans in them
_PEAK, _MEMORY, _FREE, _VERDICT = 5, 9, 10, 11
_COLORS = (
    "#E69F00",
    "#D8D8D8",
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#D55E00",
    "#F0E442",
    "#8C52FF",
    "#5C5C5C",
    "#CC79A7",
    "#8B5A2B",
    "#500050",
)


def write_summary(book: Book, rows: Sequence[Row], memory: Mapping[str, int]) -> None:
    """Write the sheet; ``memory`` of devices is in Lists."""
    sheet = book.head("Summary", _HEADINGS, wide=(_VERDICT,), at=_ABOVE)
    for at, row in enumerate(rows, start=_ABOVE + 1):
        _write_row(book, row, at, memory)
    last = _ABOVE + len(rows)
    for text, form in (("fits", "good"), ("exceeds", "bad"), ("check", "bad")):
        rule = {"type": "text", "criteria": "begins with", "value": text, "format": book.formats[form]}
        sheet.conditional_format(_ABOVE + 1, _VERDICT, last, _VERDICT, rule)
    _draw(book, rows)


def _write_row(book: Book, row: Row, at: int, memory: Mapping[str, int]) -> None:
    sheet, formats, inputs = book.sheets["Summary"], book.formats, book.sheets["Inputs"]
    columns = {(column.name, unit): column for column, unit in figure_columns()}
    sheet.write_string(at, 0, row.plan.name)
    sheet.write_string(at, 1, row.plan.scenario)
    for number, (name, unit) in enumerate(_COPIED, start=2):
        value = columns[name, unit].value(row.plan)
        if value is not None:
            shown = value / GIB if unit == "GiB" else value
            sheet.write_formula(at, number, f"={figure_cell(book, row, name, unit)}", formats[_FORMS.get(unit, "number")], shown)
    device, kept_free = device_of(row)[0], reserve(row.plan.training)
    sheet.write_formula(at, 8, f"={place(inputs, row.number - 1, DEVICE)}", None, device)
    names, sizes = (span(book.sheets["Lists"], 1, len(memory), column) for column in (0, 1))
    usable, peak = memory[device] - kept_free, row.plan.memory.peak_bytes
    sheet.write_formula(at, _MEMORY, f"=(INDEX({sizes},MATCH(I{at + 1},{names},0))-{kept_free})/{GIB}", formats["GiB"], usable / GIB)
    sheet.write_formula(at, _FREE, f"=J{at + 1}-F{at + 1}", formats["GiB"], usable / GIB - peak / GIB)
    wrong = place(inputs, row.number - 1, CHECK)
    verdict = f'=IF({wrong}<>"","check Inputs",IF(K{at + 1}>=0,"fits","exceeds the device"))'
    sheet.write_formula(at, _VERDICT, verdict, None, "fits" if peak <= usable else "exceeds the device")


def _draw(book: Book, rows: Sequence[Row]) -> None:
    sheet, figures = book.sheets["Summary"], book.sheets["Figures"]
    drawn = rows[:_DRAWN]
    several = len({row.plan.name for row in drawn}) < len(drawn)
    first, last = _ABOVE + 1, _ABOVE + len(drawn)
    names = f"={span(sheet, first, last, 0).partition(':')[0]}:{span(sheet, first, last, 1 if several else 0).partition(':')[2]}"
    only = f", the first {_DRAWN}" if len(rows) > _DRAWN else ""
    memory = book.made.add_chart({"type": "bar"})
    for name, column, color in (("peak", _PEAK, "#2F6AA8"), ("device", _MEMORY, "#9B9FA7")):
        memory.add_series({"name": name, "categories": names, "values": f"={span(sheet, first, last, column)}", "fill": {"color": color}})
    _insert(book, memory, 0, f"Peak memory and the device's{only}", "GiB", "0.0")
    parts = book.made.add_chart({"type": "bar", "subtype": "stacked"})
    components = {f"params_{name}": (name, color) for name, color in zip(COMPONENTS, _COLORS, strict=True)}
    for at, (figure, _) in enumerate(figure_columns()):
        if figure.name in components and any(figure.value(row.plan) for row in drawn):
            name, color = components[figure.name]
            cells = f"={span(figures, drawn[0].number - 1, drawn[-1].number - 1, at)}"
            parts.add_series({"name": name, "categories": names, "values": cells, "fill": {"color": color}})
    _insert(book, parts, 5, f"Parameters by component{only}", "parameters", '[>=1e9]0.0,,," B";[>=1e6]0.0,," M";#,##0')


def _insert(book: Book, chart: object, column: int, title: str, unit: str, form: str) -> None:
    from xlsxwriter.chart import Chart

    assert isinstance(chart, Chart)  # noqa: S101 - XlsxWriter has no types
    chart.set_title({"name": title, "name_font": {"size": 12}})
    chart.set_x_axis({"name": unit, "num_format": form, "major_gridlines": {"visible": True, "line": {"color": "#D5D5D5"}}})
    chart.set_y_axis({"reverse": True})
    chart.set_legend({"position": "bottom"})
    chart.set_size({"width": 620, "height": 400})
    book.sheets["Summary"].insert_chart(0, column, chart, {"object_position": 2, "description": title})
