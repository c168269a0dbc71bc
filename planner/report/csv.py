"""capacity.csv and components.csv: RFC 4180 in UTF-8 with LF, integers only, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from planner.capacity.figures import Plan
from planner.report.columns import COLUMNS, COMPONENT_COLUMNS, Cell, component_rows, row

# Where a spreadsheet may see the start of a cell (in some locales it splits at semicolons), and what makes it run or drop what follows.
_CELL_START = r"(^|[;\t\r\n])"
_UNSAFE = re.compile(_CELL_START + r"(?=\s*[=+\-@＝＋－＠]|['\t\r\n])")
_MADE_SAFE = re.compile(_CELL_START + "'")


def capacity(plans: Iterable[Plan]) -> str:
    """One row per plan under the columns of ``planner.report.columns.COLUMNS``."""
    return _write([column.name for column in COLUMNS], map(row, plans))


def components(plans: Iterable[Plan]) -> str:
    """Tidy rows: model, scenario, group, component, quantity, unit."""
    return _write(COMPONENT_COLUMNS, (line for plan in plans for line in component_rows(plan)))


@lru_cache(maxsize=1024)  # the same few words fill most cells
def safe(text: str) -> str:
    """Put an apostrophe before whatever a spreadsheet would run as a formula; ``original`` takes it off again.

    It is put at the start of the text, and after a semicolon, tab or line break in it, where ``= + - @`` follows, spaces or not, or a
    tab, a line break or an apostrophe.
    """
    return _UNSAFE.sub(r"\1'", text)


def original(text: str) -> str:
    """Take the apostrophes off that ``safe`` put on."""
    return _MADE_SAFE.sub(r"\1", text)


def _write(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([safe(cell) if isinstance(cell, str) else cell for cell in cells] for cells in rows)
    return text.getvalue()
