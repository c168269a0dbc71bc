"""The kernels of liger-kernel in files of fine-tuning programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from planner.importer.reader import UnsupportedConfigError
from planner.spec.liger import SWITCHES, switches_on
from planner.spec.records import Liger

NAMES = tuple(field.name for field in fields(Liger))


def fitting(training: Mapping[str, Any], kind: str) -> tuple[dict[str, Any], str]:
    """Return the training settings with the switches that a class has, as the package ignores others, and what is then not planned."""
    if training.get("liger") is None:
        return dict(training), ""
    given, rest = training["liger"], {key: value for key, value in training.items() if key != "liger"}
    known = next((known for known in SWITCHES if known == kind), None)
    if known is None:
        return rest, f"those of liger-kernel for class {kind or 'unknown'}"
    wanted = {} if given is True else {name: on for name, on in given.items() if name in SWITCHES[known].supported}
    try:
        on = switches_on(known, Liger(**wanted))
    except ValueError as error:
        raise UnsupportedConfigError(str(error)) from None
    return rest | ({"liger": wanted or True} if on else {}), ""
