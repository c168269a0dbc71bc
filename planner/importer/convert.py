"""A configuration that was given as a spec."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planner.spec.nodes import Source

_NEVER_SPECS = (".toml", ".py", ".sh")
_KEY = re.compile(r"""^["']?(name|model|extends)["']?\s*:""", re.MULTILINE)
_ANY_KEY = re.compile(r"""^["']?[\w-]+["']?\s*:""", re.MULTILINE)


def as_spec(source: Source, tell: Callable[[str], None] = lambda _: None) -> Source:
    """Return a spec as is, and a configuration as the text of the spec it describes. Raises SpecError if it is not supported.

    ``tell`` is called with what a user must know to rely on the import.
    """
    if not is_config(source):
        return source
    from planner.importer.files import spec_source

    return spec_source(source, tell)


def is_config(source: Source) -> bool:
    """Whether a file that was given as a spec is another program's configuration: by its name, or by its keys without those of a spec."""
    if source.file.endswith(_NEVER_SPECS):
        return True
    json = source.file.endswith(".json")
    if not json and _is_spec(_KEY.findall(source.text)):
        return False
    from planner.importer.format import Given
    from planner.importer.reader import UnsupportedConfigError
    from planner.importer.recognize import format_of
    from planner.importer.syntax import parsed

    try:
        config = parsed(source.text, source.file)
    except UnsupportedConfigError:
        return json or bool(_ANY_KEY.search(source.text) and not _KEY.search(source.text))
    if _is_spec(config):
        return False
    return format_of(Given(source.text, config)) is not None or (json and "model" not in config)


def _is_spec(keys: Iterable[str]) -> bool:
    """Whether these keys of a file are those of a spec."""
    return "extends" in (found := {*keys}) or {"name", "model"} <= found
