"""A configuration that was named as a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.spec.source import STDIN

if TYPE_CHECKING:
    from planner.spec.nodes import Source


def as_spec(source: Source) -> Source:
    """Return a spec as is, and a configuration in JSON as the text of the spec it describes. Raises SpecError if it is not supported."""
    if not source.file.endswith(".json") and not (source.file == STDIN and source.text.lstrip().startswith("{")):
        return source
    from planner.importer.files import spec_source
    from planner.importer.sources import is_config

    return spec_source(source) if is_config(source) else source
