"""capacity.xlsx: metrics as live formulas, rendered from the expressions that the planner's own functions return for symbols.

Each cell also stores its value, for viewers that do not calculate. Spreadsheets use doubles: integers are exact up to 2⁵³.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from planner.capacity.figures import Plan
from planner.capacity.symbolic import SymbolicPlan, formulas
from planner.capacity.symbols import ByStructure
from planner.report import omitted
from planner.report.columns import COLUMNS, COMPONENT_COLUMNS, GROUPS
from planner.report.planned import Planned
from planner.trace.kernels import FLASH_ALIGNMENT, FLASH_WIDEST_HEAD
from planner.trace.lengths import structure_starts
from planner.trace.sizes import HELPERS, Expression, Factor, Monomial, Size, evaluate, symbols, terms_of, text
from planner.trace.spreadsheet import spreadsheet

if TYPE_CHECKING:
    from xlsxwriter.worksheet import Worksheet

LONGEST = 7000  # characters of a formula; Excel's limit is 8,192
_LONGEST_TEXT = 32_767  # characters of a cell in Excel
_FIRST = ("B", "n", "n_layers", "layers.count", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "V", "V_padded", "context_length")
# Sizes that the shape of an extra tensor may name.
_NAMED_BY_EXTRA = ("d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff", "V", "context_length")
_CREATED = datetime(2000, 1, 1)  # noqa: DTZ001 - the same on every day, and a workbook's dates have no zone
_MADE_ONCE = ("model", "scenario", "to mend")
_WIDE, _NARROW = 32, 16  # characters of a column

_MEANINGS = {
    "to mend": "problems with this row's inputs; empty if none",
    "B": "micro-batch size per device, sequences",
    "n": "sequence length, tokens",
    "V": "vocabulary",
    "V_padded": "rows of the token embedding and of the LM head",
    "layers.count": "how often a layer group is repeated",
    "tokens": "total training tokens",
}
_NOTES = (
    "Change a cell of Inputs, and all values of its row are recalculated.",
    "Cells of Inputs in italics are derived from others, because the spec omits them.",
    omitted.UNPADDED,
    "Structure is fixed by the spec: components, layer groups and kernels cannot be changed here.",
    "The formulas come from the planner's own code, with cells in place of sizes. Parts of long ones are in Workings.",
    "Spreadsheets use doubles: integers are exact up to 2⁵³ = 9,007,199,254,740,992; larger ones lose digits.",
)


def problem() -> str:
    """Return why no workbook can be written, and the fix; empty if one can."""
    return "" if find_spec("xlsxwriter") else "a workbook needs XlsxWriter: pip install xlsxwriter"


@dataclass(frozen=True, slots=True)
class _Row:
    """One plan, its formulas, and its row, from 1."""

    planned: Planned
    plan: Plan
    formulas: SymbolicPlan
    number: int


@dataclass(slots=True)
class _Book:
    """The sheets and formats by name, the next free row of Workings, and the texts of formulas so far."""

    sheets: Mapping[str, Worksheet]
    formats: Mapping[str, Any]
    working_rows: int = 1
    texts: dict[Size, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Cells:
    """The cells that hold a plan's symbols and the parts of its formulas, and the values of the symbols and helpers so far."""

    book: _Book
    row: _Row
    cells: dict[Factor | Expression | int, str]
    values: dict[Factor, int]
    products: dict[Monomial, str] = field(default_factory=dict)  # the texts of products so far
    numbers: dict[Monomial, int] = field(default_factory=dict)  # and their values

    def write(self, sheet: Worksheet, at: tuple[int, int], size: Size | None, value: int | None) -> None:
        """Write a metric as a formula with its value, a constant as a number, and nothing for None."""
        from xlsxwriter.utility import xl_rowcol_to_cell

        if size is None or value is None:
            return
        if isinstance(size, int):
            sheet.write_number(*at, size, self.book.formats["number"])
        else:
            sheet.write_formula(*at, f"={self.formula(size)}", self.book.formats["number"], value)
            self.cells.setdefault(size, f"{sheet.get_name()}!{xl_rowcol_to_cell(*at, row_abs=True, col_abs=True)}")

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
        if len(made) <= LONGEST:
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


def workbook(models: Sequence[Planned]) -> bytes:
    """Return the workbook: the same bytes for the same plans."""
    from xlsxwriter import Workbook

    stream = io.BytesIO()
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with Workbook(stream, options) as made:
        made.set_properties({"title": "Capacity report", "created": _CREATED})
        kind = _sheet_without_search()
        sheets = {name: made.add_worksheet(name, kind) for name in ("Inputs", "Capacity", "Components", "Columns", "Budgets", "Workings")}
        formats = {
            "head": made.add_format({"bold": True, "bottom": 1}),
            "number": made.add_format({"num_format": "#,##0"}),
            "input": made.add_format({"num_format": "#,##0", "bg_color": "#FFF2CC"}),
            "derived": made.add_format({"num_format": "#,##0", "italic": True}),
        }
        _fill(_Book(sheets, formats), models)
    return stream.getvalue()


