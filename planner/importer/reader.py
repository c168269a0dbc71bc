"""What an import yields: the model with the origin of each setting, or a refusal."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]
SpecModel = dict[str, Any]


class UnsupportedConfigError(ValueError):
    """A configuration that the spec language does not support, or that cannot be read with certainty."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The ``model`` mapping of a spec, and what a reader of it should know."""

    model: SpecModel
    model_type: str  # as the configuration calls itself
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the keys that each setting of the model came from
    defaults: frozenset[str] = frozenset()  # settings that are absent from the configuration: the type's own values
    not_understood: tuple[str, ...] = ()  # unknown keys whose names do not suggest a part of the model
    notes: tuple[str, ...] = ()  # what the spec says differently from the configuration, or leaves out
    further: SpecModel = field(default_factory=dict)  # the configuration's training settings

    @property
    def training(self) -> SpecModel:
        """The ``training`` that was read, and what the model needs: no fused attention caps its scores."""
        eager = {"implementation": "pytorch-eager"} if self.model.get("attention", {}).get("logit_softcap") else {}
        return self.further | eager


def show(value: object) -> str:
    """Return a value for a message: one short line, whatever the file holds."""
    return reprlib.repr(value)
