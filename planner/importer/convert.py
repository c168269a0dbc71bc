"""A configuration that was given as a spec."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.spec.nodes import Source

_NEVER_SPECS = (".toml", ".py", ".sh")
_SPEC = re.compile(r"^(model|extends) *:", re.MULTILINE)


def as_spec(source: Source) -> Source:
    """Return a spec as is, and a configuration as the text of the spec it describes. Raises SpecError if it is not supported."""
    if not is_config(source):
        return source
    from planner.importer.files import spec_source

    return spec_source(source)


def is_config(source: Source) -> bool:
    """Whether a file that was given as a spec is another program's configuration: by its name, or by its keys without those of a spec."""
    if source.file.endswith(_NEVER_SPECS):
        return True
    if not source.file.endswith(".json") and _SPEC.search(source.text):
        return False
    from planner.importer.format import Given
    from planner.importer.reader import UnsupportedConfigError
    from planner.importer.recognize import format_of
    from planner.importer.syntax import parsed

    try:
        config = parsed(source.text, source.file)
    except UnsupportedConfigError:
        return source.file.endswith(".json")
    if "extends" in config or {"model", "name"} <= config.keys():
        return False
    recognized = format_of(Given(source.text, config)) is not None
    return recognized or (source.file.endswith(".json") and "model" not in config)
