"""Formulas over the sizes of a layout: their values are those of plans, and their conditions those of the spec language."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import cast

import pytest

import planner
from planner.capacity.choices import Guard
from planner.capacity.layout_choices import LayoutFormulas, layout_formulas
from planner.capacity.layout_conditions import Test as Condition
from planner.spec.edits import changed
from planner.spec.problems import SpecError
from planner.trace.sizes import Size, evaluate

SPECS = Path(__file__).parent.parent.parent / "specs" / "fleet"
NAMES = {"llama-3-8b-8-h100": 3, "llama-3-70b-256-h100": 3, "mixtral-8x7b-64-h100": 0}  # layouts with formulas, at least
RELATIONS = {"<": lt, ">": gt, "<=": le, ">=": ge, "==": eq, "!=": ne}


@cache
def formulas(name: str) -> LayoutFormulas:
    found = layout_formulas(planner.load(SPECS / f"{name}.yaml"))
    assert found is not None
    return found


def holds(test: Condition, values: Mapping[str, int]) -> bool:
    if isinstance(test, bool):
        return test
    relation, one, other = test
    if relation in "&|":
        both = [holds(cast("Condition", part), values) for part in (one, other)]
        return all(both) if relation == "&" else any(both)
    return bool(RELATIONS[relation](*(evaluate(cast("Size", size), values) for size in (one, other))))


def applies(guard: Guard, values: Mapping[str, int]) -> bool:
    left = evaluate(guard.left, values)
    if isinstance(guard.right, str):
        return guard.right[left - 1 : left] == "1"
    return bool(RELATIONS[guard.relation](left, evaluate(guard.right, values)))


def sizes_at(found: LayoutFormulas, state: Mapping[str, int]) -> dict[str, int]:
    """Return the values of all sizes with some inputs."""
    values = {**found.values, **state}
    values |= {key.rpartition(".")[2]: values[name] for name, key in found.inputs.items() if name in values}
    for name, size in found.derived.items():
        values[name] = evaluate(size, values)
    return values


def drawn(generator: random.Random, found: LayoutFormulas) -> dict[str, int]:
    tp, pp, dp = (generator.choice(sizes) for sizes in ([1, 2, 3, 4, 8], [1, 2, 4, 5, 8], [1, 2, 3, 8]))
    passes = pp * generator.randint(1, 5)
    state = {
        "tensor_parallel": tp, "pipeline_parallel": pp, "devices": tp * pp * dp + generator.choice([0, 0, 0, 1]),
        "gradient_accumulation": passes, "global_batch_size": passes * dp, "B": generator.randint(1, 3), "n": 256 * generator.randint(1, 8),
    }  # fmt: skip
    return {name: value for name, value in state.items() if name in found.inputs}


@pytest.mark.parametrize("name", NAMES)
def test_peaks_and_refusals_of_random_layouts_are_those_of_plans(name: str) -> None:
    spec, found, generator = planner.load(SPECS / f"{name}.yaml"), formulas(name), random.Random(name)  # noqa: S311 - no secret
    required, same = found.required[found.chosen[3:]], 0
    for _ in range(30):
        state = drawn(generator, found)
        values = sizes_at(found, state)
        wrong = [why for test, why in required if not holds(test, values)]
        try:
            changed_spec = changed(spec, overrides=[f"{found.inputs[key]}={value}" for key, value in state.items()])
        except (SpecError, ValueError):
            assert wrong, state
            continue
        assert not wrong, state
        for variant in found.variants[found.chosen]:
            own = values | {symbol: evaluate(size, values) for symbol, size in variant.definitions.items()}
            if all(applies(guard, own) for guard in variant.guards):
                peak = max(evaluate(plan.memory.peak_bytes, own) for plan in variant.plans)
                assert peak == planner.plan(changed_spec).memory.peak_bytes, state
                same += 1
                break
    assert same >= NAMES[name]


def test_a_condition_that_is_not_met_has_a_message_with_its_sizes() -> None:
    found = formulas("llama-3-8b-8-h100")
    values = sizes_at(found, {"pipeline_parallel": 3, "devices": 24})
    messages = [why.format_map(values) for test, why in found.required[found.chosen[3:]] if not holds(test, values)]
    assert messages[0] == "pipeline_parallel 3 does not divide n_layers 32"
