"""The error for specs that the trace does not support."""

from __future__ import annotations


class UnsupportedError(ValueError):
    """The spec needs something that is not supported; the message names it and a supported alternative."""
