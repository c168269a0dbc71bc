"""The page about the configurations of other programs, and the list of these programs in other pages."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping

from planner.importer.format import Format
from planner.importer.formats import FORMATS, PROGRAMS
from planner.importer.listing import allowed_text, read_keys
from planner.importer.neutral import NEUTRAL
from tools.tables import WRITTEN, table

ABOUT = """\
`planner import FILE` recognizes these files by keys that only they have. A dot leads into a section: `model.dtype` is `dtype` in the
section `model`. A key that is in none of the lists below is refused if its name suggests a part of the model, and listed otherwise.
`planner import --keys NAME` prints the same for one kind of file, and `--set KEY=VALUE` sets a key that a file lacks."""
_MANY = 10  # types, whose keys would fill the page
_LIST = re.compile(r"(?<=Programs: )[^.]*(?=\.$)", re.MULTILINE)


def format_reference() -> Iterator[str]:
    """Describe each format: its files, its keys, what is refused and what is ignored."""
    yield from ("# Configurations of other programs", "", WRITTEN, "")
    yield from ABOUT.splitlines()
    for one in FORMATS:
        yield from _format(one)
    yield from ("", "## Keys of all formats that change no count", "")
    yield from _ignored(NEUTRAL)


def _format(one: Format) -> Iterator[str]:
    yield from ("", f"## {one.name}: {one.files}", "")
    yield f"Read from {one.source}. Recognized by {one.marks}." if one.marks else f"Read from {one.source}."
    if len(one.rows) > _MANY:
        yield from ("", f"It has {len(one.rows)} types with keys of their own: `planner import --keys TYPE` prints them.")
        return
    for name, row in one.rows.items():
        yield from ("", f"### `{name}`", "")
        known = read_keys(row).items()
        yield from table(
            ("key", "without it", "settings"), ((f"`{key}`", absent, ", ".join(settings)) for key, (settings, absent) in known)
        )
        if row.only:
            yield from ("", "Other values are refused:", "")
            yield from (f"- `{key}`: {allowed_text(allowed)}" for key, allowed in row.only.items())
        if row.ignored:
            yield ""
            yield from _ignored(row.ignored)


def _ignored(reasons: Mapping[str, str]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for key, reason in reasons.items():
        by_reason[reason].append(f"`{key}`")
    yield from (f"- ignored ({reason}): {', '.join(keys)}" for reason, keys in by_reason.items())


def with_programs(page: str) -> str:
    """Return a page with the current list of programs, in lines of its width."""
    listed = f"{', '.join(PROGRAMS[:-1])} and {PROGRAMS[-1]}"
    if "\nPrograms: " in page:
        listed = textwrap.fill(f"Programs: {listed}", 139).removeprefix("Programs: ")
    return _LIST.sub(lambda _: listed, page)
