"""Text for a terminal: colors, and tables aligned by the width of characters in cells."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Literal, TextIO

from planner.spec.printable import printable

GAP = "  "
NARROWEST = 12  # cells to which a text column may be shortened

Color = Literal["red", "green", "yellow"]
_COLORS: Mapping[Color, int] = {"red": 31, "green": 32, "yellow": 33}


@dataclass(frozen=True, slots=True)
class Style:
    """Whether to use color."""

    color: bool = False

    def bold(self, text: str) -> str:
        """Return the text in bold, if color is on."""
        return f"\x1b[1m{text}\x1b[0m" if self.color else text

    def paint(self, text: str, color: Color) -> str:
        """Return the text in a color, if color is on."""
        return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if self.color else text


PLAIN = Style()


def style(stream: TextIO) -> Style:
    """Return the style: color on a terminal that supports it, unless NO_COLOR is set."""
    return Style(stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def table(
    headings: Sequence[str], align: str, rows: Iterable[Sequence[str]], style: Style = PLAIN, width: int | None = None, gap: str = GAP
) -> Iterator[str]:
    """Yield the lines of a table, without headings if all are empty. Beyond ``width`` cells text is shortened, never numbers."""
    columns = [[printable(cell) for cell in column] for column in zip(headings, *rows, strict=True)]
    widths = [max(map(cells_of, column)) for column in columns]
    excess = 0 if width is None else sum(widths) + len(gap) * (len(widths) - 1) - width
    words = [column for column, side in enumerate(align) if side == "l"]
    while excess > 0 and words and widths[widest := max(words, key=widths.__getitem__)] > NARROWEST:
        widths[widest] -= 1
        excess -= 1
    cells = zip(*(shorten(column, width) for column, width in zip(columns, widths, strict=True)), strict=True)
    head, *body = (_row(row, align, widths, gap) for row in cells)
    if any(map(str.strip, headings)):
        yield from (style.bold(line) for line in head)
    for lines in body:
        yield from lines


def _row(cells: Sequence[str], align: str, widths: Sequence[int], gap: str) -> list[str]:
    """Return the lines of a row, one per line of its longest cell."""
    lines = zip_longest(*(cell.split("\n") for cell in cells), fillvalue="")
    return [gap.join(map(_pad, line, align, widths)).rstrip() for line in lines]


def _pad(text: str, side: str, width: int) -> str:
    space = " " * (width - cells_of(text))
    return space + text if side == "r" else text + space


def shorten(texts: Sequence[str], width: int) -> list[str]:
    """Cut each text to a number of cells, with an ellipsis in its middle. Texts that would then be equal are wrapped instead."""
    if all(cells_of(text) <= width for text in texts):
        return list(texts)
    cut = {text: _cut(text, width) for text in texts}
    shared = Counter(cut.values())
    return [cut[text] if shared[cut[text]] == 1 else "\n".join(_pieces(text, width)) for text in texts]


def _cut(text: str, width: int) -> str:
    if cells_of(text) <= width:
        return text
    head, tail = _start(text, width // 2), _start(text[::-1], width - 1 - width // 2)[::-1]
    return f"{head}…{tail}"


def _pieces(text: str, width: int) -> Iterator[str]:
    while text:
        piece = _start(text, width) or text[0]
        yield piece
        text = text[len(piece) :]


def _start(text: str, width: int) -> str:
    """Return as much of the text as fits a number of cells."""
    ends = accumulate(map(_cell, text))
    return text[: sum(end <= width for end in ends)]


def cells_of(text: str) -> int:
    """Return the width of text in terminal cells: 0 for a combining mark, 2 for a wide character."""
    return sum(_cell(char) for char in text)


def _cell(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
