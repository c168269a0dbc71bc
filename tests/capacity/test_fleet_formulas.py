"""Formulas of plans on several devices: with the values of their symbols they are the plan's own figures."""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner.capacity import explain
from planner.report import page
from planner.report.planned import Planned
from planner.trace.unsupported import UnsupportedError

FLEET = Path(__file__).parent.parent.parent / "specs" / "fleet"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama-3-8b-8-h100", {}),
        ("llama-3-8b-8-h100", {"model.n_layers": 1}),
        ("llama-3-8b-8-h100", {"model.n_layers": 2}),
        ("llama-3-8b-8-h100", {"layout.offload": "weights", "training.ema": "bf16"}),
        ("llama-3-70b-256-h100", {}),
        ("gpt2-2-a100", {}),
    ],
)
def test_each_figure_equals_the_plan(name: str, changes: dict[str, object]) -> None:
    spec = planner.load(FLEET / f"{name}.yaml", set=changes)
    plan = planner.plans(spec)[0]
    assert plan.fleet is not None
    found = {(one.group, one.figure): one.value for one in explain(spec, spec.scenarios[0])}
    assert found["parameters", "params_total"] == plan.parameters.total  # of the whole model
    assert found["model states", "model_states_bytes"] == plan.memory.model_states_bytes
    assert found["activations", "activations_bytes"] == plan.memory.activations_bytes
    peaks = {figure.split(",")[0]: value for (group, figure), value in found.items() if group == "peak"}
    assert peaks == {phase.phase: phase.peak_bytes for phase in plan.memory.phases}
    sent = [value for (group, figure), value in found.items() if group == "devices" and "spans" in figure]
    assert sent == [one.bytes for one in plan.fleet.traffic]


def test_layouts_without_formulas_are_refused_but_drawn() -> None:
    spec = planner.load(FLEET / "gpt2-2-a100.yaml")
    with pytest.raises(UnsupportedError, match="formulas of zero1 are not modeled yet"):
        explain(spec, spec.scenarios[1])
    html = page.report([Planned(spec, planner.plans(spec))])
    assert html.count("<caption>Memory of each device<svg") == 2
    assert html.count("<caption>Peak memory over n and B") == 1
