"""The standard streams: data goes to standard output, all else to standard error."""

from __future__ import annotations

import io
import shutil
import sys
import time

from planner.cli.command import FAILURE


def settle() -> None:
    """Let a name that the terminal's encoding lacks, or a stream that the caller closed, be no reason to fail."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def width() -> int | None:
    """Return the cells of the terminal's lines; None where standard output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def note(text: str) -> None:
    """Print a message to standard error."""
    sys.stderr.write(f"planner: {text}\n")


def fail(text: str) -> int:
    """Print why the tool cannot do its job, and return the exit code for that."""
    note(text)
    return FAILURE


def progress(text: str) -> None:
    """Show on a terminal what is being done, in place of what was shown before."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class Bar:
    """Show how much is done, once it has taken a second."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        """Show that so many of so many are done."""
        if time.monotonic() - self.start > 1:
            filled = 40 * done // of
            progress(f"[{'#' * filled}{' ' * (40 - filled)}] {done:,} of {of:,}")
