"""Settings of a record that differ from their defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from planner.spec.records import Attention, Experts, FeedForward, LatentAttention, Layer, Model, Training


def differing(
    record: Model | Layer | Attention | FeedForward | Experts | LatentAttention | Training, known: Sequence[str]
) -> Iterator[str]:
    """Yield the settings of a record that differ from their defaults, except known ones."""
    return (one.name for one in fields(record) if one.name not in known and getattr(record, one.name) != one.default)
