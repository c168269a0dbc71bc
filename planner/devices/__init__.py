"""The device catalog: the memory of accelerators as software reports it. The data is in ``devices.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, and the source of its memory."""

    name: str
    memory_bytes: int
    source: str


def find(name: str) -> Device | None:
    """Return the device with this name or alias, ignoring case."""
    return _by_name().get(name.lower())


def smallest(memory_bytes: int) -> Device | None:
    """Return the device with the least memory that holds so many bytes, the first one listed of several."""
    return min((one for one in _by_name().values() if one.memory_bytes >= memory_bytes), key=lambda one: one.memory_bytes, default=None)


def nearest(name: str) -> tuple[str, ...]:
    """Return up to three similar names."""
    found = get_close_matches(name.lower(), _by_name(), n=3)
    return tuple(dict.fromkeys(_by_name()[close].name for close in found))


@cache
def _by_name() -> Mapping[str, Device]:
    import yaml

    catalog = yaml.safe_load((Path(__file__).parent / "devices.yaml").read_text(encoding="utf-8"))
    return {
        name.lower(): Device(entry["name"], entry["memory_mib"] << 20, catalog["sources"][entry["source"]])
        for entry in catalog["devices"]
        for name in (entry["name"], *entry["aliases"])
    }
