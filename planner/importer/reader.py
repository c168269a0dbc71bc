"""Results of an import: the model with the origin of each setting, or an error."""

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
    """The ``model`` mapping of a spec, with origins and notes."""

    model: SpecModel
    model_type: str  # as in the configuration, or in its text part
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the keys that each setting of the model came from
    defaults: frozenset[str] = frozenset()  # settings missing from the configuration: the type's defaults
    not_understood: tuple[str, ...] = ()  # unknown keys whose names do not suggest a part of the model
    notes: tuple[str, ...] = ()  # differences from the configuration
    further: SpecModel = field(default_factory=dict)  # the configuration's training settings
    omits: tuple[str, ...] = ()  # parts of the configured model that the spec does not count
    extends: str = ""  # the model of the catalogue that the configuration names, in place of a model of its own
    composite: str = ""  # the model_type around the text part, where other parts are imported too

    @property
    def training(self) -> SpecModel:
        """The training settings of the configuration and of the model: soft-capped scores require eager attention."""
        eager = {"implementation": "pytorch-eager"} if self.model.get("attention", {}).get("logit_softcap") else {}
        return self.further | eager

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a user must know to rely on the import, beside what it omits: its notes, and the keys that it ignored."""
        ignored = f"ignored unrecognized keys (assumed not to affect the model): {', '.join(self.not_understood)}"
        return (*(f"note: {text}" for text in self.notes), *((ignored,) if self.not_understood else ()))


_KEYS = reprlib.Repr()
_KEYS.maxstring = 80  # a key of a section of a section


def show_key(key: str) -> str:
    """Return the name of a key for a message, on one line."""
    return _KEYS.repr(key)[1:-1]


def show(value: object) -> str:
    """Return a value for a message, as one short line."""
    return reprlib.repr(value)
