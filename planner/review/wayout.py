"""The way out of a broken budget: the largest batch, sequence or number of layers that fits, all else being as it is.

``planner fit`` searches with the same functions, for larger values too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from planner import capacity
from planner.capacity.records import Plan
from planner.report.columns import CLAIMABLE
from planner.review.edits import Difference, Named, Path, edited
from planner.spec.nodes import Node
from planner.spec.records import Spec
from planner.trace.refusal import NotModelledError

_KNOBS = ("batch_size", "sequence_length", "n_layers")
_OF_THE_MODEL = ("n_layers", "d_model")


@dataclass(frozen=True, slots=True)
class WayOut:
    """The largest value of a setting with which the figure stays within its limit; None: not even 1 does."""

    setting: str
    largest: int | None


def find_ways_out(spec: Spec, scenario: str, figure: str, limit: Fraction) -> tuple[WayOut, ...]:
    """Return the settings that can bring a figure of a scenario down to its limit, exactly, by bisection over plans.

    A setting that does not move the figure is left out, and so is the number of layers where the layers are several runs.
    """
    return tuple(_ways(spec, scenario, figure, limit))


def _ways(spec: Spec, scenario: str, figure: str, limit: Fraction) -> Iterator[WayOut]:
    for knob in _KNOBS:
        now = value_of(spec, scenario, knob)
        if now is None:
            continue
        measure = partial(measured, spec, scenario, figure, knob)
        smallest = measure(1)
        if smallest is None or smallest == measure(now):
            continue
        if smallest > limit:
            yield WayOut(knob, None)
        else:
            yield WayOut(knob, largest(measure, limit, 1, now))


def largest(measure: Callable[[int], int | None], limit: Fraction, fits: int, exceeds: int) -> int:
    """Return the largest value that fits, ``fits`` being one that does and ``exceeds`` one that does not, for a figure that grows.

    A value that has no figure, because the spec would not be valid, does not fit.
    """
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        value = measure(middle)
        if value is not None and value <= limit:
            fits = middle
        else:
            exceeds = middle
    return fits


def value_of(spec: Spec, scenario: str, knob: str) -> int | None:
    """Return what a setting is; None for the number of layers where they are several runs, and for a spec that was not read."""
    if spec.written is None:
        return None
    if knob in _OF_THE_MODEL:
        value: int = getattr(spec.model, knob)
        return None if knob == "n_layers" and ("model", "layers") in spec.places else value
    training = next(one.training for one in spec.scenarios if one.name == scenario)
    return training.batch_size if knob == "batch_size" else training.sequence_length


def measured(spec: Spec, scenario: str, figure: str, knob: str, value: int) -> int | None:
    """Return the figure with the setting at a value; None where the spec would not be valid."""
    plan = planned(spec, scenario, knob, value)
    return CLAIMABLE[figure].value(plan) if plan else None


def planned(spec: Spec, scenario: str, knob: str, value: int) -> Plan | None:
    """Return the scenario's plan with the setting at a value; None where the spec would not be valid or its figures are not known."""
    other = edited(spec, [setting(spec, scenario, knob, value)])
    if other is None:
        return None
    try:
        return capacity.plan(other, next(one for one in other.scenarios if one.name == scenario))
    except NotModelledError:
        return None


def setting(spec: Spec, scenario: str, knob: str, value: int) -> Difference:
    """Return the edit that gives a setting a value."""
    return Difference(_path(scenario, knob), None, _number(spec, value))


def _path(scenario: str, knob: str) -> Path:
    if knob in _OF_THE_MODEL:
        return ("model", knob)
    return ("training", knob) if scenario == "base" else ("scenarios", Named(scenario), knob)


def _number(spec: Spec, value: int) -> Node:
    mark = spec.written.mark if spec.written else None
    assert mark is not None  # noqa: S101 - edited() has asked for the tree
    return replace(Node(mark, value), text=str(value))
