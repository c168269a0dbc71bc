"""The scenarios of a model that a change renames or removes, so that the budgets of the base can still be applied to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from planner.capacity.figures import Plan
from planner.review.attribution import plan
from planner.spec.edits import ByName, Difference, edited
from planner.spec.records import Scenario, Spec, Training
from planner.trace.unsupported import UnsupportedError

PAIRS = 10**5  # removed times new names that are searched for renamed ones

_SETTINGS = tuple(field.name for field in fields(Training))


def renamed(old: Spec, new: Spec) -> dict[str, str]:
    """Return the old names of renamed scenarios by the new ones.

    A new scenario is matched with one that is gone if they are equal, or override at least one setting in common; the most similar first.
    """
    gone, come = _missing(old, new), _missing(new, old)
    if len(gone) * len(come) > PAIRS:
        return {}
    ranked = sorted(
        ((_likeness(was, old, now, new), now.name, was.name) for was in gone for now in come),
        key=lambda one: (tuple(-part for part in one[0]), one[1:]),
    )
    names: dict[str, str] = {}
    for likeness, name, was_name in ranked:
        if any(likeness) and name not in names and was_name not in names.values():
            names[name] = was_name
    return names


def _missing(one: Spec, other: Spec) -> list[Scenario]:
    """Return the scenarios of a spec whose names the other does not have."""
    names = {scenario.name for scenario in other.scenarios}
    return [scenario for scenario in one.scenarios if scenario.name not in names]


def _likeness(was: Scenario, old: Spec, now: Scenario, new: Spec) -> tuple[int, int, int]:
    """Return whether two scenarios are equal, and how many of their overrides are equal, and are of the same settings."""
    before, after = _overrides(was, old), _overrides(now, new)
    common = before.keys() & after.keys()
    return int(was.training == now.training), sum(before[key] == after[key] for key in common), len(common)


def _overrides(scenario: Scenario, spec: Spec) -> dict[str, object]:
    values = {name: getattr(scenario.training, name) for name in _SETTINGS}
    return {name: value for name, value in values.items() if value != getattr(spec.scenarios[0].training, name)}


def removed(old: Spec, new: Spec, names: Mapping[str, str]) -> dict[str, Plan | None]:
    """Return the scenarios that only the old spec has, each with its plan in the new one; None if it is unchanged or cannot be planned."""
    return {one.name: _kept(one, old, new) for one in _missing(old, new) if one.name not in names.values()}


def _kept(scenario: Scenario, old: Spec, new: Spec) -> Plan | None:
    """Return the plan of the new spec in a scenario of the old one, unless that is what it was."""
    nodes = old.written.items()["scenarios"].elements() if old.written and "scenarios" in old.written.items() else []
    node = next((one for one in nodes if one.items()["name"].value == scenario.name), None)
    spec = edited(new, [Difference(("scenarios", ByName(scenario.name)), None, node)]) if node else None
    kept = next((one for one in spec.scenarios if one.name == scenario.name), None) if spec else None
    if spec is None or kept is None or (spec.model == old.model and kept == scenario):
        return None
    try:
        return plan(spec, kept)
    except UnsupportedError:
        return None
