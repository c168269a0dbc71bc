"""Capacity planner for transformer language models: exact parameters, memory and FLOPs from one YAML spec.

>>> import planner
>>> plan = planner.plan(planner.load("specs/gpt2-small.yaml"))
>>> plan.parameters.total
124439808
>>> plan.memory.activations_bytes > plan.memory.logits_bytes
True
>>> plan.to_frame()["params_total"].tolist()
[124439808]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from planner.capacity.figures import Plan
    from planner.report.notebook import Plans
    from planner.spec.records import Spec

__all__ = ["__version__", "load", "plan", "plans"]

__version__ = "0.1.0"


def load(path: str | os.PathLike[str]) -> Spec:
    """Read the spec or config.json at ``path``. Raises ``planner.spec.problems.SpecError``, which lists every error with its location."""
    from planner import spec
    from planner.importer.convert import as_spec

    return spec.load(path, convert=as_spec)


def plan(spec: Spec, scenario: str = "base") -> Plan:
    """Plan a scenario of the spec by name; ``base`` is the spec's ``training``. Raises ``ValueError`` for an unknown name."""
    from planner import capacity

    for candidate in spec.scenarios:
        if candidate.name == scenario:
            return capacity.plan(spec, candidate)
    names = ", ".join(candidate.name for candidate in spec.scenarios)
    raise ValueError(f"unknown scenario {scenario!r} of {spec.name}; its scenarios are {names}")


def plans(spec: Spec) -> Plans:
    """Plan every scenario of the spec, the base scenario first. Notebooks display the tuple as a table."""
    from planner import capacity
    from planner.report.notebook import Plans

    return Plans(capacity.plans(spec))
