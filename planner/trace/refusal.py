"""What the trace cannot say is refused by name, never guessed."""

from __future__ import annotations


class NotModelledError(ValueError):
    """The spec asks for something whose figures we do not know; the message names it and says what can be asked instead."""
