from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

import planner
from planner import spec as spec_package
from planner.explore import size
from planner.report.quantity import Amount
from planner.spec.records import Spec

ROOT = Path(__file__).parent.parent.parent


def like(name: str) -> Spec:
    return planner.load(size.path_of(name))


def test_the_count_of_llama_2_7b_gives_its_sizes() -> None:
    """6,738,415,616 parameters: d_model 4096, 32 layers, 32 heads of 128, d_ff 11008 (Touvron et al. 2023, its config.json)."""
    best, *_ = size.shapes(like("llama-2-7b"), 6_738_415_616, of="params")
    assert (best.d_model, best.n_layers, best.n_heads, best.head_dim, best.d_ff, best.off) == (4096, 32, 32, 128, 11008, 0)


@pytest.mark.parametrize(("name", "target"), [("llama", 7 * 10**9), ("gpt2", 350 * 10**6), ("llama-2-70b", 30 * 10**9)])
def test_suggestions_are_valid_specs_with_the_reported_counts(name: str, target: int) -> None:
    path = size.path_of(name)
    found = size.shapes(planner.load(path), target, of="params")
    assert found == tuple(sorted(found, key=lambda shape: (abs(shape.off), shape.d_model)))
    for shape in found:
        keys = ("d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff")
        (spec,), problems = spec_package.read([path], [f"model.{key}={getattr(shape, key)}" for key in keys])
        assert not problems
        assert planner.plan(spec).parameters.total == shape.params_total == target + shape.off
        assert shape.d_model % 128 == shape.d_ff % 128 == shape.n_heads % shape.n_kv_heads == 0
        assert shape.n_heads * shape.head_dim == shape.d_model
    assert abs(found[0].off) * 50 < target


def test_a_flop_target_is_met_at_twenty_tokens_per_parameter() -> None:
    # 6·N·20·N = 1e21 for N = 2.9e9, less a little for attention
    best, *_ = size.shapes(like("gpt2"), 10**21, of="flops")
    assert best.train_tokens == 20 * best.params_total
    assert 2.6e9 < best.params_total < 2.9e9
    assert abs(best.off) < 10**21 // 50


def test_tokens_can_be_given() -> None:
    # 6·N·D = 1e21 for D = 1e11: N = 1.67e9
    best, *_ = size.shapes(like("llama"), 10**21, of="flops", tokens=10**11)
    assert best.train_tokens == 10**11
    assert 1.3e9 < best.params_total < 1.75e9


def test_the_largest_configurations_whose_step_fits() -> None:
    memory = 24 * 2**30
    path, settings = size.path_of("llama"), ["training.sequence_length=2048", "training.precision=bf16"]
    (reference,), _ = spec_package.read([path], settings)
    found = size.shapes(reference, memory, of="memory")
    assert [shape.params_total for shape in found] == sorted((shape.params_total for shape in found), reverse=True)
    keys = ("d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff")
    for shape in found:
        plans = []
        for layers in (shape.n_layers, shape.n_layers + 1):
            sizes = [f"model.{key}={getattr(shape, key)}" for key in keys]
            (spec,), _ = spec_package.read([path], [*settings, *sizes, f"model.n_layers={layers}"])
            plans.append(planner.plan(spec).memory.peak_bytes)
        assert plans[0] == shape.peak_bytes == memory + shape.off <= memory < plans[1]


def test_an_unknown_name_is_reported_with_the_known_ones() -> None:
    with pytest.raises(size.SizeError, match="gpt2, llama"):
        size.path_of("lama-2-7")


def test_a_reference_model_with_several_kinds_of_layers_is_rejected() -> None:
    with pytest.raises(size.SizeError, match="cannot be used as a reference"):
        size.shapes(like("deepseek-v3"), 7 * 10**9, of="params")


def test_a_memory_in_which_nothing_fits_is_an_error() -> None:
    with pytest.raises(size.SizeError, match="fits in the memory"):
        size.shapes(like("llama"), 10**6, of="memory")


def test_the_text_fits_a_terminal_and_json_is_exact() -> None:
    llama = like("llama")
    found = size.shapes(llama, 405 * 10**9, of="params")
    assert all(len(line) <= 80 for line in size.text(llama, found, Amount("405B", Fraction(405 * 10**9))).splitlines())
    assert json.loads(size.as_json(llama, found))[0]["params_total"] == found[0].params_total
