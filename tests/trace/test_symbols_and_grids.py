"""One forward pass, three readings: integers, symbols with the integers put in, and arrays say the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.capacity import explain, grid, plan
from planner.spec.records import Scenario
from tests.shapes import drawn

SEEDS = range(60)
BATCHES, LENGTHS = [8, 1, 3, 1], [64, 1, 33, 64]


@pytest.mark.parametrize("seed", SEEDS)
def test_formulas_with_the_numbers_put_in_are_the_figures(seed: int) -> None:
    spec = drawn(seed)
    figures = plan(spec, spec.scenarios[0])
    totals = {line.figure: line.value for line in explain(spec, spec.scenarios[0]) if line.is_total}
    assert totals["params_total"] == figures.parameters.total
    assert totals["model_states_bytes"] == figures.memory.model_states_bytes
    assert totals["activations_bytes"] == figures.memory.activations_bytes
    for count in figures.flops.by_convention:
        assert totals[f"train_flops_per_token ({count.convention})"] == count.train_per_token
    for phase in figures.memory.phases:
        (peak,) = (value for figure, value in totals.items() if figure.startswith(f"{phase.phase}, at "))
        assert peak == phase.peak_bytes


@pytest.mark.parametrize("seed", SEEDS)
def test_a_grid_is_the_plan_at_each_of_its_points(seed: int) -> None:
    spec = drawn(seed)
    training = spec.scenarios[0].training
    over = grid(spec, spec.scenarios[0], batch_size=np.array(BATCHES), sequence_length=np.array(LENGTHS))
    for place, (batch_size, sequence_length) in enumerate(zip(BATCHES, LENGTHS, strict=True)):
        figures = plan(spec, Scenario("point", replace(training, batch_size=batch_size, sequence_length=sequence_length)))
        assert over.activations_bytes[place] == figures.memory.activations_bytes
        assert over.logits_bytes[place] == figures.memory.logits_bytes
        assert over.peak_bytes[place] == figures.memory.peak_bytes
        assert over.train_flops_per_step[place] == figures.flops.chosen.train_per_step
