"""Recognize the format of a configuration and read it."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.format import Format, Given
from planner.importer.formats import FORMATS, PROGRAMS, torchtitan
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.syntax import parsed


def format_of(given: Given) -> Format | None:
    """Return the format of a file, if it is recognized."""
    return next((one for one in FORMATS if one.recognizes(given)), None)


def read_config(text: str, file: str) -> Imported:
    """Return the model of a configuration; the ``file``'s name helps to distinguish JSON from Python. Raises UnsupportedConfigError."""
    given = Given(text, parsed(text, file))
    if found := format_of(given):
        return found.read(given)
    if isinstance(given.config.get("model"), Mapping) and not file.endswith(".toml"):
        raise UnsupportedConfigError("unrecognized configuration (is it already a spec?)")
    if file.endswith(".toml"):
        raise UnsupportedConfigError(f"unrecognized TOML: only torchtitan's is read, which has {torchtitan.FORMAT.marks}")
    raise UnsupportedConfigError(
        f"unrecognized configuration: it has the keys of none of {', '.join(PROGRAMS)}; docs/formats.md lists the keys of each"
    )
