"""Inputs, the sheet whose cells can be changed: sizes and the device; and Lists, what can be chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from planner import devices
from planner.capacity.choices import CHOICES, Formulas
from planner.report.columns import COLUMNS, GROUPS
from planner.report.xlsx.book import Book, Row, place, span
from planner.trace.kernels import FLASH_ALIGNMENT, FLASH_WIDEST_HEAD
from planner.trace.lengths import structure_starts
from planner.trace.sizes import Expression, Factor, Size, symbols
from planner.trace.spreadsheet import spreadsheet

CHECK, DEVICE, SETTINGS = 2, 3, 4
FIXED = ("model", "scenario", "check", "device", *CHOICES)  # the columns before those of symbols
MEANINGS = {
    "check": "problems with this row's inputs; empty if none",
    "device": "the device that Summary compares the peak with",
    "precision": "data types of weights, gradients and computation",
    "recompute": "activation recomputation",
    "optimizer": "optimizer whose state is included",
    "B": "micro-batch size per device, sequences",
    "n": "sequence length, tokens",
    "V": "vocabulary",
    "V_padded": "rows of the token embedding and of the LM head",
    "layers.count": "how often a layer group is repeated",
    "tokens": "total training tokens",
}
_FIRST = ("B", "n", "n_layers", "layers.count", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "V", "V_padded", "context_length")
# Sizes that the shape of an extra tensor may name.
_NAMED_BY_EXTRA = ("d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff", "V", "context_length")
_LIKE_A_CELL = re.compile(r"[a-z]{1,3}\d+|[rc](\d.*)?", re.IGNORECASE)  # what no name of a range may be


def names_of(rows: Iterable[Row], more: Iterable[Size] = ()) -> tuple[str, ...]:
    """Return the symbols that a metric of some plan depends on, or one of more sizes."""
    found = dict.fromkeys(name for size in more for name in symbols(size))
    by_plan: dict[int, set[str]] = {}  # which models of one structure share
    for row in rows:
        if id(row.formulas.plan) not in by_plan:
            figures = [column.read(row.formulas.plan) for column in COLUMNS if column.kind == "integer"]
            parts = [size for group in GROUPS for size in group.read(row.formulas.plan).values()]
            sizes = (cast("Size", size) for size in (*figures, *parts) if size is not None)
            by_plan[id(row.formulas.plan)] = {name for size in sizes for name in symbols(size)}
        found |= dict.fromkeys(name for name in row.formulas.values if name in by_plan[id(row.formulas.plan)])
    return (*(name for name in _FIRST if name in found), *(name for name in found if name not in _FIRST))


def device_of(row: Row) -> tuple[str, int]:
    """Return the name and the memory of a plan's device; the first of the catalog for a class without memory of its own."""
    layout = row.plan.training.layout
    known = devices.find((layout.cluster.device or "") if layout else row.plan.training.device)
    if layout and (known is None or known.memory_bytes != layout.cluster.memory_bytes):
        return f"the device of {row.plan.name}", layout.cluster.memory_bytes
    one = known or devices.entries()[0]
    return one.name, one.memory_bytes


def write_devices(book: Book, rows: Sequence[Row]) -> Mapping[str, int]:
    """Write the devices to choose from and return their memory by name."""
    sheet = book.head("Lists", ("device", "memory (bytes)", "sizes from 1 on that keep the kernels"))
    listed = {one.name: one.memory_bytes for one in devices.entries()} | dict(map(device_of, rows))
    for at, (name, memory) in enumerate(listed.items(), start=1):
        sheet.write_string(at, 0, name)
        sheet.write_number(at, 1, memory, book.formats["number"])
    return listed


def name_ranges(book: Book, names: Sequence[str], last: int) -> None:
    """Name the cells of each symbol, for a user's own formulas: a name is taken from the row that it is used in."""
    used: set[str] = set()
    for column, name in enumerate(names, start=len(FIXED)):
        own = f"{name}_" if _LIKE_A_CELL.fullmatch(name) else name
        if own.casefold() not in used and re.fullmatch(r"[A-Za-z_][\w.]*", own):
            used.add(own.casefold())
            book.made.define_name(own, f"={span(book.sheets['Inputs'], 1, last, column)}")


