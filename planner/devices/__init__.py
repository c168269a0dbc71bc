"""The device catalog: memory of accelerators as software reports it, their peak rates and bandwidths. The data is in ``devices.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

PER_NODE = 8  # devices per node where the catalog has no other number


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator. Figures of which no document was read are None or missing; ``sources`` has that of each other one.

    ``tflops`` are dense peak rates of matrix products by type, and ``matmul_tflops`` the highest that were measured, in 10^12 a second.
    ``gb_per_s`` and ``link_gb_per_s`` are the bandwidths of its memory and, in one direction, of its link, in 10^9 bytes a second.
    """

    name: str
    memory_bytes: int
    per_node: int = PER_NODE
    tflops: Mapping[str, float] = field(default_factory=dict)
    matmul_tflops: Mapping[str, float] = field(default_factory=dict)
    gb_per_s: float | None = None
    link: str | None = None
    link_gb_per_s: float | None = None
    watts: int | None = None
    note: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)


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


def entries(pattern: str = "") -> tuple[Device, ...]:
    """Return the devices with the pattern in their name, ignoring case, in the order of the catalog."""
    return tuple(one for name, one in _by_name().items() if name == one.name.lower() and pattern.lower() in name)


@cache
def _by_name() -> Mapping[str, Device]:
    import yaml

    text = (Path(__file__).parent / "devices.yaml").read_text(encoding="utf-8")
    catalog = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    found: dict[str, Device] = {}
    for entry in catalog["devices"]:
        device = _device(entry, catalog["sources"])
        found.update((name.lower(), device) for name in (entry["name"], *entry["aliases"]))
    return found


def _device(entry: Mapping[str, Any], sources: Mapping[str, str]) -> Device:
    """Return the device of an entry of the catalog."""
    groups = {name: dict(group) for name, group in entry.items() if isinstance(group, dict)}
    cited = {name: sources[group.pop("source")] for name, group in groups.items()}
    link = groups.get("link", {})
    return Device(
        entry["name"],
        groups["memory"]["mib"] << 20,
        entry.get("per_node", PER_NODE),
        groups.get("tflops", {}),
        groups.get("matmul_tflops", {}),
        groups.get("bandwidth", {}).get("gb_per_s"),
        link.get("name"),
        link.get("gb_per_s"),
        groups.get("power", {}).get("watts"),
        entry.get("note", ""),
        cited,
    )
