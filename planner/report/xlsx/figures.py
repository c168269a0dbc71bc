"""Figures, Components and Budgets: metrics as formulas."""

from __future__ import annotations

from typing import cast

from planner.capacity.choices import CHOICES
from planner.report.columns import GROUPS
from planner.report.xlsx.book import GIB, Book, Cells, Row, figure_cell, figure_columns, place
from planner.report.xlsx.choices import Switch
from planner.report.xlsx.inputs import SETTINGS
from planner.trace.sizes import Size


def write_figures(cells: Cells, switch: Switch | None) -> None:
    """Write a plan's row, whose metrics follow the choices of a switch."""
    from xlsxwriter.utility import xl_rowcol_to_cell

    sheet, inputs, row = cells.book.sheets["Figures"], cells.book.sheets["Inputs"], cells.row
    for number, (column, unit) in enumerate(figure_columns()):
        at, value = (row.number - 1, number), column.read(row.plan)
        chosen = switch.formula(("", column.name)) if switch and unit != "GiB" else None
        if column.name in CHOICES:
            sheet.write_formula(*at, f"={place(inputs, at[0], SETTINGS + list(CHOICES).index(column.name))}", None, value)
        elif isinstance(value, str):
            sheet.write_string(*at, value)
        elif chosen:
            sheet.write_formula(*at, f"={chosen}", cells.book.formats["number"], value)
        elif unit == "GiB":
            if value is not None:
                sheet.write_formula(*at, f"={xl_rowcol_to_cell(at[0], number - 1)}/{GIB}", cells.book.formats["GiB"], value / GIB)
        else:
            cells.write(sheet, at, cast("Size | None", column.read(row.formulas.plan)), value)


def write_components(cells: Cells, first: int, switch: Switch | None) -> int:
    """Write a plan's components from a row on, which follow the choices of a switch, and return the next row."""
    sheet, row, at = cells.book.sheets["Components"], cells.row, first
    for group in GROUPS:
        values = group.read(row.plan)
        for component, size in group.read(row.formulas.plan).items():
            sheet.write_row(at, 0, (row.plan.name, row.plan.scenario, group.name, component))
            if chosen := switch.formula((group.name, component)) if switch else None:
                sheet.write_formula(at, 4, f"={chosen}", cells.book.formats["number"], values[component])
            else:
                cells.write(sheet, (at, 4), size, values[component])
            sheet.write_string(at, 5, group.unit)
            if group.unit == "bytes":
                sheet.write_formula(at, 6, f"=E{at + 1}/{GIB}", cells.book.formats["GiB"], values[component] / GIB)
            at += 1
    return at


def write_budgets(book: Book, row: Row, first: int) -> int:
    """Write the budgets of a plan from a row on, and return the next row."""
    sheet, at, number_format = book.sheets["Budgets"], first, book.formats["number"]
    columns = {column.name: (column, unit) for column, unit in figure_columns() if unit != "GiB"}
    for limit in row.planned.budgets:
        if limit.scenario != row.plan.scenario:
            continue
        column, unit = columns[limit.figure]
        value = column.read(row.plan)
        sheet.write_row(at, 0, (row.plan.name, row.plan.scenario, limit.budget, limit.figure, limit.kind))
        sheet.write_string(at, 9, limit.severity)
        if isinstance(value, int):
            sheet.write_formula(at, 6, f"={figure_cell(book, row, limit.figure, unit)}", number_format, value)
        if limit.worth is None or not isinstance(value, int):
            sheet.write_string(at, 8, "needs a base; use planner diff")
        else:
            left = limit.worth - value if limit.kind == "max" else value - limit.worth
            this = "{1}-{0}" if limit.kind == "max" else "{0}-{1}"
            sheet.write_number(at, 5, limit.worth, number_format)
            sheet.write_formula(at, 7, "=" + this.format(f"G{at + 1}", f"F{at + 1}"), number_format, left)
            sheet.write_formula(at, 8, f'=IF(H{at + 1}>=0,"ok","exceeded")', None, "ok" if left >= 0 else "exceeded")
        at += 1
    return at
