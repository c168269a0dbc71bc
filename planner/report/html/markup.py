"""Small pieces of HTML. Optional end tags and quotation marks are omitted: a page of fifty models stays small."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape

from planner.spec.printable import visible

_URL = re.compile(r"https?://([0-9A-Za-z.:-]+)(?:[/?#][!-;=?-\[\]^_a-z~]*)?")  # printable ASCII without < > \ ` { | }


@lru_cache(maxsize=4096)  # the same few words fill most cells
def text(raw: str) -> str:
    """Escape text, on one line, for an element or a quoted attribute."""
    return escape(visible(" ".join(raw.split())))


def link(source: str) -> str:
    """Link to a source by its host name; text that is not a plain URL is only escaped."""
    found = _URL.fullmatch(source)
    return f'<a href="{text(source)}">{text(found[1])}</a>' if found else text(source)


def table(caption: str, picture: str, headings: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table of rows from ``row``, with a caption that contains their chart, and with headings; all are HTML."""
    head = f"<tr>{''.join(f'<th>{heading}' for heading in headings)}" if headings else ""
    return f"<table><caption>{caption}{picture}{head or '<tbody>'}{''.join(rows)}</table>"


def row(first: str, cells: Iterable[str], *, css: str = "") -> str:
    """Return a row of HTML cells; ``css`` is the class that colors its part in the chart."""
    name = f" class={css}" if css else ""
    return f"<tr><th{name}>{first}{''.join(f'<td>{cell}' for cell in cells)}"
