"""Megatron-LM's arguments.

Read from Megatron-LM core 0.14: megatron/training/arguments.py (names and defaults), core/transformer/transformer_config.py.
"""

from __future__ import annotations

import re

from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given, flattened, has_all
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Imported, SpecModel, UnsupportedConfigError, show
from planner.importer.syntax import COMMAND

# Arguments of other architectures, and those that add, share or leave out weights, supported only if off.
_OFF = (
    "apply_residual_connection_post_layernorm attention_output_gate bert_no_binary_head decoder_num_layers enable_mhc_connections "
    "experimental_attention_variant gdp_num_householder heterogeneous_block_specs heterogeneous_layers_config_encoded_json "
    "heterogeneous_layers_config_path hybrid_attention_ratio hybrid_layer_pattern hybrid_mlp_ratio hybrid_override_pattern is_hybrid_model "
    "linear_attention_freq moe_latent_size moe_use_legacy_grouped_gemm mtp_hybrid_override_pattern mtp_use_repeated_layer no_rope_freq "
    "quick_geglu retro_add_retriever use_legacy_models vision_pretraining vocab_extra_ids window_size yaml_cfg"
)
_DIGITS = 9  # of a number in text


_SWIGLU = flag("swiglu gated_linear_unit")
_BIASED = flag("add_bias_linear", when(flag("disable_bias_linear"), False, True))
_GROUPED = flag("group_query_attention", code(lambda c: c.value("num_query_groups") is not None, "num_query_groups"))
_LATENT, _UNTIED = flag("multi_latent_attention"), flag("untie_embeddings_and_output_weights")
_HAS_EXPERTS = same("experts.count")
_MULTIPLE = times(size("make_vocab_size_divisible_by", 128), size("tensor_model_parallel_size", 1))


def _vocabulary(c: Reading) -> int:
    """Return the tokenizer's vocabulary, which Megatron-LM pads for each tensor-parallel rank."""
    given = c.value("vocab_size", "vocab_size_override")
    if given is None:
        raise c.refusal("`vocab_size` or `padded_vocab_size` is missing; Megatron-LM reads it from the tokenizer")
    return positive(c, "vocab_size", given)


def _tokenizer(c: Reading) -> tuple[object, ...]:
    given = c.at("tokenizer_type")
    return () if str(given).startswith("Bert") else (given,)  # BERT has token types, a pooler and two heads


def _qk_norm(c: Reading) -> str:
    normed = c.of(flag("qk_layernorm"))
    if normed and c["norm.type"] == "layernorm":
        raise c.refusal("`qk_layernorm` with LayerNorm gives queries and keys biases, which is not supported")
    return "head_dim" if normed else "none"


_POSITIONS = {"learned_absolute": "learned", "rope": "rope", "none": "none", "nope": "none"}
_KIND = when(flag("use_rotary_position_embeddings"), "rope", choice("position_embedding_type", _POSITIONS, "learned"))


def _positions(c: Reading) -> str | SpecModel:
    kind, share = c.of(_KIND), c.value("rotary_percent")
    width = int(c["head_dim"] * (1 if share is None else fraction(c, "rotary_percent", share)))
    return rotated(c["head_dim"], width) if kind == "rope" else str(kind)


def _sparse(c: Reading) -> list[bool]:
    """Return whether each layer has experts: every n-th, or by a list, or by Python code for one such as ``([0]*3+[1]*58)``."""
    given, n = c.value("moe_layer_freq"), c["n_layers"]
    if isinstance(given, str):
        given = _list_of(c, given)
    if isinstance(given, list):
        if len(given) != n or any(one not in (0, 1) for one in given):
            raise c.refusal(f"`moe_layer_freq` must have a 0 or a 1 for each of {n} layers")
        return [bool(one) for one in given]
    step = 1 if given is None else positive(c, "moe_layer_freq", given)
    return [layer % step == 0 for layer in range(n)]


def _list_of(c: Reading, text: str) -> list[int] | int:
    """Return the list of ``[0]*3+[1]*58``: lists of digits, repeated and joined up to MAX_LAYERS; no other Python code."""
    made: list[int] = []
    if text.strip().isdecimal() and len(text) <= _DIGITS:
        return int(text)
    for part in text.replace(" ", "").strip("()").split("+"):
        body, _, times = part.strip("()").partition("]*")
        digits, times = body.strip("[]").split(","), times or "1"
        listed = part.lstrip("(").startswith("[") and all(digit in ("0", "1") for digit in digits)
        if not listed or not times.isdecimal() or len(times) > _DIGITS or len(digits) * int(times) > MAX_LAYERS - len(made):
            raise c.refusal(f"`moe_layer_freq: {show(text)}` is not a list such as ([0]*3+[1]*58)")
        made += [int(digit) for digit in digits] * int(times)
    return made


