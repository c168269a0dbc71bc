"""A configuration that was given as a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.spec.source import STDIN

if TYPE_CHECKING:
    from planner.spec.nodes import Source


def as_spec(source: Source) -> Source:
    """Return a spec as is, and a configuration in JSON as the text of the spec it describes. Raises SpecError if it is not supported."""
    if not is_config(source):
        return source
    from planner.importer.files import spec_source

    return spec_source(source)


def is_config(source: Source) -> bool:
    """Whether a file that was given as a spec is a configuration: JSON, or YAML in braces, that is not a spec; TOML; Python."""
    if source.file.endswith((".toml", ".py")):
        return True
    json = source.file.endswith(".json")
    if not json and not source.text.lstrip().startswith("{"):
        return False
    from planner.importer.reader import UnsupportedConfigError
    from planner.importer.syntax import parsed

    try:
        config = parsed(source.text, source.file)
    except UnsupportedConfigError:
        return json
    return not {"model", "extends"} & config.keys() and (json or source.file == STDIN or "name" not in config)
