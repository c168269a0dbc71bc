"""Integers, symbols evaluated at integers, and arrays give the same metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

import planner
from planner import spec as spec_package
from planner.capacity import explain, plan, step_formulas
from planner.explore.table import METRICS
from planner.spec.records import Optimizer, Scenario, Spec
from planner.trace.arrays import Points
from planner.trace.sizes import Size, evaluate, maximum, symbol
from tests.shapes import drawn

CATALOG = Path(__file__).parent.parent.parent / "specs" / "catalog"
SEEDS = range(60)
BATCHES, LENGTHS = [8, 1, 3, 1], [64, 1, 33, 64]


def assert_formulas_equal_the_metrics(spec: Spec) -> None:
    """Compare the values of the formulas with the plan."""
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
def test_evaluated_formulas_equal_the_metrics(seed: int) -> None:
    assert_formulas_equal_the_metrics(drawn(seed))


@pytest.mark.parametrize("optimizer", get_args(Optimizer))
@pytest.mark.parametrize("setting", ["implementation=pytorch", "implementation=transformers", "optimizer_in_backward=true"])
def test_formulas_of_every_optimizer(optimizer: str, setting: str) -> None:
    overrides = [f"training.{one}" for one in ("precision=bf16", f"optimizer={optimizer}", setting)]
    specs, _ = spec_package.read([str(CATALOG / "gpt2/gpt2-medium.yaml")], overrides)
    assert bool(specs) != (optimizer in ("muon", "soap") and setting == "optimizer_in_backward=true")
    for spec in specs:
        assert_formulas_equal_the_metrics(spec)


@pytest.mark.parametrize("implementation", ["transformers", "transformers-eager"])
@pytest.mark.parametrize("name", ["qwen2/mimo-7b-base", "qwen3/qwen3-0.6b"])
def test_formulas_of_a_class_whose_kernels_liger_replaces(name: str, implementation: str) -> None:
    """Classes share formulas if their modules are the same, but the switches of liger-kernel differ by their names."""
    overrides = [f"training.{one}" for one in ("precision=bf16", f"implementation={implementation}", "liger=true")]
    (spec,), problems = spec_package.read([str(CATALOG / f"{name}.yaml")], overrides)
    assert not problems
    assert_formulas_equal_the_metrics(spec)


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("train", ["bias", "head"])
def test_formulas_of_frozen_layers_in_several_groups(first: int, train: str) -> None:
    layers = [{"count": first, "d_ff": 64}, {"count": 4}]
    sizes = {"vocab_size": 100, "context_length": 16, "d_model": 48, "n_heads": 4, "attention": {"bias": False}, "layers": layers}
    assert_formulas_equal_the_metrics(
        planner.load({"name": "frozen", "model": sizes | {"head": {"tied": False}}, "training": {"train": train}})
    )


def assert_swept_as_planned(spec: Spec, lengths: Sequence[int] = LENGTHS) -> None:
    """Compare every metric of a sweep with the plan at each of its points; None if the plan has no value."""
    training = spec.scenarios[0].training
    over = step_formulas(spec, spec.scenarios[0]).at(np.array(BATCHES), np.array(lengths), *METRICS.values())
    for place, (batch_size, sequence_length) in enumerate(zip(BATCHES, lengths, strict=True)):
        figures = plan(spec, Scenario("point", replace(training, batch_size=batch_size, sequence_length=sequence_length)))
        swept = [values if values is None or isinstance(values, int) else int(values[place]) for values in over]
        assert dict(zip(METRICS, swept, strict=True)) == {name: read(figures) for name, read in METRICS.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sweep_equals_the_plan_at_each_point(seed: int) -> None:
    assert_swept_as_planned(drawn(seed))


@pytest.mark.parametrize(
    "name",
    [
        "deepseek_v3/deepseek-v3",  # latent attention, dense layers and experts, prediction
        "glm_moe_dsa/glm-5",  # an indexer
        "gpt_oss/gpt-oss-120b",  # windows, sinks, experts
        "llama4_text/llama-4-scout-17b-16e-instruct",  # chunks
        "qwen3_next/qwen3-next-80b-a3b-instruct",  # one chunk of a delta rule, and several
        "kimi_linear/kimi-linear-48b-a3b-instruct",
        "jamba/jamba-v0.1",  # Mamba beside attention and experts
        "recurrent_gemma/recurrentgemma-2b",
        "gemma3n_text/gemma-3n-e2b",
    ],
)
@pytest.mark.parametrize("settings", [(), ("recompute=full", "round_allocations=true"), ("optimizer=muon", "gradient_accumulation=3")])
def test_sweeps_of_published_models_equal_their_plans(name: str, settings: tuple[str, ...]) -> None:
    overrides = [f"training.{setting}" for setting in settings]
    (spec,), problems = spec_package.read([str(CATALOG / f"{name}.yaml")], overrides)
    assert not problems
    assert_swept_as_planned(spec, [*LENGTHS[:-1], 130])


def test_sums_are_exact_beyond_64_bits() -> None:
    B = symbol("B")
    points = Points({"B": np.array([1, 2**40, 2**62])})
    sizes: tuple[Size, ...] = (3 * B, maximum(B * B, 2 * B + 5), maximum(4 * B - 2, 3 * B + 7), maximum(B * B, maximum(B, 9)) // 7 - B)
    for size in sizes:
        assert points.evaluate(size).tolist() == [evaluate(size, {"B": int(value)}) for value in points.values["B"]]


@pytest.mark.parametrize(
    "sizes",
    [[1.5, 2.9], [1.0], [True], ["2"], [2**63], [2**64], [0], [-1], np.array([2**64 - 1], dtype=np.uint64), [[1], [None]]],
    ids=str,
)
def test_a_grid_takes_only_integers_that_it_can_hold(sizes: NDArray[np.int64]) -> None:
    spec = drawn(0)
    formulas = step_formulas(spec, spec.scenarios[0])
    with pytest.raises(ValueError, match="batch sizes and sequence lengths"):
        formulas.at(sizes, np.array([8]), *METRICS.values())
    with pytest.raises(ValueError, match="batch sizes and sequence lengths"):
        formulas.at(np.array([1]), sizes, *METRICS.values())
