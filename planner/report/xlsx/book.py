"""A workbook that is being written: its sheets and formats, and sizes as formulas over the cells of Inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from planner.capacity.figures import Plan
from planner.capacity.symbolic import SymbolicPlan
from planner.report.columns import COLUMNS, Column
from planner.report.planned import Planned
from planner.trace.sizes import HELPERS, Expression, Factor, Monomial, Size, evaluate, terms_of, text
from planner.trace.spreadsheet import spreadsheet

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.worksheet import Worksheet

GIB = 2**30
_LONGEST = 7000  # characters of a formula; Excel's limit is 8,192
_LONGEST_TEXT = 32_767  # characters of a cell in Excel
_WIDE, _NARROW = 32, 19  # characters of a column
_ALLOWED = ("format_cells", "format_columns", "format_rows", "sort", "autofilter")  # on a protected sheet


@dataclass(frozen=True, slots=True)
class Row:
    """One plan, its formulas, and its row in Inputs, Figures and Summary, from 1."""

    planned: Planned
    plan: Plan
    formulas: SymbolicPlan
    number: int


@dataclass(slots=True)
class Book:
    """The sheets and formats by name, the next free row of Workings, and the texts of formulas so far."""

    made: Workbook
    sheets: Mapping[str, Worksheet]
    formats: Mapping[str, Any]
    working_rows: int = 1
    texts: dict[Size, str] = field(default_factory=dict)
    bits: dict[str, str] = field(default_factory=dict)  # the cells of lists of sizes

    def listed(self, bits: str) -> str:
        """Return the name of a cell of Lists that holds sizes as bits, too long for a formula."""
        if bits not in self.bits:
            sheet = self.sheets["Lists"]
            sheet.write_string(len(self.bits) + 1, 2, bits)
            self.bits[bits] = place(sheet, len(self.bits) + 1, 2)
        return self.bits[bits]

    def head(self, name: str, headings: Sequence[str], wide: Sequence[int] = (), *, at: int = 0) -> Worksheet:
        """Write the headings of a sheet, protect its formulas and set up its print; return the sheet."""
        sheet = self.sheets[name]
        sheet.write_row(at, 0, headings, self.formats["head"])
        sheet.set_row(at, 31)  # points, two lines
        sheet.set_column(0, len(headings) - 1, _NARROW)
        for column in (0, *wide):
            sheet.set_column(column, column, _WIDE)
        if not at:
            sheet.freeze_panes(1, 1)
        sheet.protect("", dict.fromkeys(_ALLOWED, True))
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        sheet.repeat_rows(at)
        sheet.set_footer("&L&A&RPage &P of &N")
        return sheet


@dataclass(slots=True)
class Cells:
    """The cells that hold a plan's symbols and the parts of its formulas, and the values of the symbols and helpers so far."""

    book: Book
    row: Row
    cells: dict[Factor | Expression | int, str]
    values: dict[Factor, int]
    products: dict[Monomial, str] = field(default_factory=dict)  # the texts of products so far
    numbers: dict[Monomial, int] = field(default_factory=dict)  # and their values

    def write(self, sheet: Worksheet, at: tuple[int, int], size: Size | None, value: int | None) -> None:
        """Write a metric as a formula with its value, a constant as a number, and nothing for None."""
        if size is None or value is None:
            return
        if isinstance(size, int):
            sheet.write_number(*at, size, self.book.formats["number"])
        else:
            sheet.write_formula(*at, f"={self.formula(size)}", self.book.formats["number"], value)
            self.cells.setdefault(size, place(sheet, *at))

    def formula(self, size: Size) -> str:
        """Return a size as a formula over cells; helpers and the parts of a long formula get cells of their own in Workings."""
        for monomial in terms_of(size):
            for factor, _ in monomial:
                if factor not in self.cells and not isinstance(factor, str):
                    for argument in factor[1]:
                        if not isinstance(argument, int) and argument not in self.cells:
                            self.cells[argument] = self.working(argument, self.formula(argument))
                    whole = Expression({((factor, 1),): 1})
                    helper, arguments = factor
                    self.values[factor] = HELPERS[helper](*map(self.value, arguments))
                    self.cells[factor] = self.working(whole, spreadsheet(whole, self.cells))
        made = spreadsheet(size, self.cells, self.products)
        if len(made) <= _LONGEST:
            return made
        terms = list(terms_of(size).items())
        parts = [cast("Size", Expression(dict(some))) for some in (terms[: len(terms) // 2], terms[len(terms) // 2 :])]
        return " + ".join(self.working(part, self.formula(part)) for part in parts)

    def value(self, size: Size) -> int:
        """Return the value of a size; those of its products are kept for other sizes."""
        for product in terms_of(size):
            if product not in self.numbers:
                self.numbers[product] = evaluate(Expression({product: 1}), self.values)
        return sum(multiple * self.numbers[product] for product, multiple in terms_of(size).items())

    def working(self, size: Size, formula: str) -> str:
        """Write a part of a formula into a cell of its own and return the cell's name."""
        sheet, at = self.book.sheets["Workings"], self.book.working_rows
        self.book.working_rows += 1
        if size not in self.book.texts:
            self.book.texts[size] = text(size)[:_LONGEST_TEXT]
        sheet.write_string(at, 0, self.row.plan.name)
        sheet.write_string(at, 1, self.row.plan.scenario)
        sheet.write_formula(at, 2, f"={formula}", self.book.formats["number"], self.value(size))
        sheet.write_string(at, 3, self.book.texts[size])
        return f"Workings!$C${at + 1}"


def place(sheet: Worksheet, row: int, column: int) -> str:
    """Return the name of a cell, for the formulas of any sheet."""
    from xlsxwriter.utility import xl_rowcol_to_cell

    return f"{sheet.get_name()}!{xl_rowcol_to_cell(row, column, row_abs=True, col_abs=True)}"


def span(sheet: Worksheet, first: int, last: int, column: int) -> str:
    """Return the name of the cells of a column."""
    from xlsxwriter.utility import xl_range_abs

    return f"{sheet.get_name()}!{xl_range_abs(first, column, last, column)}"


def heading(name: str, unit: str) -> str:
    """Return the heading of a column with its unit."""
    return f"{name} ({unit})" if unit and unit != name else name


def figure_columns() -> tuple[tuple[Column, str], ...]:
    """Return the columns of Figures with their units; each in bytes has one in GiB beside it."""
    return tuple((column, unit) for column in COLUMNS for unit in (("bytes", "GiB") if column.unit == "bytes" else (column.unit,)))


def figure_cell(book: Book, row: Row, name: str, unit: str) -> str:
    """Return the name of the cell of Figures that holds a metric in a unit."""
    at = next(at for at, (column, in_unit) in enumerate(figure_columns()) if (column.name, in_unit) == (name, unit))
    return place(book.sheets["Figures"], row.number - 1, at)
