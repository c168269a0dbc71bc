"""Settings that cannot be read with certainty are rejected by name, in one short line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.importer.formats.huggingface import read_huggingface
from planner.importer.reader import UnsupportedConfigError

Config = dict[str, Any]

EMPTY: tuple[object, ...] = (0, "", [], {})
KV: Config = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 80,
    "vocab_size": 97,
}  # fmt: skip
HF: Config = {key: value for key, value in KV.items() if key != "num_key_value_heads"}
GPT: Config = {"n_embd": 48, "n_layer": 3, "n_head": 6, "vocab_size": 97}
LLAMA: Config = {"model_type": "llama", **KV}
MAMBA: Config = {"hidden_size": 48, "num_hidden_layers": 3, "vocab_size": 97}
MIXTRAL_SIZES: Config = {**KV, "num_local_experts": 5, "num_experts_per_tok": 2}
MIXTRAL: Config = {"model_type": "mixtral", **MIXTRAL_SIZES}
DEEPSEEK: Config = {
    "model_type": "deepseek_v3", **KV, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "n_shared_experts": 1,
}  # fmt: skip
GEMMA4: Config = {"model_type": "gemma4_text", **KV, "head_dim": 8, "hidden_size_per_layer_input": 0}


def from_huggingface(config: Config) -> Config:
    return read_huggingface(config).model


def without(config: Config, key: str) -> Config:
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no `model_type`"),
        ({"model_type": ["llama"]}, "no `model_type`"),
        ({"model_type": "squeezebert", **KV}, "'squeezebert' is not supported"),
        ({"model_type": "llama5", **KV}, "similar names, which are other architectures: llama"),
        ({"model_type": "zamba2", **KV}, "model_type 'zamba2' is not supported: it uses attention blocks of twice the width"),
        (LLAMA | {"num_local_experts": 8}, "unsupported key `num_local_experts: 8`"),
        (LLAMA | {"lora_rank": 8}, "unsupported key `lora_rank: 8`"),
        (LLAMA | {"audio": {"tower": [{"hidden_size": 8}]}}, "unsupported key `audio.tower.hidden_size: 8`"),
        (LLAMA | {"hidden_size": None}, "`hidden_size` is missing"),
        (LLAMA | {"num_hidden_layers": 10**30}, "exceeds 10,000 layers"),
        (LLAMA | {"hidden_size": True}, "`hidden_size: True` is not a positive integer"),
        (LLAMA | {"hidden_size": 10**400}, "`hidden_size: 100000000000000000...0000000000000000000` exceeds 2^53 - 1"),
        (LLAMA | {"hidden_size": 48.0}, "`hidden_size: 48.0` is not a positive integer"),
        (LLAMA | {"intermediate_size": [80, 80, 80]}, "`intermediate_size: [80, 80, 80]` is not a positive integer"),
        (LLAMA | {"attention_bias": "yes"}, "`attention_bias: 'yes'` is neither true nor false"),
        (LLAMA | {"hidden_act": "xielu"}, "`hidden_act: 'xielu'` is not supported"),
        (LLAMA | {"hidden_act": ["silu"]}, "`hidden_act: ['silu']` is not supported"),
        (LLAMA | {"partial_rotary_factor": "half"}, "`partial_rotary_factor: 'half'` is not a number above 0"),
        (LLAMA | {"partial_rotary_factor": 0.01}, "leaves nothing to rotate"),
        (LLAMA | {"num_attention_heads": 7}, "7 heads do not divide a width of 48"),
        (
            LLAMA | {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
            "`layer_types` contains 'linear_attention'; ",
        ),
        (LLAMA | {"layer_types": 3}, "`layer_types` must be a list with an entry for each of 3 layers"),
        (LLAMA | {"pruned_heads": {"0": [1]}}, "`pruned_heads: {'0': [1]}` is not supported"),
        ({"model_type": "mistral", **HF}, "`num_key_value_heads` is missing"),
        ({"model_type": "gpt2", **GPT, "hidden_size": 64}, "`n_embd: 48` and `hidden_size: 64` disagree"),
        ({"model_type": "gpt_neo", **HF, "num_layers": 2, "num_heads": 4, "attention_types": [3]}, "`attention_types` must be a list"),
        ({"model_type": "phi", **KV, "qk_layernorm": True}, "`qk_layernorm: True` is not supported; supported: False"),
        ({"model_type": "nemotron", **KV, "kv_channels": 64}, "`kv_channels: 64` is not supported; supported: 8"),
        (
            {"model_type": "mpt", "d_model": 48, "n_heads": 6, "n_layers": 3, "vocab_size": 97, "attn_config": {"alibi": False}},
            "mpt config: `attn_config.alibi: False` is not supported; supported: True",
        ),
        ({"model_type": "mpt", "attn_config": 3}, "`attn_config: 3` is not a mapping"),
        ({"model_type": "smollm3", **KV, "no_rope_layers": [1]}, "`no_rope_layers` must be a list"),
        ({"model_type": "openai-gpt", **GPT, "afn": "tanh"}, "`afn: 'tanh'`"),
        (without(MIXTRAL, "num_experts_per_tok"), "`num_experts_per_tok` is missing"),
        (without(MIXTRAL, "num_local_experts"), "`num_experts` is missing"),
        (MIXTRAL | {"num_experts_per_tok": 6}, "`num_experts_per_tok: 6` is more than the 5 experts"),
        (without(DEEPSEEK, "moe_intermediate_size"), "`moe_intermediate_size` is missing"),
        (DEEPSEEK | {"scoring_func": "softmax"}, "`scoring_func: 'softmax'` is not supported; supported: sigmoid"),
        (DEEPSEEK | {"kv_lora_rank": "512"}, "`kv_lora_rank: '512'` is not a positive integer"),
        (
            DEEPSEEK | {"mlp_layer_types": ["dense", "sparse", "wide"]},
            "`mlp_layer_types` contains 'wide'; supported: dense, sparse",
        ),
        (
            {"model_type": "nemotron_h", **KV, "hybrid_override_pattern": "M-X"},
            "`hybrid_override_pattern: 'M-X'` is not a string of M * - E",
        ),
        ({"model_type": "doge", **KV, "is_moe": True}, "`is_moe: True` is not supported; supported: False"),
        (GEMMA4 | {"per_layer_config": {"3": {"head_dim": 12}}}, "must be distinct layer numbers from 0 to 2, got ['3']"),
        (GEMMA4 | {"per_layer_config": {"2": {}, "02": {}}}, "must be distinct layer numbers from 0 to 2, got ['2', '02']"),
        (GEMMA4 | {"per_layer_config": {"2": 12}}, "`per_layer_config: {'2': 12}` is not a mapping of layer numbers to settings"),
        ({"model_type": "mamba", **MAMBA, "expand": "2"}, "`expand: '2'`"),
        ({"model_type": "mamba", **MAMBA, "expand": {}}, "`expand: {}`"),
        # a key on which no setting depends: the values of the wrong kind are not passed over
        ({"model_type": "qwen2", **KV, "sliding_window": []}, "`sliding_window: []` is not a single value"),
        ({"model_type": "falcon", **HF, "num_kv_heads": {}}, "`num_kv_heads: {}` is not a single value"),
        ({"model_type": "cohere2_moe", **MIXTRAL_SIZES, "norm_topk_prob": ""}, "`norm_topk_prob: ''` is not a single value"),
        ({"model_type": "granite_swa", **KV, "layer_rope_theta": []}, "`layer_rope_theta` must be a list with a number for each of 3"),
        ({"model_type": "recurrent_gemma", **KV, "block_types": []}, "`block_types` must be a list of"),
        ({"model_type": "openai-gpt", **GPT, "afn": ["gelu"]}, "`afn: ['gelu']`"),
        ({"model_type": "falcon_h1", **KV, "mamba_d_head": {}}, "`mamba_d_head: {}` is not supported"),
        *((DEEPSEEK | {"q_lora_rank": given}, f"`q_lora_rank: {given!r}` is not a positive integer") for given in EMPTY),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_uncertain_settings_are_rejected_by_name(config: Config, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        from_huggingface(config)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_error_stays_short_for_any_file() -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        from_huggingface(LLAMA | {"mystery_layers": ["x" * 10_000] * 10_000})
    assert len(str(refused.value)) < 300


def test_an_unknown_key_unrelated_to_the_model_is_only_listed() -> None:
    keys: Config = {
        "unsloth_version": "2025.1",
        "license": {"name": "mit"},
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "fp16"}},
    }
    assert read_huggingface(LLAMA | keys).not_understood == ("unsloth_version", "license")


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (LLAMA, "_attn_implementation_autoset", True),  # transformers 4.4x wrote it
        ({"model_type": "qwen3_moe", **MIXTRAL_SIZES, "moe_intermediate_size": 20}, "use_qk_norm", True),  # Qwen3-Coder-480B
        ({"model_type": "qwen3_next", **MIXTRAL_SIZES, "moe_intermediate_size": 20}, "output_gate_type", "swish"),
        ({"model_type": "qwen2", **KV}, "padded_vocab_size", 97),
        ({"model_type": "minimax_m2", **MIXTRAL_SIZES}, "layernorm_full_attention_beta", 1.0),
        ({**DEEPSEEK, "model_type": "glm_moe_dsa"}, "layer_types", ["deepseek_sparse_attention"] * 3),  # GLM-5.2; renamed since
    ],
)
def test_a_key_that_changes_nothing_is_no_reason_to_refuse(config: Config, key: str, value: object) -> None:
    assert from_huggingface({**config, key: value}) == from_huggingface(config)


# transformers 5.24, convert_rope_params_to_dict: `rope_scaling`, if any, replaces `rope_parameters`, and a key inside precedes one outside.
@pytest.mark.parametrize(
    ("keys", "rotary_dim"),
    [
        ({"partial_rotary_factor": 0.75, "rope_parameters": {"partial_rotary_factor": 0.25}}, 2),
        ({"rope_scaling": {"partial_rotary_factor": 0.75}, "rope_parameters": {"partial_rotary_factor": 0.25}}, 6),
        ({"rope_scaling": {}, "rope_parameters": {"partial_rotary_factor": 0.25}}, 2),
        ({"partial_rotary_factor": 0.75, "rope_scaling": {"factor": 2.0}}, 6),
        ({}, 4),
    ],
)
def test_the_rotated_fraction_is_that_of_the_class(keys: Config, rotary_dim: int) -> None:
    assert from_huggingface({"model_type": "phi", **KV, **keys})["positions"] == {"type": "rope", "rotary_dim": rotary_dim}


# OlmoHybridConfig of transformers 5.24: rope_theta is 10,000 unless it is null, as in the released weights, which have no positions.
@pytest.mark.parametrize(
    ("keys", "positions"),
    [
        ({}, "rope"),
        ({"rope_parameters": None}, "rope"),
        ({"rope_theta": None}, "none"),
        ({"rope_parameters": {"rope_theta": None}}, "none"),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 5e5}}, "rope"),
    ],
)
def test_a_null_theta_means_no_positions(keys: Config, positions: str) -> None:
    assert from_huggingface({"model_type": "olmo_hybrid", **KV, **keys})["positions"] == positions


# Gemma4TextConfig of transformers 5.24 reads global_head_dim (512) only if the key is absent.
def test_null_is_not_absence_where_the_class_distinguishes_them() -> None:
    config = GEMMA4 | {"head_dim": 16, "num_hidden_layers": 6}
    assert from_huggingface(config)["layers"][-1]["head_dim"] == 512
    assert "head_dim" not in from_huggingface(config | {"per_layer_config": None})["layers"][-1]


def test_settings_of_generation_are_ignored() -> None:
    generation = {"num_beams": 1, "num_return_sequences": 1, "top_k": 50, "top_p": 1.0, "no_repeat_ngram_size": 0, "max_length": 20}
    assert read_huggingface(LLAMA | generation).not_understood == ()


def test_layers_without_rotary_positions_become_a_repeated_group() -> None:
    model = from_huggingface({"model_type": "smollm3", **KV, "num_hidden_layers": 9})
    assert model["layers"] == [{"count": 2, "layers": [{}, {}, {}, {"positions": "none"}]}, {"count": 1}]


def test_the_first_dense_layers_become_a_layer_group() -> None:
    assert from_huggingface(DEEPSEEK | {"num_hidden_layers": 9})["layers"] == [{"count": 3, "experts": "none"}, {"count": 6}]


def test_a_window_as_long_as_the_context_is_omitted() -> None:
    mistral = {"model_type": "mistral", **KV, "max_position_embeddings": 64, "sliding_window": 32}
    assert from_huggingface(mistral)["attention"]["window"] == 32
    assert "window" not in from_huggingface(mistral | {"sliding_window": 64})["attention"]


def test_rotary_dim_is_read_from_either_key() -> None:
    neox = {"model_type": "gpt_neox", **HF, "hidden_size": 96}
    assert from_huggingface(neox)["positions"] == {"type": "rope", "rotary_dim": 4}
    assert from_huggingface(neox | {"rotary_pct": 0.5})["positions"] == {"type": "rope", "rotary_dim": 8}
    assert from_huggingface(neox | {"rope_parameters": {"partial_rotary_factor": 1.0}})["positions"] == "rope"


def test_the_text_part_of_a_composite_config_is_read_with_a_note() -> None:
    # The text part of Gemma 3 4B omits defaults of its class.
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    imported = read_huggingface({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}})
    assert imported.model["n_heads"] == 8
    assert imported.model["vocab_size"] == 262208
    assert "text_config" in imported.notes[0]
    assert "num_attention_heads 8" in imported.notes[1]


@pytest.mark.parametrize(("key", "above", "inside"), [("tie_word_embeddings", True, False), ("vocab_size", 99, 97)])
def test_a_composite_whose_text_part_disagrees_with_it_is_refused_naming_both(key: str, above: object, inside: object) -> None:
    config = {"model_type": "llava", key: above, "text_config": LLAMA | {key: inside}}
    with pytest.raises(UnsupportedConfigError, match=f"`{key}: {above}` and `text_config.{key}: {inside}` disagree"):
        read_huggingface(config)
    assert read_huggingface({**config, key: inside}).model["d_model"] == 48


WORDS = st.sampled_from(["", "silu", "full_attention", "partial_rotary_factor", "alibi", "M-*E"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
TWINS = [json.loads(line) for line in (Path(__file__).parent.parent / "data" / "twins.jsonl").read_text(encoding="utf-8").splitlines()]


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Draw a small config in which some values, or keys known to some class, are replaced by anything."""
    config = draw(st.sampled_from(TWINS))
    keys = [
        *config,
        "head_dim",
        "layer_types",
        "mlp_layer_types",
        "rope_parameters",
        "no_rope_layers",
        "attn_config",
        "hidden_activation",
        "other",
    ]
    changed = draw(st.dictionaries(st.sampled_from([key for key in keys if key != "model_type"]), JSON, max_size=3))
    return {**config, **changed}


@given(configs())
def test_any_config_is_read_or_rejected(config: Config) -> None:
    with contextlib.suppress(UnsupportedConfigError):
        assert from_huggingface(config)["d_model"] > 0
