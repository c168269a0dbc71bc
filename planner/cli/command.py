"""What every subcommand states about itself, and the exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

FINE, FINDING, FAILURE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141


class Command(NamedTuple):
    """A subcommand. Not a dataclass, whose import alone would double the time of ``planner --version``."""

    name: str
    doc: str | None  # its file's docstring: the first line is its help, all of it the description; None under python -OO
    examples: tuple[tuple[str, str], ...]  # command lines, each with what it does
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]

    @property
    def help(self) -> str:
        """The first line of the docstring, as it reads in a list."""
        summary = (self.doc or "").partition("\n")[0].removesuffix(".")
        return summary[:1].lower() + summary[1:]
