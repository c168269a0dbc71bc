"""A scenario with some settings changed, and the largest value of a setting that keeps a figure within a limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from planner.capacity.figures import Plan
from planner.capacity.plan import plan
from planner.spec.edits import ByName, Difference, Path, edited
from planner.spec.nodes import Node
from planner.spec.records import Spec
from planner.trace.unsupported import UnsupportedError

Settings: TypeAlias = Mapping[str, int | str]  # by key of the model or of training, or "cluster.…", "layout.…", "serving.…"

_OF_THE_MODEL = ("n_layers", "d_model")
RANK = "adapters.rank"
WITHOUT_RANK = ("ia3", "prompt", "prefix")


def value_of(spec: Spec, scenario: str, knob: str) -> int | None:
    """Return the value of a setting; None for n_layers if the spec lists layer groups, and for specs that are not from a file.

    None for ``adapters.rank`` without adapters that have one.
    """
    if spec.written is None:
        return None
    if knob in _OF_THE_MODEL:
        value: int = getattr(spec.model, knob)
        return None if knob == "n_layers" and ("model", "layers") in spec.places else value
    training = next(one.training for one in spec.scenarios if one.name == scenario)
    if knob == RANK:
        return training.adapters.rank if training.adapters and training.adapters.type not in WITHOUT_RANK else None
    return training.batch_size if knob == "batch_size" else training.sequence_length


def planned(spec: Spec, scenario: str, settings: Settings) -> Plan | None:
    """Return the scenario's plan with other settings; None if the spec would be invalid or the plan is not supported."""
    other = edited(spec, [setting(spec, scenario, knob, value) for knob, value in settings.items()])
    if other is None:
        return None
    try:
        return plan(other, next(one for one in other.scenarios if one.name == scenario))
    except UnsupportedError:
        return None


def setting(spec: Spec, scenario: str, knob: str, value: int | str) -> Difference:
    """Return the edit that gives a setting a value."""
    mark = spec.written.mark if spec.written else None
    assert mark is not None  # noqa: S101 - value_of() is None for such a spec
    section, _, key = knob.rpartition(".")
    own: Path = () if scenario == "base" else ("scenarios", ByName(scenario))
    within: Path = ("model",) if knob in _OF_THE_MODEL else own or ("training",)
    before: Path = own if section == "layout" else () if section in ("cluster", "serving") else within
    path: Path = (*before, section, key) if section else (*within, key)
    return Difference(path, None, replace(Node(mark, value), text=written(value)))


def written(value: object) -> str:
    """Return the YAML text of a value."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def largest(measure: Callable[[int], int | None], limit: Fraction, fits: int, exceeds: int) -> int:
    """Return the largest value that fits, from ``fits``, which does, to below ``exceeds``, which does not, for an increasing figure.

    A value with an invalid spec does not fit.
    """
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        value = measure(middle)
        if value is not None and value <= limit:
            fits = middle
        else:
            exceeds = middle
    return fits
