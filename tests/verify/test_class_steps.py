"""Steps of classes of transformers: the committed measurements are repeatable, and the differences from plans are up to date."""

from __future__ import annotations

import csv
import json
import os

import pytest

from planner.report.accuracy import TABLE
from tools.measure import FIGURES, SETTINGS, TRUTH, configs, differences, measured, planned, step

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

STEPS = measured()
ALL = os.environ.get("CHANGES") == "all"  # `make sweep`
# Two settings of a few small classes: attention without and with a mask, biases, experts, another norm.
SAMPLE = ("llama", "mistral", "gpt_neox", "cohere", "olmoe")
REPEATED = [
    (config, name)
    for config in configs()
    for name in (SETTINGS if ALL else ("sdpa bf16", "eager bf16-autocast full"))
    if (ALL or config["model_type"] in SAMPLE) and name in STEPS.get(json.dumps(config), {})
]
EVERY = 1 if ALL else 12
# What the small models of the file lack, by class.
BESIDES = {
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


@pytest.mark.parametrize("name", ["sdpa bf16", "eager bf16-autocast"])
@pytest.mark.parametrize("keys", BESIDES.values(), ids=BESIDES)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_step_equals_the_plan(keys: dict[str, object], name: str) -> None:
    config = next(config for config in configs() if config["model_type"] == keys["model_type"]) | keys
    its = step(config, SETTINGS[name])
    assert dict(zip(FIGURES, planned(config, SETTINGS[name]), strict=True)) == dict(zip(FIGURES, its, strict=True))


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_recomputed_layers_hold_keys_that_no_layer_reads() -> None:
    changes = {"num_kv_shared_layers": 0, "use_double_wide_mlp": False}
    config = next(config for config in configs() if config["model_type"] == "gemma4_text") | changes
    its, saved = step(config, SETTINGS["sdpa bf16 full"]), FIGURES.index("saved")
    assert planned(config, SETTINGS["sdpa bf16 full"])[saved] == its[saved]


def test_the_table_of_differences_is_up_to_date() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        listed = list(csv.reader(file))[1:]
    some = {config: STEPS[config] for config in list(STEPS)[::EVERY]}
    missing = [row for row in map(list, differences(some)) if row not in listed]
    assert not missing, "run `tools/measure.py --compare` and `make docs`, and look at what changed"


def test_every_measured_config_is_one_of_the_twins() -> None:
    assert TRUTH.exists()
    assert set(STEPS) <= set(map(json.dumps, configs()))
