"""Small pieces of HTML. End tags and quotation marks that HTML lets a writer leave out are left out: a page of fifty models stays small."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape

from planner.report.terminal import printable

_URL = re.compile(r"https?://([0-9A-Za-z.:-]+)(?:[/?#][!-;=?-\[\]^_a-z~]*)?")  # printable ASCII without < > \ ` { | }


@lru_cache(maxsize=4096)  # the same few words fill most cells
def text(raw: str) -> str:
    """Make text show itself and do nothing else, in an element or between an attribute's quotation marks, on one line."""
    return escape(printable(" ".join(raw.split())))


def link(source: str) -> str:
    """Lead to a source by the name of its host; what is no plain web address is shown as it is."""
    found = _URL.fullmatch(source)
    return f'<a href="{text(source)}">{text(found[1])}</a>' if found else text(source)


def table(caption: str, picture: str, headings: Sequence[str], rows: Iterable[str]) -> str:
    """Frame rows, which ``row`` wrote, with a caption that holds their picture, and with headings; all of it is HTML."""
    head = f"<tr>{''.join(f'<th>{heading}' for heading in headings)}" if headings else ""
    return f"<table><caption>{caption}{picture}{head or '<tbody>'}{''.join(rows)}</table>"


def row(first: str, cells: Iterable[str], *, css: str = "") -> str:
    """Write a row; ``css`` names the colour that its part has in the picture beside it. Cells are HTML."""
    name = f" class={css}" if css else ""
    return f"<tr><th{name}>{first}{''.join(f'<td>{cell}' for cell in cells)}"