def _sheet_without_search() -> type[Worksheet]:
    """Return a worksheet that does not search each formula for thirty functions of newer Excels, which took a third of the time."""
    from xlsxwriter.worksheet import Worksheet

    class Sheet(Worksheet):  # type: ignore[misc]  # XlsxWriter has no types
        def _prepare_formula(self, formula: str, expand_future_functions: bool = False) -> str:  # noqa: ARG002 - its signature
            return formula.removeprefix("=")

    return Sheet


def _fill(book: _Book, models: Sequence[Planned]) -> None:
    pairs = [(model, plan, scenario) for model in models for plan, scenario in zip(model.plans, model.spec.scenarios, strict=True)]
    alike: ByStructure[Plan] = ByStructure()
    rows = [
        _Row(model, plan, formulas(model.spec, scenario, alike), number) for number, (model, plan, scenario) in enumerate(pairs, start=2)
    ]
    names = _inputs(rows)
    _head(book, "Inputs", (*_MADE_ONCE, *names))
    _head(book, "Capacity", [column.name for column in COLUMNS])
    _head(book, "Components", COMPONENT_COLUMNS)
    _head(book, "Columns", ("sheet", "column", "unit", "meaning"), wide=(3,))
    _head(book, "Budgets", ("model", "scenario", "budget", "figure", "limit", "of", "is", "left", "verdict", "severity"), wide=(3,))
    _head(book, "Workings", ("model", "scenario", "value", "formula"), wide=(3,))
    component_row, budget_row = 1, 1
    for row in rows:
        cells = _Cells(book, row, _write_inputs(book, row, names), dict(row.formulas.values.items()))
        component_row = _write_components(cells, component_row)
        _write_capacity(cells)  # after the peaks of phases, which the peak refers to
        budget_row = _write_budgets(book, row, budget_row)
    left_out = omitted.of_plans([plan for model in models for plan in model.plans])
    _write_columns(book.sheets["Columns"], names, (*_NOTES, *left_out))
    if budget_row == 1:
        book.sheets["Budgets"].write_string(1, 0, "planner.yaml has no budgets for these models")


def _inputs(rows: Iterable[_Row]) -> tuple[str, ...]:
    """Return the symbols that a metric of some plan depends on."""
    found: dict[str, None] = {}
    by_plan: dict[int, set[str]] = {}  # which models of one structure share
    for row in rows:
        if id(row.formulas.plan) not in by_plan:
            figures = [column.read(row.formulas.plan) for column in COLUMNS if column.kind == "integer"]
            parts = [size for group in GROUPS for size in group.read(row.formulas.plan).values()]
            sizes = (cast("Size", size) for size in (*figures, *parts) if size is not None)
            by_plan[id(row.formulas.plan)] = {name for size in sizes for name in symbols(size)}
        found |= dict.fromkeys(name for name in row.formulas.values if name in by_plan[id(row.formulas.plan)])
    return (*(name for name in _FIRST if name in found), *(name for name in found if name not in _FIRST))


def _head(book: _Book, name: str, headings: Sequence[str], wide: Sequence[int] = ()) -> None:
    sheet = book.sheets[name]
    sheet.write_row(0, 0, headings, book.formats["head"])
    sheet.freeze_panes(1, 1)
    sheet.set_column(0, len(headings) - 1, _NARROW)
    for column in (0, *wide):
        sheet.set_column(column, column, _WIDE)


def _write_inputs(book: _Book, row: _Row, names: Sequence[str]) -> dict[Factor | Expression | int, str]:
    """Write a plan's row of inputs and return the cells that hold its symbols."""
    from xlsxwriter.utility import xl_rowcol_to_cell

    sheet, at, made = book.sheets["Inputs"], row.number - 1, row.formulas
    places = {name: (at, number) for number, name in enumerate(names, start=len(_MADE_ONCE)) if name in made.values}
    here: dict[Factor | Expression | int, str] = {name: xl_rowcol_to_cell(*place) for name, place in places.items()}
    sheet.write_string(at, 0, row.plan.name)
    sheet.write_string(at, 1, row.plan.scenario)
    for name, place in places.items():
        rule = made.derived.get(name)
        if rule is not None and set(symbols(rule)) <= places.keys():
            sheet.write_formula(*place, f"={spreadsheet(rule, here)}", book.formats["derived"], made.values[name])
        else:
            sheet.write_number(*place, made.values[name], book.formats["input"])
            sheet.data_validation(*place, *place, {"validate": "integer", "criteria": ">=", "value": 1, "ignore_blank": False})
    wrong = [f'IF({condition},"{message}; ","")' for condition, message in _conditions(row, here)]
    if wrong:
        sheet.write_formula(at, 2, f"={'&'.join(wrong)}", None, "")
    return {name: f"Inputs!{xl_rowcol_to_cell(*place, row_abs=True, col_abs=True)}" for name, place in places.items()}


