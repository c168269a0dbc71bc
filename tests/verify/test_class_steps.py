"""Steps of classes of transformers: the committed measurements are repeatable, and the differences from plans are up to date."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from planner.capacity import plan
from planner.report.accuracy import TABLE
from planner.spec.records import Training
from planner.trace.unsupported import UnsupportedError
from tools.measure import EMPTY, FIGURES, SETTINGS, TRUTH, configs, differences, make, measured, planned, spec_of, step

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from planner.verify.step import measure  # after the check that torch is installed

STEPS = measured()
ALL = os.environ.get("CHANGES") == "all"  # `make sweep`
# One of two settings of a few small classes: attention without and with a mask, biases, experts, another norm, shared keys.
SAMPLE = ("llama", "mistral", "gpt_neox", "cohere", "olmoe", "gemma4_text")
OTHERS = ("sdpa bf16", "eager bf16-autocast full")
REPEATED = [
    (config, name)
    for number, config in enumerate(one for one in configs() if ALL or one["model_type"] in SAMPLE)
    for name in (SETTINGS if ALL else OTHERS[number % 2 :][:1])
    if name in STEPS.get(json.dumps(config), {})
]
EVERY = 1 if ALL else 12
# What the small models of the file lack, by class.
BESIDES: dict[str, dict[str, Any]] = {
    "no norms of rotated queries and keys": {"model_type": "llama4_text", "use_qk_norm": False},
    "experts beside a feed-forward, and keys as values": {
        "model_type": "gemma4_text",
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 5,
        "top_k_experts": 2,
        "moe_intermediate_size": 24,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
    },
    "sparse activations": {
        "model_type": "gemma3n_text",
        "activation_sparsity_pattern": [0.95] * 3 + [0.0] * 4,
    },
    "layers without positions, chunks, and dense layers": {
        "model_type": "llama4_text",
        "num_hidden_layers": 8,
        "attention_chunk_size": 16,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 96,
    },
    "scores by sigmoid, shared experts, and a dense layer": {
        "model_type": "cohere2_moe",
        "num_hidden_layers": 6,
        "expert_selection_fn": "sigmoid",
        "norm_topk_prob": True,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
}


@pytest.mark.parametrize(("config", "name"), REPEATED, ids=[f"{config['model_type']}-{name}" for config, name in REPEATED])
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_step_is_measured_again(config: dict[str, object], name: str) -> None:
    assert step(config, SETTINGS[name]) == STEPS[json.dumps(config)][name]


def in_turn(values: Iterable[str]) -> list[tuple[str, str]]:
    """Return each value with one of two settings, or with both."""
    both = ("sdpa bf16", "eager bf16-autocast")
    return [(value, name) for number, value in enumerate(values) for name in (both if ALL else both[number % 2 :][:1])]


@pytest.mark.parametrize(("kind", "name"), in_turn(BESIDES))
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_step_equals_the_plan(kind: str, name: str) -> None:
    keys = BESIDES[kind]
    config = next(config for config in configs() if config["model_type"] == keys["model_type"]) | keys
    its = step(config, SETTINGS[name])
    assert dict(zip(FIGURES, planned(config, SETTINGS[name]), strict=True)) == dict(zip(FIGURES, its, strict=True))


@pytest.mark.parametrize(("model_type", "name"), in_turn(["llama", "mistral", "gpt2", "gpt_neox", "falcon", "olmoe", "gemma3_text"]))
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_padded_step_equals_the_plan(model_type: str, name: str) -> None:
    padded = SETTINGS[name] | {"padding": True}
    for config in (config for config in configs() if config["model_type"] == model_type):
        its = step(config, padded)
        assert dict(zip(FIGURES, planned(config, padded), strict=True)) == dict(zip(FIGURES, its, strict=True))


def test_padding_of_other_mixers_is_refused() -> None:
    config = next(config for config in configs() if config["model_type"] == "mamba")
    with pytest.raises(UnsupportedError, match="padding of models with other mixers than attention is not modeled yet"):
        planned(config, SETTINGS["sdpa bf16"] | {"padding": True})


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_recomputed_layers_hold_keys_that_no_layer_reads() -> None:
    changes = {"num_kv_shared_layers": 0, "use_double_wide_mlp": False}
    config = next(config for config in configs() if config["model_type"] == "gemma4_text") | changes
    its, saved = step(config, SETTINGS["sdpa bf16 full"]), FIGURES.index("saved")
    assert planned(config, SETTINGS["sdpa bf16 full"])[saved] == its[saved]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_module_keeps_the_graph_of_its_recomputed_state(attention: str) -> None:
    config = next(config for config in configs() if config["model_type"] == "recurrent_gemma")
    training = SETTINGS[f"{attention} bf16 full"] | {"sequence_length": 5}  # transformers runs a recurrence token by token
    its = step(config, training)
    assert dict(zip(FIGURES, planned(config, training), strict=True)) == dict(zip(FIGURES, its, strict=True))


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_the_first_step_has_no_graph_of_an_earlier_one() -> None:
    config = next(config for config in configs() if config["model_type"] == "recurrent_gemma")
    settings = SETTINGS["sdpa bf16 full"] | {"sequence_length": 5}
    spec = spec_of(config, settings)
    kept = Training(**settings, gradient_dtype="bf16")
    its = [phase.bytes for phase in measure(EMPTY, kept, partial(make, config)).first_phases[:2]]
    ours = {phase.phase: phase.peak_bytes for phase in plan(spec, spec.scenarios[0]).memory.first_step_phases}
    assert [max(ours["forward"], ours["loss"]), ours["backward"]] == its


@pytest.mark.parametrize("model_type", ["gemma4_text", "glm_moe_dsa", "rwkv"])
def test_layers_that_differ_cannot_be_recomputed_in_part(model_type: str) -> None:
    config = next(config for config in configs() if config["model_type"] == model_type)
    with pytest.raises(UnsupportedError, match="recompute_every is not modeled for"):
        planned(config, SETTINGS["eager bf16 full"] | {"recompute_every": 2})


def test_differences_are_small() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["reason"]]
    for row in rows:
        assert row["params"] == row["saved"] == row["flops"] == "0"
        assert abs(float(row["peak"])) <= 0.5, row


def test_the_table_of_differences_is_up_to_date() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        listed = list(csv.reader(file))[1:]
    some = {config: STEPS[config] for config in list(STEPS)[::EVERY]}
    missing = [row for row in map(list, differences(some)) if row not in listed]
    assert not missing, "run `tools/measure.py --compare` and `make docs`, and look at what changed"


def test_every_measured_config_is_one_of_the_twins() -> None:
    assert TRUTH.exists()
    assert set(STEPS) <= set(map(json.dumps, configs()))
