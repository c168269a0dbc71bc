"""Recognize the format of a configuration and read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.importer import sharding
from planner.importer.chosen import check_chosen, chosen_keys, with_chosen
from planner.importer.format import Format, Given
from planner.importer.formats import FORMATS, PROGRAMS, torchtitan
from planner.importer.reader import Config, Imported, UnsupportedConfigError
from planner.importer.syntax import literal, parsed


def format_of(given: Given) -> Format | None:
    """Return the format of a file, if it is recognized."""
    return next((one for one in FORMATS if one.recognizes(given)), None)


def program_of(text: str, file: str, assignments: Iterable[str] = ()) -> tuple[str, Config]:
    """Return the program of a configuration that can be read, and its keys, with those set by assignments."""
    config, _ = with_chosen(parsed(text, file), chosen_keys(assignments, literal))
    found = format_of(Given(text, config))
    return found.name if found else "", config


def read_config(text: str, file: str, assignments: Iterable[str] = ()) -> Imported:
    """Return the model of a configuration, with keys set by assignments such as ``vocab_size=32000``. Raises UnsupportedConfigError.

    The ``file``'s name helps to distinguish JSON from Python.
    """
    chosen = chosen_keys(assignments, literal)
    config, notes = with_chosen(parsed(text, file), chosen)
    given = Given(text, config)
    if found := format_of(given):
        rows = {key: row for one in FORMATS if one.name == found.name for key, row in one.rows.items()}
        check_chosen(chosen, found.name, rows, config)
        imported = found.read(given)
        return replace(imported, notes=(*notes, *imported.notes)) if notes else imported
    if isinstance(given.config.get("model"), Mapping) and not file.endswith(".toml"):
        raise UnsupportedConfigError("unrecognized configuration (is it already a spec?)")
    if file.endswith(".toml"):
        raise UnsupportedConfigError(f"unrecognized TOML: only torchtitan's is read, which has {torchtitan.FORMAT.marks}")
    if program := sharding.program_of(config):
        raise UnsupportedConfigError(f"{program}'s configuration has no model; give the model's, and this file with --layout")
    raise UnsupportedConfigError(
        f"unrecognized configuration: it has the keys of none of {', '.join(PROGRAMS)}; docs/formats.md lists the keys of each"
    )
