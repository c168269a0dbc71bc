"""The layouts over several devices that are modelled; all others are refused by name."""

from __future__ import annotations

from planner.spec.records import Layout
from planner.trace.unsupported import UnsupportedError


def refuse_unmodelled(layout: Layout | None) -> None:
    """Raise UnsupportedError for a layout that is not modelled."""
    if layout and layout.cluster.devices > 1:
        raise UnsupportedError("a layout of several devices is not modelled yet")
