"""A config.json of a dense family becomes a spec that counts what the published weights and the transformers class hold."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.capacity.records import Plan
from planner.spec.huggingface import SUPPORTED, UnsupportedConfigError, from_huggingface

PlanModel = Callable[..., Plan]
Config = dict[str, Any]

# Published models, their config.json and their parameters by module: the transformers 5.24 class built on the meta device, corrected where
# the class does not hold what the published weights hold. Three Baichuan configs are completed with the key by which their code differs.
PUBLISHED = [json.loads(line) for line in (Path(__file__).parent.parent / "data" / "params.jsonl").read_text(encoding="utf-8").splitlines()]
MODULES = {
    "embeddings": "embedding",
    "positions": "position",
    "attention": "attention",
    "mlp": "feed_forward",
    "norms": "norm",
    "head": "head",
}


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["name"])
def test_a_published_model_counts_its_parameters(row: Mapping[str, Any], plan_model: PlanModel) -> None:
    parameters = plan_model(from_huggingface(row["hf_config"])).parameters
    assert {component: n for component, n in parameters.by_component.items() if n} == {
        MODULES[module]: n for module, n in row["params_by_module"].items()
    }
    assert parameters.total == row["params_total"]


# Small configs that say little and so lean on the class's own defaults, and ones that turn each switch.
HF: Config = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 97, "intermediate_size": 80}
KV: Config = HF | {"num_key_value_heads": 2}
GPT: Config = {"n_embd": 48, "n_layer": 3, "n_head": 6, "vocab_size": 97}
FALCON: Config = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 97}
OPT: Config = FALCON | {"ffn_dim": 80}
BIASES: Config = {"attention_bias": True, "mlp_bias": True}
TWINS: dict[str, list[Config]] = {
    "bloom": [{"hidden_size": 48, "n_layer": 3, "n_head": 6, "vocab_size": 97}],
    "codegen": [GPT | {"n_head": 4, "rotary_dim": 4}],
    "cohere": [HF, KV | {"attention_bias": True}],
    "ctrl": [GPT | {"dff": 80}],
    "cwm": [KV, KV | {"mlp_bias": True}],
    "exaone": [KV, KV | BIASES],
    "falcon": [
        FALCON,
        FALCON | {"bias": True, "parallel_attn": False, "alibi": True},
        FALCON | {"multi_query": False},
        FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
        FALCON | {"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1, "ffn_hidden_size": 50},
        FALCON | {"tie_word_embeddings": False},
    ],
    "gemma": [KV, KV | {"attention_bias": True}],
    "gemma2": [KV, KV | {"head_dim": 10}],
    "gemma3_text": [KV, KV | {"tie_word_embeddings": False}],
    "gpt2": [GPT, GPT | {"n_inner": 64}, GPT | {"tie_word_embeddings": False}],
    "gpt_bigcode": [GPT, GPT | {"multi_query": False}, GPT | {"n_inner": 100}],
    "gpt_neo": [{"hidden_size": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 97, "attention_types": [[["global", "local"], 1]]}],
    "gpt_neox": [HF, HF | {"use_parallel_residual": False, "attention_bias": False}],
    "gptj": [GPT | {"rotary_dim": 4}],
    "granite": [HF, KV | BIASES],
    "hunyuan_v1_dense": [HF | {"head_dim": 12}, KV | {"head_dim": 8, "attention_bias": True}],
    "hyperclovax": [HF, KV | {"use_post_norm": False}],
    "internlm3": [KV, KV | {"qkv_bias": True, "bias": True}],
    "iquestcoder": [KV, KV | BIASES],
    "jais2": [HF, KV | {"attention_bias": False, "mlp_bias": False}],
    "llama": [HF, KV, KV | BIASES | {"head_dim": 10, "tie_word_embeddings": True}],
    "ministral3": [KV, KV | {"head_dim": 20}],
    "mistral": [KV, KV | {"head_dim": 20}],
    "mpt": [{"d_model": 48, "n_heads": 6, "n_layers": 3, "vocab_size": 97}],
    "nemotron": [HF | {"num_key_value_heads": 6}, KV | BIASES | {"head_dim": 12}],
    "olmo": [HF, KV | {"attention_bias": True}],
    "olmo2": [HF, KV],
    "opt": [OPT, OPT | {"enable_bias": False, "layer_norm_elementwise_affine": False, "_remove_final_layer_norm": True}],
    "phi": [HF, KV],
    "phi3": [HF | {"pad_token_id": 0}, KV | {"pad_token_id": 0}],
    "qwen2": [KV, KV | {"tie_word_embeddings": True}],
    "qwen3": [KV, KV | {"attention_bias": True, "head_dim": 16}],
    "smollm3": [KV | {"pad_token_id": 0}, KV | {"pad_token_id": 0, "mlp_bias": True, "no_rope_layers": [1, 0, 1]}],
    "stablelm": [KV, KV | {"use_qkv_bias": True, "use_parallel_residual": True}],
    "starcoder2": [KV, KV | {"use_bias": False, "tie_word_embeddings": False}],
    "vaultgemma": [KV],
    "xglm": [{"d_model": 48, "attention_heads": 6, "num_layers": 3, "vocab_size": 97, "ffn_dim": 80}],
}
REMOTE_CODE = {"baichuan", "internlm", "internlm2", "minicpm", "orion", "qwen"}  # transformers has no class of theirs


@pytest.mark.parametrize(
    ("model_type", "config"),
    [(model_type, config) for model_type, configs in TWINS.items() for config in configs],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_config_means_what_its_transformers_class_builds(model_type: str, config: Config, plan_model: PlanModel) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    hf_config = transformers.AutoConfig.for_model(model_type, **config)
    with torch.device("meta"):
        module = transformers.AutoModelForCausalLM.from_config(hf_config)
    right = sum(parameter.numel() for parameter in module.parameters())
    assert plan_model(from_huggingface({"model_type": model_type, **config})).parameters.total == right
    # The same said in full, every key of the class with its default.
    assert plan_model(from_huggingface(hf_config.to_dict())).parameters.total == right


def test_every_family_is_tried_against_transformers_or_has_no_class() -> None:
    assert set(TWINS) | REMOTE_CODE == set(SUPPORTED)
    assert {row["hf_config"]["model_type"] for row in PUBLISHED} | {"starcoder2"} == set(SUPPORTED)


LLAMA: Config = {"model_type": "llama", **KV}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no `model_type`"),
        ({"model_type": ["llama"]}, "no `model_type`"),
        ({"model_type": "openai-gpt", **GPT}, "'openai-gpt' is not supported; supported are baichuan, bloom"),
        ({"model_type": "mixtral", **KV, "num_local_experts": 8}, "'mixtral' is not supported"),
        (LLAMA | {"num_local_experts": 8}, "`num_local_experts: 8` is not known here"),
        (LLAMA | {"hidden_size": None}, "`hidden_size` is missing"),
        (LLAMA | {"hidden_size": True}, "`hidden_size: True` is not a positive integer"),
        (LLAMA | {"hidden_size": 48.0}, "`hidden_size: 48.0` is not a positive integer"),
        (LLAMA | {"intermediate_size": [80, 80, 80]}, "`intermediate_size: [80, 80, 80]` is not a positive integer"),
        (LLAMA | {"attention_bias": "yes"}, "`attention_bias: 'yes'` is neither true nor false"),
        (LLAMA | {"hidden_act": "xielu"}, "`hidden_act: 'xielu'` cannot be said"),
        (LLAMA | {"hidden_act": ["silu"]}, "`hidden_act: ['silu']` cannot be said"),
        (LLAMA | {"partial_rotary_factor": "half"}, "`partial_rotary_factor: 'half'` is not a number above 0"),
        (LLAMA | {"num_attention_heads": 7}, "7 heads do not divide a width of 48"),
        (LLAMA | {"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "`layer_types` holds other layers"),
        (LLAMA | {"layer_types": 3}, "`layer_types` holds other layers"),
        (LLAMA | {"pruned_heads": {"0": [1]}}, "`pruned_heads: {'0': [1]}` cannot be said"),
        ({"model_type": "mistral", **HF}, "`num_key_value_heads` is missing"),
        ({"model_type": "gpt2", **GPT, "hidden_size": 64}, "`n_embd: 48` and `hidden_size: 64` disagree"),
        ({"model_type": "opt", **OPT, "do_layer_norm_before": False}, "normalises the sum with the residual"),
        ({"model_type": "opt", **OPT, "word_embed_proj_dim": 24}, "`word_embed_proj_dim: 24` cannot be said in a spec; 48 can"),
        ({"model_type": "cohere", **KV, "use_qk_norm": True}, "weights of its own"),
        ({"model_type": "phi", **KV, "qk_layernorm": True}, "`qk_layernorm: True` cannot be said"),
        ({"model_type": "nemotron", **KV, "kv_channels": 64}, "`kv_channels: 64` cannot be said in a spec; 8 can"),
        (
            {"model_type": "mpt", "d_model": 48, "n_heads": 6, "n_layers": 3, "vocab_size": 97, "attn_config": {"alibi": False}},
            "mpt attn_config",
        ),
        ({"model_type": "smollm3", **KV, "no_rope_layers": [1]}, "`no_rope_layers` must hold"),
        ({"model_type": "baichuan", **HF}, "`max_position_embeddings` (rotary positions, as in 7B)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_read_with_certainty_is_refused_by_name(config: Config, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        from_huggingface(config)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_refusal_stays_short_whatever_the_file_holds() -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        from_huggingface(LLAMA | {"mystery": ["x" * 10_000] * 10_000})
    assert len(str(refused.value)) < 300


def test_layers_without_rotary_positions_become_a_repeated_group() -> None:
    model = from_huggingface({"model_type": "smollm3", **KV, "num_hidden_layers": 9})
    assert model["layers"] == [{"count": 2, "layers": [{}, {}, {}, {"positions": "none"}]}, {"count": 1}]


def test_the_rotated_part_of_a_head_is_read_from_either_place() -> None:
    neox = {"model_type": "gpt_neox", **HF, "hidden_size": 96}
    assert from_huggingface(neox)["positions"] == {"type": "rope", "rotary_dim": 4}
    assert from_huggingface(neox | {"rotary_pct": 0.5})["positions"] == {"type": "rope", "rotary_dim": 8}
    assert from_huggingface(neox | {"rope_parameters": {"partial_rotary_factor": 1.0}})["positions"] == "rope"


WORDS = st.sampled_from(["", "silu", "full_attention", "partial_rotary_factor", "alibi"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Draw a published config with some of its values, or of the keys that its class knows, replaced by anything."""
    row = draw(st.sampled_from(PUBLISHED))
    keys = [*row["hf_config"], "head_dim", "layer_types", "rope_parameters", "no_rope_layers", "attn_config", "hidden_activation", "other"]
    return {**row["hf_config"], **draw(st.dictionaries(st.sampled_from(keys), JSON, max_size=3))}


@settings(deadline=None)  # the first example waits for what is imported late
@given(configs())
def test_whatever_a_config_holds_it_is_read_or_refused(config: Config) -> None:
    with contextlib.suppress(UnsupportedConfigError):
        assert from_huggingface(config)["d_model"] > 0
