"""adapter_config.json as peft 0.21.2 writes it (LoraConfig.save_pretrained)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import planner
from planner.importer.reader import UnsupportedConfigError
from planner.importer.recognize import read_config

SAVED: dict[str, Any] = {
    "alpha_pattern": {}, "auto_mapping": None, "base_model_name_or_path": "meta-llama/Meta-Llama-3-8B", "bias": "none",
    "corda_config": None, "eva_config": None, "exclude_modules": None, "fan_in_fan_out": False, "inference_mode": True,
    "init_lora_weights": True, "layer_replication": None, "layers_pattern": None, "layers_to_transform": None, "loftq_config": {},
    "lora_alpha": 16, "lora_bias": False, "lora_dropout": 0.05, "megatron_config": None, "megatron_core": "megatron.core",
    "modules_to_save": None, "peft_type": "LORA", "peft_version": "0.21.2", "qalora_group_size": 16, "r": 8, "rank_pattern": {},
    "revision": None, "target_modules": ["q_proj", "v_proj"], "target_parameters": None, "task_type": "CAUSAL_LM",
    "trainable_token_indices": None, "use_dora": False, "use_qalora": False, "use_rslora": False,
}  # fmt: skip


def imported(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    made = read_config(json.dumps({**SAVED, **changes}), "adapter_config.json")
    assert not made.not_understood
    assert made.extends == "llama-3-8b"
    return dict(made.further)


def test_an_adapter_of_the_catalog_is_planned() -> None:
    training = imported()
    assert training == {
        "implementation": "transformers",
        "precision": "bf16",
        "train": "adapters",
        "adapters": {"rank": 8, "type": "lora", "targets": ["q_proj", "v_proj"], "dropout": 0.05},
    }
    plan = planner.plan(planner.load({"name": "tuned", "extends": "catalog/llama-3-8b", "training": training}))
    # peft prints 3,407,872 for r = 8 on q and v of Llama-3-8B: 32 layers of 8 · (4096 + 4096) and 8 · (4096 + 1024)
    assert plan.parameters.trained == 32 * 8 * (4096 + 4096 + 4096 + 1024)


@pytest.mark.parametrize(
    ("changes", "adapters"),
    [
        ({"target_modules": "all-linear"}, {"targets": "all-linear"}),
        ({"use_dora": True}, {"type": "dora"}),
        ({"use_rslora": True}, {"type": "rslora"}),
        ({"layers_to_transform": [30, 31]}, {"layers": ["30", "31"]}),
        ({"layers_to_transform": 5}, {"layers": ["5"]}),
        ({"lora_dropout": 0}, {}),
        ({"rank_pattern": {"q_proj": 4}}, {"targets": ["q_proj=4", "v_proj"]}),
        ({"target_modules": "all-linear", "rank_pattern": {"down_proj": 4}}, {"targets": ["all-linear", "down_proj=4"]}),
    ],
)
def test_settings_of_adapters(changes: dict[str, Any], adapters: dict[str, Any]) -> None:
    found = imported(**changes)["adapters"]
    assert {key: found[key] for key in adapters} == adapters
    assert ("dropout" in found) == ("lora_dropout" not in changes)


def test_an_adapter_of_the_embedding_is_planned() -> None:
    training = imported(target_modules=["embed_tokens"])
    plan = planner.plan(planner.load({"name": "tuned", "extends": "catalog/llama-3-8b", "training": training}))
    assert plan.parameters.trained == 8 * (128_256 + 4096)  # peft's lora_embedding_A [r, V] and lora_embedding_B [d, r]


def test_ia3_scales_outputs_and_inputs() -> None:
    saved = {
        "peft_type": "IA3", "base_model_name_or_path": "meta-llama/Llama-3.2-3B", "target_modules": ["k_proj", "v_proj", "down_proj"],
        "feedforward_modules": ["down_proj"], "init_ia3_weights": True, "task_type": "CAUSAL_LM", "inference_mode": True,
    }  # fmt: skip
    made = read_config(json.dumps(saved), "adapter_config.json")
    assert not made.not_understood
    plan = planner.plan(planner.load({"name": "tuned", "extends": f"catalog/{made.extends}", "training": dict(made.further)}))
    assert plan.parameters.trained == 286_720  # huggingface/peft, method_comparison: 28 layers of 1024 + 1024 outputs and 8192 inputs


@pytest.mark.parametrize(("kind", "params"), [("PROMPT_TUNING", 614_400), ("PREFIX_TUNING", 11_468_800)])
def test_a_learned_prompt_or_prefix(kind: str, params: int) -> None:
    saved = {
        "peft_type": kind, "base_model_name_or_path": "meta-llama/Llama-3.2-3B", "num_virtual_tokens": 200, "num_layers": 28,
        "num_attention_heads": 24, "num_transformer_submodules": 1, "token_dim": 3072, "prompt_tuning_init": "RANDOM",
        "prompt_tuning_init_text": None, "tokenizer_name_or_path": None, "tokenizer_kwargs": None, "task_type": "CAUSAL_LM",
    }  # fmt: skip
    made = read_config(json.dumps(saved), "adapter_config.json")
    assert not made.not_understood
    plan = planner.plan(planner.load({"name": "tuned", "extends": f"catalog/{made.extends}", "training": dict(made.further)}))
    assert plan.parameters.trained == params  # huggingface/peft, method_comparison


def test_modules_to_save_are_copies_that_train() -> None:
    assert imported(modules_to_save=["embed_tokens", "lm_head"])["also_train"] == ["embedding", "head"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "VERA"}, "`peft_type: 'VERA'` is not planned yet; LORA, IA3, PROMPT_TUNING, PREFIX_TUNING are"),
        ({"peft_type": "PREFIX_TUNING", "prefix_projection": True}, "a prefix that two linears compute is not planned yet"),
        ({"bias": "all"}, "training of biases beside adapters is not planned yet"),
        ({"target_modules": ".*proj"}, "is not a list of names; patterns are not read"),
        ({"target_modules": None}, "is not a list of names"),
        ({"target_modules": ["q_proj", "lm_head"]}, "adapters of the LM head are not planned yet"),
        ({"modules_to_save": ["score"]}, "has other modules than"),
        ({"rank_pattern": {"o_proj": 4}}, "`rank_pattern` has 'o_proj', which is none of the targets"),
        ({"rank_pattern": {".*q_proj": 4}}, "is not a mapping from names of linears to ranks; patterns are not read"),
        ({"lora_bias": True}, "other forms of LoRA are not planned yet"),
        ({"r": 0}, "`r: 0` is not a positive integer"),
        ({"lora_dropout": 2}, "is not a number above 0 and at most 1"),
        ({"layers_to_transform": ["a"]}, "is neither a layer number nor a list of them"),
        ({"base_model_name_or_path": "acme/none"}, "the catalog has no 'acme/none'"),
    ],
)
def test_what_is_not_read_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=re.escape(message)):
        imported(**changes)


@pytest.mark.parametrize(
    ("name", "params"),
    [("c_attn", 12 * 16 * (768 + 2304)), ("c_proj", 12 * 16 * (768 + 768 + 3072 + 768)), ("c_fc", 12 * 16 * (768 + 3072))],
)
def test_names_of_other_classes_are_read(name: str, params: int) -> None:
    training = {"implementation": "transformers", "train": "adapters", "adapters": {"rank": 16, "targets": name}}
    assert planner.plan(planner.load({"name": "tuned", "extends": "catalog/gpt2", "training": training})).parameters.trained == params
