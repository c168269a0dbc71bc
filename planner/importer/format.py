"""A program's configuration files: how to recognize and read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.importer.engine import Row, read
from planner.importer.reader import Config, Imported, UnsupportedConfigError, show


@dataclass(frozen=True, slots=True)
class Given:
    """A file that was given to import."""

    text: str
    config: Config  # its keys and values


@dataclass(frozen=True, slots=True)
class Format:
    """A program's configuration files."""

    name: str  # the program
    files: str  # which of its files are read
    source: str  # which version of the program the rows were read from
    recognizes: Callable[[Given], bool]  # by what only this program's files have
    read: Callable[[Given], Imported]  # raises UnsupportedConfigError
    rows: Mapping[str, Row] = field(default_factory=dict)  # by their names for ``planner import --keys``
    marks: str = ""  # the keys by which it is recognized, in words


def one_of(keys: Iterable[str]) -> str:
    """Return in words that a file has one of these keys."""
    return f"one of {', '.join(f'`{key}`' for key in keys)}"


def by_row(name: str, row: Row) -> Callable[[Given], Imported]:
    """Return the reader of a format with one row, whose sections are read as one mapping."""
    return lambda given: read(row, flattened(given.config), name)


def flattened(config: Config) -> dict[str, Any]:
    """Return the values of all sections in one mapping. Raises UnsupportedConfigError for a key with two values."""
    flat: dict[str, Any] = {}
    places: dict[str, str] = {}
    for key, value in config.items():
        for name, one in value.items() if isinstance(value, Mapping) else [(key, value)]:
            place = f"{key}.{name}" if isinstance(value, Mapping) else name
            if name in flat and flat[name] != one:
                raise UnsupportedConfigError(f"`{places[name]}: {show(flat[name])}` and `{place}: {show(one)}` disagree")
            flat[name], places[name] = one, place
    return flat


def has_all(*keys: str) -> Callable[[Given], bool]:
    """Return whether a file has these keys, at the top or in its sections."""
    return lambda given: set(keys) <= set(given.config).union(*(part for part in given.config.values() if isinstance(part, Mapping)))
