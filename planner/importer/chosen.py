"""Keys of a configuration that the user sets: ``planner import --set vocab_size=32000``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from planner.importer.engine import Row
from planner.importer.neutral import NEUTRAL
from planner.importer.reader import Config, UnsupportedConfigError, show
from planner.importer.shell_variables import Unset

_DEEP = 10  # sections in sections


def chosen_keys(assignments: Iterable[str], literal: Callable[[str], Any]) -> dict[str, Any]:
    """Return the values of ``key=value`` by key. Raises UnsupportedConfigError."""
    made: dict[str, Any] = {}
    for one in assignments:
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise UnsupportedConfigError(f"--set {one}: expected KEY=VALUE")
        if key in made:
            raise UnsupportedConfigError(f"--set {key} is given twice: {show(made[key])} and {show(literal(value))}")
        made[key] = None if value in ("null", "none") else literal(value)
    return made


def with_chosen(config: Config, chosen: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a configuration with keys set, and a note for each key that the file has with another value."""
    made = dict(config)
    notes = []
    for key, value in chosen.items():
        *path, name = _path(made, key)
        section = made
        for outer in path:
            section[outer] = dict(section[outer]) if isinstance(section.get(outer), Mapping) else {}
            section = section[outer]
        before = section.get(name)
        if before is not None and before != value and not isinstance(before, Unset):
            notes.append(f"`{key}` is {show(value)} as set, not {show(before)} as in the file")
        section[name] = value
    return made, tuple(notes)


def _path(config: Config, key: str) -> list[str]:
    """Return the sections and the name of a key: where the file has it, else at the top or, in a file of ``--arguments``, among those."""
    if "." in key:
        outer = key.partition(".")[0]
        if not isinstance(config.get(outer), Mapping):
            raise UnsupportedConfigError(f"--set {key}: the file has no section `{outer}`")
        return key.split(".")
    if key in config:
        return [key]
    dashed = f"--{key.replace('_', '-')}"
    paths = list(_sections(config))
    have = [[*path, name] for path, section in paths for name in (key, dashed) if name in section]
    if len(have) > 1:
        places = " and ".join(".".join(path) for path in have[:5])
        raise UnsupportedConfigError(f"--set {key}: the file has it as {places}; name the section too")
    if have:
        return have[0]
    return next(([*path, dashed] for path, section in paths if any(str(name).startswith("--") for name in section)), [key])


def _sections(config: Config) -> Iterator[tuple[list[str], Config]]:
    """Yield all sections with the names that lead to them, in the order of the file."""
    rest: list[tuple[list[str], Config]] = [([], config)]
    while rest:
        path, section = rest.pop()
        yield path, section
        inside = [([*path, str(name)], inner) for name, inner in section.items() if isinstance(inner, Mapping) and len(path) < _DEEP]
        rest += reversed(inside)


def check_chosen(chosen: Mapping[str, Any], program: str, rows: Mapping[str, Row], config: Config) -> None:
    """Reject keys that a program's rows do not know."""
    kind = str(config.get("model_type"))
    read = [rows[kind]] if kind in rows else list(rows.values())
    known = {name for row in read for key in row.known for name in (key, key.rpartition(".")[2])} | set(NEUTRAL)
    for key in chosen:
        if key not in known and key.rpartition(".")[2] not in known:
            near = difflib.get_close_matches(key[:60], known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnsupportedConfigError(f"--set {key}: unknown key of {program} configurations{hint}")
