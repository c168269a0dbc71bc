"""Text of users that cannot act on the terminal, log or page that shows it."""

from __future__ import annotations

import re

_ZERO_WIDTH_JOINER = "\u200d"  # holds an emoji together
# GitHub Actions and Azure Pipelines run these commands from any log: ``::name::`` at the start of a line, the others anywhere in it
# (actions/runner, src/Runner.Common/ActionCommand.cs).
_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#(?:vso|teamcity)?\[)")


def visible(text: str) -> str:
    """Return the text on one line, without characters that move the cursor or change the text direction."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(char: str) -> str:
    if char.isprintable() or char == _ZERO_WIDTH_JOINER:
        return char
    return " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return the text for a terminal or a log, character for character: visible, and without commands of CI systems."""
    return _COMMAND.sub("\\1\N{REPLACEMENT CHARACTER}", visible(text))