_GELU = when(flag("openai_gelu"), "gelu_tanh", "gelu")
_HIDDEN = when(_SWIGLU, apply(lambda d_model: int(4 * d_model * 2 / 3) // 64 * 64, same("d_model")), same("d_model", 4))
_SHARED, _SOFTMAX = count("moe_shared_expert_intermediate_size"), {"softmax": "softmax", "sigmoid": "sigmoid"}

MEGATRON = row(
    {"vocab_size": size("padded_vocab_size", code(_vocabulary, "vocab_size", "vocab_size_override"))},
    {"pad_vocab_to_multiple_of": when(size("padded_vocab_size", None), None, _MULTIPLE)},
    {"context_length": size("max_position_embeddings", size("seq_length")), "d_model": size("hidden_size")},
    {"n_layers": layers("num_layers"), "n_heads": size("num_attention_heads")},
    {"n_kv_heads": when(_GROUPED, size("num_query_groups", same("n_heads")), same("n_heads"))},
    {"head_dim": head_dim("kv_channels"), "d_ff": size("ffn_hidden_size", _HIDDEN)},
    {"attention.bias": when(_BIASED, True, bias(flag("add_qkv_bias"))), "attention.qkv": "fused"},
    feed_forward(when(_SWIGLU, "gated", "plain"), when(_SWIGLU, "silu", when(flag("squared_relu"), "relu_squared", _GELU)), _BIASED),
    {"norm.type": choice("normalization", {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}, "layernorm")},
    {"attention.qk_norm": code(_qk_norm, "qk_layernorm")},
    {"positions": when(_LATENT, "rope", code(_positions, "rotary_percent", _KIND)), "head.tied": when(_UNTIED, False, True)},
    where(_LATENT, {
        "mixer": "latent_attention", "latent_attention.q_rank": size("q_lora_rank", None),
        "latent_attention.kv_rank": size("kv_lora_rank", 512), "latent_attention.nope_dim": size("qk_head_dim", 128),
        "latent_attention.rope_dim": size("qk_pos_emb_head_dim", 64), "latent_attention.v_dim": size("v_head_dim", 128),
    }),
    prediction("mtp_num_layers", copies=False), {"experts.count": nonzero(count("num_experts num_moe_experts"))},
    where(_HAS_EXPERTS, {
        "experts.top_k": size("moe_router_topk", 2), "experts.d_ff": size("moe_ffn_hidden_size", same("d_ff")),
        "experts.type": same("feed_forward.type"), "experts.activation": same("feed_forward.activation"),
        "experts.bias": same("feed_forward.bias"), "experts.scoring": choice("moe_router_score_function", _SOFTMAX, "softmax"),
        "experts.correction_bias": when(flag("moe_router_enable_expert_bias"), "buffer", "none"),
        "experts.shared": when(flag("moe_shared_expert_gate"), shared(_SHARED, gate=True), shared(_SHARED)),
        "_sparse": code(_sparse, "moe_layer_freq"),
    }),
    {"training.batch_size": size("micro_batch_size", None), "training.sequence_length": size("seq_length", None)},
    {"training.precision": when(flag("bf16"), "bf16-master")},
    {"training.recompute": choice("recompute_granularity", {"full": "full", "selective": "selective"}, None)},
    only={
        **{name: (False, 0, 0.0, [], "") for name in _OFF.split()},
        "softmax_type": "vanilla", "spec": "local", "encoder_num_layers": same("n_layers"), "tokenizer_type": code(_tokenizer),
    },
    lists_unknown=True,
)  # fmt: skip

_OTHER_SCRIPT = re.compile(r"\bpretrain_(?!gpt)\w+\.py\b")


def _read(given: Given) -> Imported:
    if script := _OTHER_SCRIPT.search(given.text):
        raise UnsupportedConfigError(f"this looks like arguments of Megatron-LM's {script[0]}; only those of pretrain_gpt.py are supported")
    config = flattened(given.config)
    if config.pop(COMMAND, False):
        config = {"group_query_attention": False, **config}
    return read(MEGATRON, config, "Megatron-LM")


FORMAT = Format(
    "Megatron-LM",
    "arguments of pretrain_gpt.py: a command line, YAML, JSON, or the list that it prints at start",
    "NVIDIA's Megatron-LM core 0.14: megatron/training/arguments.py, core/transformer/transformer_config.py",
    has_all("num_layers", "hidden_size", "num_attention_heads"),
    _read,
    {"megatron": MEGATRON},
)
