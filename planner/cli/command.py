"""The interface of a subcommand, and the exit codes."""

from __future__ import annotations

import argparse
from typing import Protocol

FINE, FINDING, FAILURE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141


class Command(Protocol):
    """A file of this package. The first line of its docstring is its help in the list of commands, all of it its description."""

    __doc__: str | None

    @property
    def EXAMPLES(self) -> tuple[tuple[str, str], ...]:
        """Command lines, each with what it does."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return its exit code."""
