"""capacity.csv and components.csv: RFC 4180 in UTF-8 with LF, integers only, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from planner.capacity.figures import Plan
from planner.report import serving_table
from planner.report.columns import COMPONENT_COLUMNS, Cell, columns_of, component_rows, row

# Where a spreadsheet may start a cell (in some locales also after a semicolon), and what it would run as a formula or drop.
_CELL_START = r"(^|[;\t\r\n])"
_UNSAFE = re.compile(_CELL_START + r"(?=\s*[=+\-@＝＋－＠]|['\t\r\n])")
_MADE_SAFE = re.compile(_CELL_START + "'")


def capacity(plans: Sequence[Plan]) -> str:
    """Return one row per plan under their columns."""
    columns = columns_of(plans)
    return _write([column.name for column in columns], (row(plan, columns) for plan in plans))


def components(plans: Iterable[Plan]) -> str:
    """Return tidy rows under ``COMPONENT_COLUMNS``."""
    return _write(COMPONENT_COLUMNS, (line for plan in plans for line in component_rows(plan)))


def serving(plans: Iterable[Plan]) -> str:
    """Return one row per plan of a spec with a section ``serving``."""
    return _write([column.name for column in serving_table.COLUMNS], (row(plan, serving_table.COLUMNS) for plan in plans))


@lru_cache(maxsize=1024)  # the same few words fill most cells
def safe(text: str) -> str:
    """Prefix with an apostrophe whatever a spreadsheet would run as a formula; ``original`` removes it.

    It is added at the start of the text, and after a semicolon, tab or line break, if ``= + - @`` follows, also after spaces, or a tab, a
    line break or an apostrophe.
    """
    return _UNSAFE.sub(r"\1'", text)


def original(text: str) -> str:
    """Remove the apostrophes that ``safe`` added."""
    return _MADE_SAFE.sub(r"\1", text)


def _write(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([safe(cell) if isinstance(cell, str) else cell for cell in cells] for cells in rows)
    return text.getvalue()
