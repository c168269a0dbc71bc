"""The way out of a broken budget: the largest batch, sequence or number of layers that fits, all else being as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from planner import capacity
from planner.report.columns import CLAIMABLE
from planner.review.edits import Difference, Named, Path, edited
from planner.spec.nodes import Node
from planner.spec.records import Spec

_KNOBS = ("batch_size", "sequence_length", "n_layers")


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
        now = _now(spec, scenario, knob)
        if now is None:
            continue
        measure = _measure(spec, scenario, figure, knob)
        smallest = measure(1)
        if smallest is None or smallest == measure(now):
            continue
        if smallest > limit:
            yield WayOut(knob, None)
        else:
            yield WayOut(knob, _largest(measure, limit, now))


def _largest(measure: Callable[[int], int | None], limit: Fraction, now: int) -> int:
    """Return the largest value below ``now`` that fits: 1 does and ``now`` does not, and the figures grow with the setting."""
    fits, exceeds = 1, now
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        value = measure(middle)
        if value is not None and value <= limit:
            fits = middle
        else:
            exceeds = middle
    return fits


def _now(spec: Spec, scenario: str, knob: str) -> int | None:
    if knob == "n_layers":
        return spec.model.n_layers if spec.written and ("model", "layers") not in spec.places else None
    training = next(one.training for one in spec.scenarios if one.name == scenario)
    return training.batch_size if knob == "batch_size" else training.sequence_length


def _measure(spec: Spec, scenario: str, figure: str, knob: str) -> Callable[[int], int | None]:
    """Return the figure as a function of the setting; None where the spec would not be valid."""

    def measure(value: int) -> int | None:
        other = edited(spec, [Difference(_path(scenario, knob), None, _number(spec, value))])
        if other is None:
            return None
        plan = capacity.plan(other, next(one for one in other.scenarios if one.name == scenario))
        cell = CLAIMABLE[figure].read(plan)
        return cell if isinstance(cell, int) else None

    return measure


def _path(scenario: str, knob: str) -> Path:
    if knob == "n_layers":
        return ("model", knob)
    return ("training", knob) if scenario == "base" else ("scenarios", Named(scenario), knob)


def _number(spec: Spec, value: int) -> Node:
    mark = spec.written.mark if spec.written else None
    assert mark is not None  # noqa: S101 - edited() has asked for the tree
    return replace(Node(mark, value), text=str(value))