def write_inputs(book: Book, row: Row, names: Sequence[str], listed: int) -> dict[Factor | Expression | int, str]:
    """Write a plan's row but for its check, and return the cells that hold its symbols; ``listed`` devices can be chosen."""
    from xlsxwriter.utility import xl_rowcol_to_cell

    sheet, at, made = book.sheets["Inputs"], row.number - 1, row.formulas
    places = {name: (at, number) for number, name in enumerate(names, start=len(FIXED)) if name in made.values}
    here: dict[Factor | Expression | int, str] = {name: xl_rowcol_to_cell(*place) for name, place in places.items()}
    sheet.write_string(at, 0, row.plan.name)
    sheet.write_string(at, 1, row.plan.scenario)
    sheet.write_string(at, DEVICE, device_of(row)[0], book.formats["input"])
    sheet.data_validation(at, DEVICE, at, DEVICE, {"validate": "list", "source": f"={span(book.sheets['Lists'], 1, listed, 0)}"})
    for name, where in places.items():
        rule = made.derived.get(name)
        if rule is not None and set(symbols(rule)) <= places.keys():
            sheet.write_formula(*where, f"={spreadsheet(rule, here)}", book.formats["derived"], made.values[name])
        else:
            sheet.write_number(*where, made.values[name], book.formats["input"])
            sheet.data_validation(*where, *where, {"validate": "integer", "criteria": ">=", "value": 1, "ignore_blank": False})
    for number, name in enumerate(CHOICES, start=SETTINGS):
        sheet.write_string(at, number, str(getattr(row.plan.training, name)))
    return {name: place(sheet, *where) for name, where in places.items()}


def write_check(book: Book, row: Row, cells: Mapping[Factor | Expression | int, str], other: str = "") -> None:
    """Write a formula of the problems with a plan's inputs; ``other`` is one of those of kernels, instead of the usual rule."""
    wrong = [f'IF({condition},"{message}; ","")' for condition, message in _conditions(row, cells, kernels=not other)]
    if wrong or other:
        text = "&".join([*wrong, *([other] if other else [])])
        book.sheets["Inputs"].write_formula(row.number - 1, CHECK, f"={text}", book.formats["bad"], "")


def open_choices(book: Book, row: Row, found: Formulas) -> Mapping[str, str]:
    """Let a row's precision, recomputation and optimizer be chosen, and return their cells."""
    sheet, at = book.sheets["Inputs"], row.number - 1
    for number, value in enumerate(found.chosen):
        sheet.write_string(at, SETTINGS + number, value, book.formats["input"])
        listed = list(dict.fromkeys(chosen[number] for chosen in found.plans))
        sheet.data_validation(at, SETTINGS + number, at, SETTINGS + number, {"validate": "list", "source": listed})
    return {name: place(sheet, at, SETTINGS + number) for number, name in enumerate(CHOICES)}


def _conditions(row: Row, cells: Mapping[Factor | Expression | int, str], *, kernels: bool) -> Iterator[tuple[str, str]]:
    """Yield conditions on the inputs under which a spec would be invalid or run other kernels, each with a message."""
    made = row.formulas
    if row.plan.model.positions.type == "learned" and {"n", "context_length"} <= cells.keys():
        yield f"{cells['n']}>{cells['context_length']}", "n is beyond context_length"
    if "head_dim" in made.derived and {"d_model", "n_heads", "head_dim"} <= cells.keys():
        yield f"{cells['head_dim']}*{cells['n_heads']}<>{cells['d_model']}", "n_heads does not divide d_model"
    if {"n_heads", "n_kv_heads"} <= cells.keys():
        yield f"MOD({cells['n_heads']},{cells['n_kv_heads']})<>0", "n_kv_heads does not divide n_heads"
    if "head_dim" in cells and kernels:
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
