"""capacity.xlsx: metrics as live formulas, rendered from the expressions that the planner's own functions return for symbols.

Each cell also stores its value, for viewers that do not calculate. Spreadsheets use doubles: integers are exact up to 2⁵³.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from planner.capacity.choices import formulas_by_choice
from planner.capacity.figures import Plan
from planner.capacity.symbolic import SymbolicPlan, formulas
from planner.capacity.symbols import ByStructure
from planner.report import omitted
from planner.report.columns import COLUMNS, COMPONENT_COLUMNS, GROUPS
from planner.report.planned import Planned
from planner.report.xlsx.book import Book, Cells, Row, figure_columns, heading
from planner.report.xlsx.choices import sizes_of, write_choices
from planner.report.xlsx.figures import write_budgets, write_components, write_figures
from planner.report.xlsx.inputs import FIXED, MEANINGS, name_ranges, names_of, open_choices, write_check, write_devices, write_inputs
from planner.report.xlsx.summary import write_summary
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    from xlsxwriter.worksheet import Worksheet

_CREATED = datetime(2000, 1, 1)  # noqa: DTZ001 - the same on every day, and a workbook's dates have no zone
_SHEETS = ("Summary", "Inputs", "Figures", "Components", "Sources", "Budgets", "Choices", "Workings", "Lists")
_NOTES = (
    "Change a yellow cell of Inputs, and all values of its row are recalculated. Other cells are locked, without a password.",
    "Cells of Inputs in italics are derived from others, because the spec omits them.",
    "The columns of Inputs have names, such as B, for formulas of your own.",
    omitted.UNPADDED,
    "In the workbook of one spec, precision, recomputation and optimizer are choices; each has its formulas in Choices.",
    "Other structure is fixed by the spec: components, layer groups and kernels cannot be changed here.",
    "The formulas come from the planner's own code, with cells in place of sizes. Parts of long ones are in Workings.",
    "Spreadsheets use doubles: integers are exact up to 2⁵³ = 9,007,199,254,740,992; larger ones lose digits.",
)


def problem() -> str:
    """Return why no workbook can be written, and the fix; empty if one can."""
    return "" if find_spec("xlsxwriter") else "a workbook needs XlsxWriter: pip install xlsxwriter"


def workbook(models: Sequence[Planned]) -> bytes:
    """Return the workbook: the same bytes for the same plans."""
    from xlsxwriter import Workbook

    stream = io.BytesIO()
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with Workbook(stream, options) as made:
        made.set_properties({"title": "Capacity report", "created": _CREATED})
        kind = _sheet_without_search()
        sheets = {name: made.add_worksheet(name, kind) for name in _SHEETS}
        formats = {
            "head": made.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"}),
            "number": made.add_format({"num_format": "#,##0"}),
            "GiB": made.add_format({"num_format": "#,##0.000"}),
            "FLOP": made.add_format({"num_format": "0.000E+00"}),
            "input": made.add_format({"num_format": "#,##0", "bg_color": "#FFF2CC", "locked": False}),
            "derived": made.add_format({"num_format": "#,##0", "italic": True}),
            "wrapped": made.add_format({"text_wrap": True, "valign": "top"}),
            "good": made.add_format({"font_color": "#1D4F91"}),
            "bad": made.add_format({"font_color": "#A3360A"}),
        }
        _fill(Book(made, sheets, formats), models)
    return stream.getvalue()


def _sheet_without_search() -> type[Worksheet]:
    """Return a worksheet that does not search each formula for thirty functions of newer Excels, which took a third of the time."""
    from xlsxwriter.worksheet import Worksheet

    class Sheet(Worksheet):  # type: ignore[misc]  # XlsxWriter has no types
        def _prepare_formula(self, formula: str, expand_future_functions: bool = False) -> str:  # noqa: ARG002 - its signature
            return formula.removeprefix("=")

    return Sheet


def _fill(book: Book, models: Sequence[Planned]) -> None:
    pairs = [(model, plan, scenario) for model in models for plan, scenario in zip(model.plans, model.spec.scenarios, strict=True)]
    alike: ByStructure[Plan] = ByStructure()
    rows, values_only = list[Row](), list[str]()
    for number, (model, plan, scenario) in enumerate(pairs, start=2):
        try:
            made = formulas(model.spec, scenario, alike)
        except UnsupportedError as error:  # a plan of integers is one of expressions without symbols
            made = SymbolicPlan(plan, {}, {})
            values_only.append(f"{plan.name}, scenario {plan.scenario}, has values instead of formulas: {error}")
        rows.append(Row(model, plan, made, number))
    found = formulas_by_choice(models[0].spec) if len(models) == 1 else None  # of the base scenario
    more = [size for plan in found.plans.values() for size in sizes_of(plan).values() if size is not None] if found else []
    names, listed = names_of(rows, more), write_devices(book, rows)
    book.head("Inputs", (*FIXED, *names), wide=(3,))
    book.head("Figures", [heading(column.name, unit) for column, unit in figure_columns()])
    book.head("Components", (*COMPONENT_COLUMNS, "GiB"))
    book.head("Budgets", ("model", "scenario", "budget", "figure", "limit", "of", "is", "left", "verdict", "severity"), wide=(3,))
    book.head("Workings", ("model", "scenario", "value", "formula"), wide=(3,))
    component_row, budget_row = 1, 1
    for row in rows:
        cells = Cells(book, row, write_inputs(book, row, names, len(listed)), dict(row.formulas.values.items()))
        symbols = dict(cells.cells)
        switch = write_choices(cells, found, open_choices(book, row, found)) if found and row is rows[0] else None
        write_check(book, row, symbols, switch.check if switch else "")
        component_row = write_components(cells, component_row, switch)
        write_figures(cells, switch)  # after the peaks of phases, which the peak refers to
        budget_row = write_budgets(book, row, budget_row)
    name_ranges(book, names, len(rows))
    write_summary(book, rows, listed)
    left_out = omitted.of_plans([plan for model in models for plan in model.plans])
    _write_sources(book, names, models, (*_NOTES, *values_only, *left_out))
    if not found:
        book.head("Choices", ("only the workbook of one spec has other precisions, recomputations and optimizers",))
    if budget_row == 1:
        book.sheets["Budgets"].write_string(1, 0, "planner.yaml has no budgets for these models")


def _write_sources(book: Book, names: Iterable[str], models: Iterable[Planned], notes: Iterable[str]) -> None:
    sheet = book.head("Sources", ("sheet", "column", "unit", "meaning or source"))
    sheet.set_column(1, 1, 26)
    sheet.set_column(3, 3, 100)
    inputs = [("Inputs", name, "", MEANINGS.get(name, "of the spec")) for name in (*FIXED[2:], *names)]
    figures = [("Figures", column.name, column.unit, column.description) for column in COLUMNS]
    components = [("Components", group.name, group.unit, group.description) for group in GROUPS]
    specs = [("specs", model.spec.name, "", source) for model in models for source in model.spec.sources]
    below = [("", "", "", note) for note in notes]
    for number, cells in enumerate((*inputs, *figures, *components, *specs, *below), start=1):
        sheet.write_row(number, 0, cells, book.formats["wrapped"])
