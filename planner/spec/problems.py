"""Problems of a spec as records with a location, and their text."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.spec.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.spec.records import Place

_WINDOW = 120  # characters of a source line that are shown
_SHOWN = 60  # characters of a value that are quoted in a message


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where, and the way out. A place on line 0 is the file as a whole."""

    place: Place
    code: str
    message: str
    line_text: str = ""
    hint: str = ""

    def render(self, *, color: bool = False) -> str:
        """Tell the problem as ``file:line:column: error[code]: message; hint``, the source line and a caret; no final line end."""
        bold, red, green, plain = ("\x1b[1m", "\x1b[1;31m", "\x1b[1;32m", "\x1b[0m") if color else ("", "", "", "")
        place = self.place
        where = f"{place.file}:{place.line}:{place.column}" if place.line else place.file
        said = f"{self.message}; {self.hint}" if self.hint else self.message
        head = f"{bold}{printable(where)}:{plain} {red}error[{self.code}]:{plain} {printable(said)}"
        if not place.line or not self.line_text.strip():
            return head
        text, column = _window(printable(self.line_text), place.column - 1)
        gutter = f"{place.line:>5} | "
        return f"{head}\n{gutter}{text}\n{' ' * (len(gutter) - 2)}| {' ' * _cells(text[:column])}{green}^{plain}"

    def __str__(self) -> str:
        return self.render()


class SpecError(Exception):
    """A spec that cannot be used; ``problems`` lists everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return render(self.problems)


def render(problems: Iterable[Problem], *, color: bool = False) -> str:
    """Tell problems one after the other, without a final line end."""
    return "\n".join(problem.render(color=color) for problem in problems)


def quote(text: str) -> str:
    """Return a piece of a spec as a message shows it: in quotes, and shortened where it is long."""
    return f"'{text}'" if len(text) <= _SHOWN else f"'{text[:_SHOWN]}…'"


def _window(line: str, column: int) -> tuple[str, int]:
    """Return the part of a long line around a column, and the column in it."""
    line = line.rstrip()
    if len(line) <= _WINDOW:
        return line, column
    start = max(0, min(column - _WINDOW // 2, len(line) - _WINDOW))
    end = start + _WINDOW
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}", column - start + (1 if start else 0)


def _cells(text: str) -> int:
    """Return how many cells of a terminal the text takes."""
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
