"""Keys of a configuration that the user sets: ``planner import --set vocab_size=32000``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from planner.importer.format import Format
from planner.importer.neutral import NEUTRAL
from planner.importer.reader import Config, UnsupportedConfigError, show
from planner.importer.shell_variables import Unset


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
    made = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    notes = []
    for key, value in chosen.items():
        section, name = _place(made, key)
        before = section.get(name)
        if before is not None and before != value and not isinstance(before, Unset):
            notes.append(f"`{key}` is {show(value)} as set, not {show(before)} as in the file")
        section[name] = value
    return made, tuple(notes)


def _place(config: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """Return where a key is, or where it must be written: at the top, in a section, or under ``--its-name``."""
    outer, dot, inner = key.partition(".")
    if dot:
        if not isinstance(config.get(outer), dict):
            raise UnsupportedConfigError(f"--set {key}: the file has no section `{outer}`")
        return config[outer], inner
    if key in config:
        return config, key
    dashed = f"--{key.replace('_', '-')}"
    sections = {name: section for name, section in config.items() if isinstance(section, dict)}
    have = [(name, one) for name, section in sections.items() for one in (key, dashed) if one in section]
    if len(have) > 1:
        raise UnsupportedConfigError(f"--set {key}: the file has it in {' and '.join(name for name, _ in have)}; name the section too")
    if have:
        return sections[have[0][0]], have[0][1]
    arguments = next((section for section in sections.values() if any(str(one).startswith("--") for one in section)), None)
    return (config, key) if arguments is None else (arguments, dashed)


def check_chosen(chosen: Mapping[str, Any], format_: Format, config: Config) -> None:
    """Reject keys that the format does not know."""
    kind = str(config.get("model_type"))
    rows = [format_.rows[kind]] if kind in format_.rows else list(format_.rows.values())
    known = {name for row in rows for key in row.known for name in (key, key.rpartition(".")[2])} | set(NEUTRAL)
    for key in chosen:
        if key not in known and key.rpartition(".")[2] not in known:
            near = difflib.get_close_matches(key[:60], known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnsupportedConfigError(f"--set {key}: unknown key of {format_.name} configurations{hint}")
