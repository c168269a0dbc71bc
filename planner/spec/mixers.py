"""Mixers: their records, and which ones a layer has."""

from __future__ import annotations

from planner.spec.key import held, keys
from planner.spec.nodes import UNREADABLE
from planner.spec.records import Layer, Mixer
from planner.spec.settings import Settings, Unresolved

# The layer's keys that no field of its own holds: a mixer's name is the key of its settings.
RECORDS: dict[str, type[Mixer]] = {field.name: key.kind for field, key in keys(Layer) if key.kind and not held(Layer, field)}


def names(settings: Settings) -> tuple[str, ...]:
    """Return the names of a layer's mixers, side by side; ``none`` is no mixer. Raises Unresolved."""
    written = settings.written("mixer")
    chosen = [node.value for node in written.elements()] if written else []
    if UNREADABLE in chosen:
        raise Unresolved("mixer")
    return tuple(str(name) for name in chosen or [settings.get("mixer")] if name != "none")
