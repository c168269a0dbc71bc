"""Progress of long work: one line on standard error, if that is a terminal and no CI's, that disappears when the work is done."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

Item = TypeVar("Item")
_EVERY = 0.1  # seconds
_CELLS = 30  # of a bar


class Progress:
    """The progress line of a command, which appears ``after`` some seconds. As a context, it removes the line at the end."""

    def __init__(self, after: float = 1) -> None:
        self.shown = sys.stderr.isatty() and not os.environ.get("CI")
        self.next = time.monotonic() + after
        self.drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __call__(self, done: int, of: int, what: str = "") -> None:
        """Draw a bar and what the numbers count, at most ten times a second."""
        if self.shown and time.monotonic() >= self.next:
            filled = _CELLS * done // of
            self._draw(f"[{'#' * filled}{' ' * (_CELLS - filled)}] {done:,} of {of:,} {what}".rstrip())

    def of(self, items: Sequence[Item], what: str) -> Iterator[Item]:
        """Yield the items and draw how many are done."""
        for done, item in enumerate(items):
            self(done, len(items), what)
            yield item

    def step(self, text: str) -> None:
        """Name a step that does not report its own progress."""
        if self.shown and (self.drawn or time.monotonic() >= self.next):
            self._draw(text)

    def clear(self) -> None:
        """Remove the line, before other output."""
        if self.drawn:
            self._draw("")
        self.drawn = False

    def _draw(self, text: str) -> None:
        from planner.spec.printable import printable

        sys.stderr.write(f"\r\x1b[K{printable(text)[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()
        self.drawn, self.next = True, time.monotonic() + _EVERY
