"""Text for a terminal: colors, and tables aligned by the width of characters in cells."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """Yield the lines of a table, without headings if all are empty. Beyond ``width`` cells the first column is shortened."""
    cells = [[printable(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(cells_of, column)) for column in zip(*cells, strict=True)]
    excess = 0 if width is None else sum(widths) + len(gap) * (len(widths) - 1) - width
    widths[0] = min(widths[0], max(NARROWEST, widths[0] - max(0, excess)))
    head, *body = (gap.join(map(_pad, (shorten(first, widths[0]), *rest), align, widths)).rstrip() for first, *rest in cells)
    if any(map(str.strip, headings)):
        yield style.bold(head)
    yield from body


def _pad(text: str, side: str, width: int) -> str:
    space = " " * (width - cells_of(text))
    return space + text if side == "r" else text + space


def shorten(text: str, width: int) -> str:
    """Cut text to a number of cells, with an ellipsis."""
    if cells_of(text) <= width:
        return text
    while cells_of(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def cells_of(text: str) -> int:
    """Return the width of text in terminal cells: 0 for a combining mark, 2 for a wide character."""
    return sum(_cell(char) for char in text)


def _cell(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
