"""The keys of a type: ``planner import --keys TYPE``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator

from planner.importer.engine import Row
from planner.importer.formats import FORMATS, huggingface
from planner.importer.formats.huggingface import unsupported
from planner.importer.keys import Source, uses_of
from planner.importer.neutral import NEUTRAL, NEUTRAL_BEGINNINGS, NEUTRAL_ENDINGS, REFUSED_ANYWHERE
from planner.importer.reader import UnsupportedConfigError
from planner.importer.types import FAMILIES, REFUSED, SUPPORTED

TRAINERS = {name: row for one in FORMATS if one is not huggingface.FORMAT for name, row in sorted(one.rows.items())}
ALL = "all"


def keys_text(name: str) -> str:
    """Return the keys of a type, or for ``all`` the types. Raises UnsupportedConfigError for a type that is not supported."""
    if name == ALL:
        return "".join(f"{line}\n" for line in _types())
    row = FAMILIES.get(name) or TRAINERS.get(name)
    if row is None:
        raise UnsupportedConfigError(unsupported(name))
    return "".join(f"{line}\n" for line in _listed(name, row))


def _types() -> Iterator[str]:
    yield from (*SUPPORTED, *TRAINERS)
    yield from (f"{name} is not supported: it {reason}" for name, reason in REFUSED.items())


def _listed(name: str, row: Row) -> Iterator[str]:
    read = read_keys(row)
    yield f"{name}: keys that are read, the meaning of their absence, and the settings they become"
    yield from _columns([(key, absent, ", ".join(settings)) for key, (settings, absent) in read.items()])
    yield "Keys with one supported value, or more"
    yield from _columns([(key, allowed_text(allowed)) for key, allowed in {**row.only, **dict.fromkeys(REFUSED_ANYWHERE, False)}.items()])
    yield "Keys that change no count"
    reasons: dict[str, list[str]] = {}
    for key, reason in {**NEUTRAL, **row.ignored}.items():
        if key not in read and key not in row.only:
            reasons.setdefault(reason, []).append(key)
    for reason, keys in reasons.items():
        yield from textwrap.wrap(f"{reason}: {', '.join(keys)}", 120, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    patterns = (*(f"*{ending}" for ending in NEUTRAL_ENDINGS), *(f"{beginning}*" for beginning in NEUTRAL_BEGINNINGS))
    yield f"  by their names: {', '.join(patterns)}"


def read_keys(row: Row) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the settings that each key becomes, and the meaning of its absence."""
    read: dict[str, tuple[tuple[str, ...], str]] = {}
    for setting, value in row.settings.items():
        named = "layers" if setting.startswith(("layers.", "_")) else setting
        for key, absent in uses_of(value):
            settings, meaning = read.get(key, ((), ""))
            read[key] = (tuple(dict.fromkeys((*settings, named))), meaning or absent)
    return read


def allowed_text(allowed: object) -> str:
    """Return the supported values of a key in words."""
    if isinstance(allowed, Source):
        return allowed.text
    values = allowed if isinstance(allowed, tuple) else (allowed,)
    return " or ".join(one.text if isinstance(one, Source) else json.dumps(one) for one in values) if values else "absent"


def _columns(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with aligned columns."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