def _conditions(row: _Row, cells: Mapping[Factor | Expression | int, str]) -> Iterator[tuple[str, str]]:
    """Yield conditions on the inputs under which a spec would be invalid or run other kernels, each with a message."""
    made = row.formulas
    if row.plan.model.positions.type == "learned" and {"n", "context_length"} <= cells.keys():
        yield f"{cells['n']}>{cells['context_length']}", "n is beyond context_length"
    if "head_dim" in made.derived and {"d_model", "n_heads", "head_dim"} <= cells.keys():
        yield f"{cells['head_dim']}*{cells['n_heads']}<>{cells['d_model']}", "n_heads does not divide d_model"
    if {"n_heads", "n_kv_heads"} <= cells.keys():
        yield f"MOD({cells['n_heads']},{cells['n_kv_heads']})<>0", "n_kv_heads does not divide n_heads"
    if "head_dim" in cells:
        here, stored = cells["head_dim"], made.values["head_dim"]
        usual = stored % FLASH_ALIGNMENT == 0 and stored <= FLASH_WIDEST_HEAD
        unlike = f"OR(MOD({here},{FLASH_ALIGNMENT})<>0,{here}>{FLASH_WIDEST_HEAD})" if usual else f"{here}<>{stored}"
        yield unlike, "head_dim may call for other kernels than these figures have"
    model = row.plan.model
    starts = structure_starts(model, row.plan.training) if "n" in cells else ()
    windows = {name: size for name, size in made.values.items() if name.rstrip("_0123456789") == "window" and name in cells}
    for start in starts:
        crossed = "<" if made.values["n"] >= start else ">="
        names = [name for name, window in windows.items() if window == start]
        for name in names:
            yield f"{cells['n']}{crossed}{cells[name]}", "a window begins or ceases to limit n, which calls for other kernels"
        if not names:
            yield f"{cells['n']}{crossed}{start}", "n begins or ceases to fill several chunks, which calls for other operators"
    named = [name for name in _NAMED_BY_EXTRA if name in cells]
    if named and (model.extra or any(layer.extra for run in model.runs for layer in run.layers)):
        moved = ",".join(f"{cells[name]}<>{made.values[name]}" for name in named)
        yield f"OR({moved})", "the spec's extra tensors keep the sizes that they have"


def _write_capacity(cells: _Cells) -> None:
    sheet, row = cells.book.sheets["Capacity"], cells.row
    for number, column in enumerate(COLUMNS):
        at, value = (row.number - 1, number), column.read(row.plan)
        if isinstance(value, str):
            sheet.write_string(*at, value)
        else:
            cells.write(sheet, at, cast("Size | None", column.read(row.formulas.plan)), value)


def _write_components(cells: _Cells, first: int) -> int:
    sheet, row, at = cells.book.sheets["Components"], cells.row, first
    for group in GROUPS:
        values = group.read(row.plan)
        for component, size in group.read(row.formulas.plan).items():
            sheet.write_row(at, 0, (row.plan.name, row.plan.scenario, group.name, component))
            cells.write(sheet, (at, 4), size, values[component])
            sheet.write_string(at, 5, group.unit)
            at += 1
    return at


def _write_budgets(book: _Book, row: _Row, first: int) -> int:
    from xlsxwriter.utility import xl_rowcol_to_cell

    sheet, at, number_format = book.sheets["Budgets"], first, book.formats["number"]
    names = [column.name for column in COLUMNS]
    for limit in row.planned.budgets:
        if limit.scenario != row.plan.scenario:
            continue
        column = names.index(limit.figure)
        value = COLUMNS[column].read(row.plan)
        sheet.write_row(at, 0, (row.plan.name, row.plan.scenario, limit.budget, limit.figure, limit.kind))
        sheet.write_string(at, 9, limit.severity)
        if isinstance(value, int):
            sheet.write_formula(at, 6, f"=Capacity!{xl_rowcol_to_cell(row.number - 1, column)}", number_format, value)
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


def _write_columns(sheet: Worksheet, names: Iterable[str], notes: Iterable[str]) -> None:
    inputs = [("Inputs", name, "", _MEANINGS.get(name, "of the spec")) for name in (*_MADE_ONCE[2:], *names)]
    capacity = [("Capacity", column.name, column.unit, column.description) for column in COLUMNS]
    components = [("Components", group.name, group.unit, group.description) for group in GROUPS]
    below = [("", "", "", note) for note in notes]
    for number, cells in enumerate((*inputs, *capacity, *components, *below), start=1):
        sheet.write_row(number, 0, cells)
