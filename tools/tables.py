"""Tables of the pages that are written from the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

WRITTEN = "<!-- Written by tools/docs.py from the code: change it there, then `make docs`. -->"


def row(cells: Iterable[str]) -> str:
    """Write a line of a table."""
    return f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> Iterator[str]:
    """Write a table; align has r for each column of numbers."""
    yield row(headings)
    yield f"|{'|'.join('---:' if side == 'r' else '---' for side in align.ljust(len(headings), 'l'))}|"
    yield from map(row, rows)
