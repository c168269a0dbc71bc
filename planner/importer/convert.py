"""A configuration that was given as a spec."""

from __future__ import annotations

import json
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
    """Whether a file that was given as a spec is a configuration: JSON that is not a spec."""
    if not (source.file.endswith(".json") or (source.file == STDIN and source.text.lstrip().startswith("{"))):
        return False
    try:
        config = json.loads(source.text)
    except (ValueError, RecursionError):
        return source.file.endswith(".json")
    return not isinstance(config, dict) or "model" not in config
