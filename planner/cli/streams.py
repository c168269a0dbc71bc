"""The standard streams: results go to standard output, messages to standard error."""

from __future__ import annotations

import io
import shutil
import sys

from planner.cli.command import FAILURE


def settle() -> None:
    """Accept names that the encoding of the terminal lacks, and streams that the caller closed."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def width() -> int | None:
    """Return the width of the terminal in cells; None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def note(text: str) -> None:
    """Print a message to standard error, on one line."""
    from planner.spec.printable import printable

    sys.stderr.write(f"planner: {printable(text)}\n")


def fail(text: str) -> int:
    """Print why the tool cannot do its job, and return the exit code for that."""
    note(text)
    return FAILURE
