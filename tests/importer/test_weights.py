"""What a config.json states beside the sizes: the data type and quantization of its weights, and attention in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.reader import UnsupportedConfigError

PlanModel = Callable[..., Plan]
Config = dict[str, Any]

LLAMA: Config = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 8192,
}  # fmt: skip
SMALL = LLAMA | {"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}
# config.json of THUDM/chatglm3-6b and of THUDM/glm-4-9b-chat, without settings of generation.
CHATGLM3: Config = {
    "model_type": "chatglm", "add_bias_linear": False, "add_qkv_bias": True, "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0, "attention_softmax_in_fp32": True,
    "bias_dropout_fusion": True, "ffn_hidden_size": 13696, "fp32_residual_connection": False, "hidden_dropout": 0.0, "hidden_size": 4096,
    "kv_channels": 128, "layernorm_epsilon": 1e-05, "multi_query_attention": True, "multi_query_group_num": 2, "num_attention_heads": 32,
    "num_layers": 28, "original_rope": True, "padded_vocab_size": 65024, "post_layer_norm": True, "pre_seq_len": None,
    "prefix_projection": False, "quantization_bit": 0, "rmsnorm": True, "seq_length": 8192, "tie_word_embeddings": False,
    "torch_dtype": "float16", "use_cache": True, "vocab_size": 65024,
}  # fmt: skip
GLM4 = CHATGLM3 | {
    "num_layers": 40, "num_hidden_layers": 40, "padded_vocab_size": 151552, "vocab_size": 151552, "rope_ratio": 500, "seq_length": 131072,
}  # fmt: skip


# transformers 5: from_pretrained loads the weights in `dtype`, before `torch_dtype`; a text part's own is replaced by that of the whole.
@pytest.mark.parametrize(
    ("config", "training"),
    [
        ({"torch_dtype": "bfloat16"}, {"precision": "bf16"}),
        ({"dtype": "bfloat16", "torch_dtype": "float32"}, {"precision": "bf16"}),
        ({"torch_dtype": "torch.bfloat16"}, {"precision": "bf16"}),
        ({"torch_dtype": "float16"}, {"precision": "fp16-autocast"}),
        ({"torch_dtype": "float32"}, {}),  # the default precision has fp32 weights
        ({"torch_dtype": None}, {}),
        ({"gradient_checkpointing": True}, {"recompute": "full"}),
    ],
)
def test_the_data_type_of_the_weights_becomes_the_precision(config: Config, training: Config) -> None:
    assert read_huggingface(LLAMA | config).training == training


# GPT-2 drops attention, residual and embedding alike; OPT only the residual stream, which no setting of a spec describes.
def test_dropout_is_read_or_named() -> None:
    gpt2 = {"model_type": "gpt2", "vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 6}
    assert read_huggingface(gpt2 | {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}).training == {"dropout": 0.1}
    mixed = read_huggingface(gpt2 | {"resid_pdrop": 0.1, "embd_pdrop": 0.0, "attn_pdrop": 0.0})
    assert (mixed.training, mixed.omits) == ({}, ("dropout (resid_pdrop 0.1)",))
    none = read_huggingface(LLAMA | {"attention_dropout": 0.0, "classifier_dropout": 0.1})
    assert (none.training, none.omits) == ({}, ())


def test_the_data_type_of_the_whole_is_that_of_its_text_part() -> None:
    composite = {"model_type": "llava", "text_config": SMALL | {"torch_dtype": "float32"}, "torch_dtype": "bfloat16"}
    assert read_huggingface(composite).training == {"precision": "bf16"}


# Weights, gradients and both moments of AdamW in bfloat16: 8 bytes a parameter.
def test_a_model_in_bfloat16_is_planned_in_bfloat16(plan_model: PlanModel) -> None:
    imported = read_huggingface(LLAMA | {"torch_dtype": "bfloat16", "quantization_config": {"load_in_4bit": True}})
    plan = plan_model(imported.model, **imported.training)
    assert sum(state.total_bytes for state in plan.memory.states) == 8 * 8_030_261_248


@pytest.mark.parametrize(
    ("config", "omits"),
    [
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            "4-bit quantization of the weights (bitsandbytes)",
        ),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "8-bit quantization of the weights (gptq)"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization of the weights (fp8)"),
        ({"quantization": {"group_size": 64, "bits": 4}}, "4-bit quantization of the weights"),  # MLX
        ({"quantization_bit": 4}, "4-bit quantization of the weights"),
        ({"torch_dtype": "float8_e4m3fn"}, "data type of the weights 'float8_e4m3fn'"),
    ],
)
def test_a_quantization_that_is_read_over_is_named(config: Config, omits: str) -> None:
    assert read_huggingface(LLAMA | config).omits == (omits,)
    text = {"model_type": "llava", "text_config": SMALL, "vision_config": {}} | config
    assert omits in read_huggingface(text).omits


@pytest.mark.parametrize("given", [None, {}, {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": False}])
def test_weights_that_are_not_quantized_omit_nothing(given: object) -> None:
    assert read_huggingface(LLAMA | {"quantization_config": given}).omits == ()


# The parameters of the released weights: 28 or 40 layers of 4096·4608 + 4608 + 4096² + 3·4096·13696 + 2·4096 = 203,960,832, two
# tables of 65,024 or 151,552 rows and a norm.
@pytest.mark.parametrize(("config", "right"), [(CHATGLM3, 6_243_584_000), (GLM4, 9_399_951_360)])
def test_chatglm_has_the_parameters_of_its_weights(config: Config, right: int, plan_model: PlanModel) -> None:
    imported = read_huggingface(config)
    assert imported.not_understood == ()
    assert plan_model(imported.model).parameters.total == right
    assert imported.model["positions"] == {"type": "rope", "rotary_dim": 64}  # RotaryEmbedding(rotary_dim // 2)


# Of its published code: without multi_query_attention, q, k and v of all heads; one switch for all biases; LayerNorm has a bias.
@pytest.mark.parametrize(
    ("config", "change"),
    [
        ({"multi_query_attention": False}, 28 * 30 * 2 * 128 * (4096 + 1)),
        ({"add_bias_linear": True}, 28 * (4096 + 2 * 13696 + 4096)),
        ({"add_qkv_bias": False}, -28 * 4608),
        ({"rmsnorm": False}, (2 * 28 + 1) * 4096),
        ({"post_layer_norm": False}, -4096),
    ],
)
def test_each_switch_of_chatglm_changes_what_its_code_makes(config: Config, change: int, plan_model: PlanModel) -> None:
    assert plan_model(read_huggingface(CHATGLM3 | config).model).parameters.total == 6_243_584_000 + change


@pytest.mark.parametrize(
    "config",
    [{"pre_seq_len": 128}, {"tie_word_embeddings": True}, {"position_encoding_2d": True}, {"num_hidden_layers": 12}],
)
def test_a_chatglm_of_another_kind_is_refused(config: Config) -> None:
    with pytest.raises(UnsupportedConfigError, match=next(iter(config))):
        read_huggingface(CHATGLM3 | config)


# Gemma3TextConfig and Gemma4TextConfig of transformers 5.24 halve the window of tokens that attend in both directions.
@pytest.mark.parametrize(
    ("model_type", "given", "window"),
    [("gemma3_text", True, 257), ("gemma3_text", None, 512), ("gemma4_text", "all", 257), ("gemma4_text", "vision", 512)],
)
def test_attention_in_both_directions_is_counted_where_it_can_be(model_type: str, given: object, window: int) -> None:
    sizes = SMALL | {"model_type": model_type, "head_dim": 8, "num_hidden_layers": 6, "sliding_window": 512}
    imported = read_huggingface(sizes | {"use_bidirectional_attention": given})
    windows = {
        layer["attention"]["window"] for run in imported.model["layers"] for layer in run.get("layers", [run]) if "attention" in layer
    }
    assert windows == {window}
    assert any("attention to later tokens" in omitted for omitted in imported.omits) == (window == 257)


# google/embeddinggemma-300m: 302,863,104 parameters.
def test_embeddinggemma_has_its_published_parameters(plan_model: PlanModel) -> None:
    config = {
        "model_type": "gemma3_text", "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 24, "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144, "max_position_embeddings": 2048, "sliding_window": 512,
        "use_bidirectional_attention": True,
    }  # fmt: skip
    assert plan_model(read_huggingface(config).model).parameters.total == 302_863_104


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("LlamaForCausalLM", "model_type 'LlamaForCausalLM' is the name of a class; the model_type of its config.json is llama"),
        ("Qwen3MoeForCausalLM", "its config.json is qwen3_moe"),
        ("GPT2LMHeadModel", "its config.json is gpt2"),
        ("MyModel", "model_type 'MyModel' is the name of a class"),
    ],
)
def test_the_name_of_a_class_is_answered_with_its_model_type(name: str, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        read_huggingface(LLAMA | {"model_type": name})
    assert str(refused.value).endswith(message)


@pytest.mark.parametrize(("name", "noted"), [("LlamaForSequenceClassification", True), ("LlamaModel", True), ("LlamaForCausalLM", False)])
def test_an_architecture_without_an_lm_head_is_noted(name: str, noted: bool) -> None:
    notes = read_huggingface(SMALL | {"architectures": [name]}).notes
    assert (f"planned with an LM head, which {name} does not have" in notes) is noted
