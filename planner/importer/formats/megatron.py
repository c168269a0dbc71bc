"""Megatron-LM's arguments.

Read from Megatron-LM core 0.20: megatron/training/arguments.py (names, defaults, what is derived from what), core/transformer/
transformer_config.py and core/models/gpt (what each switch builds).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.importer.commands import COMMAND, Command, decided
from planner.importer.engine import Reading, read, row
from planner.importer.format import Format, Given, flattened
from planner.importer.formats.megatron_arguments import IGNORED
from planner.importer.formats.megatron_training import ONLY, TRAINING, launched
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import Config, Imported, SpecModel, UnsupportedConfigError, show
from planner.importer.training import tokenizers

# Arguments of other architectures, and those that add, share or leave out weights, supported only if off.
_OFF = (
    "apply_residual_connection_post_layernorm bert_no_binary_head bitfit decoder_num_layers decoder_seq_length "
    "embedding_weights_in_fp32 enable_mhc_connections experimental_attention_variant freeze_all_layers glu_activation "
    "heterogeneous_block_specs heterogeneous_layers_config_encoded_json heterogeneous_layers_config_path hybrid_attention_ratio "
    "hybrid_layer_pattern hybrid_mlp_ratio hybrid_override_pattern is_hybrid_model kd linear_attention_freq load_teacher "
    "moe_latent_size moe_use_legacy_grouped_gemm mos mtp_hsm mtp_hybrid_override_pattern mtp_use_repeated_layer no_rope_freq "
    "num_experts_switch perform_rl_step qk_l2_norm random_ltd retro_add_retriever use_legacy_models use_normhead vision_pretraining "
    "vocab_extra_ids yaml_cfg"
)
_DIGITS, _LONG = 9, 1000  # of a number, and of a list, in text

_NORMED = flag("qk_layernorm")
_SWIGLU = flag("swiglu gated_linear_unit", choice("activation_func", {"swiglu": True, "squaredrelu": False, "gelu": False}, False))
_QUICK = flag("quick_geglu")
_SQUARED = flag("squared_relu", choice("activation_func", {"swiglu": False, "squaredrelu": True, "gelu": False}, False))
_GATED = when(_SWIGLU, True, _QUICK)
_BIASED = flag("add_bias_linear", when(flag("disable_bias_linear"), False, True))
_GROUPED = flag("group_query_attention", code(lambda c: c.value("num_query_groups") is not None, "num_query_groups"))
_LATENT, _UNTIED = flag("multi_latent_attention"), flag("untie_embeddings_and_output_weights")
_HAS_EXPERTS = same("experts.count")
_PADS = when(flag("no_pad_vocab_size disable_pad_vocab_size"), False, flag("pad_vocab_size", True))
_MULTIPLE = times(size("make_vocab_size_divisible_by", 128), size("tensor_model_parallel_size model_parallel_size", 1))


def _vocabulary(c: Reading) -> int:
    """Return the tokenizer's vocabulary, which Megatron-LM pads for each tensor-parallel rank."""
    given = c.value("vocab_size", "vocab_size_override")
    if given is None:
        raise c.refusal(tokenizers("`vocab_size` or `padded_vocab_size` is missing", "Megatron-LM"))
    return positive(c, "vocab_size", given)


def _tokenizer(c: Reading) -> tuple[object, ...]:
    given = c.at("tokenizer_type")
    return () if str(given).startswith("Bert") else (given,)  # BERT has token types, a pooler and two heads


def _qk_norm(c: Reading) -> str:
    normed, latent = c.of(_NORMED), c.of(_LATENT)
    if normed and not latent and c["norm.type"] == "layernorm":
        raise c.refusal("`qk_layernorm` with LayerNorm gives queries and keys biases, which is not supported")
    if latent and not normed and c.at("qk_layernorm") is False:
        raise c.refusal("`multi_latent_attention` without `qk_layernorm` has no norms of the compressed vectors, which is not supported")
    return "head_dim" if normed and not latent else "none"


_NORMS = {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm", "layernorm": "layernorm", "rmsnorm": "rmsnorm"}
_POSITIONS = {
    "learned_absolute": "learned", "rope": "rope", "rotary": "rope", "yarn": "rope", "mrope": "rope", "alibi": "alibi", "none": "none",
    "nope": "none",
}  # fmt: skip
_WITHOUT = flag("no_position_embedding", apply(lambda added: not added, flag("add_position_embedding", True)))
_ROTARY = when(flag("use_rotary_position_embeddings"), True, flag("enable_gpt_oss"))
_KIND = when(_ROTARY, "rope", choice("position_embedding_type", _POSITIONS, "learned"))


def _positions(c: Reading) -> str | SpecModel:
    kind, share = c.of(_KIND), c.value("rotary_percent")
    if kind == "learned" and c.of(_WITHOUT):
        return "none"
    if c.of(_LATENT):
        if kind == "learned" and c.at("position_embedding_type") is not None:
            raise c.refusal("`multi_latent_attention` with learned positions is not supported; its position_embedding_type is rope")
        return "rope"
    width = int(c["head_dim"] * (1 if share is None else fraction(c, "rotary_percent", share)))
    return rotated(c["head_dim"], width) if kind == "rope" else str(kind)


def _gate(c: Reading) -> str | None:
    """Return the gate of the heads, whose biases a spec cannot express."""
    if not c.of(flag("attention_output_gate")):
        return None
    if c.of(_BIASED) or c.of(flag("add_qkv_bias")):
        raise c.refusal("`attention_output_gate` with biases is not supported")
    return "element"


def _windows(c: Reading) -> list[SpecModel] | None:
    """Return each layer's window: ``127,0`` are 127 tokens before and none after; every n-th layer, or those with a 0, have none."""
    given, n = c.value("window_size"), c["n_layers"]
    if given is None:
        return None
    sides = str(given).strip("()[] ").replace(" ", "").split(",")
    if len(sides) != 2 or not all(re.fullmatch("-?[0-9]{1,9}", side) for side in sides) or sides[1] not in ("0", "-1"):
        raise c.refusal(f"`window_size: {show(given)}` is not a number of tokens before and 0 after, such as 127,0")
    if int(sides[0]) < 0:
        return None
    if c.of(_LATENT):
        raise c.refusal("`window_size` with `multi_latent_attention` is not supported")
    step = c.value("window_attn_skip_freq")
    listed = [1] * n if step is None else _pattern(c, "window_attn_skip_freq", step, lambda layer, step: (layer + 1) % step != 0)
    return [{"attention": {"window": int(sides[0]) + 1}} if one else {} for one in listed]


def _sparse(c: Reading) -> list[bool]:
    """Return whether each layer has experts: every n-th, or by a list, or by Python code for one such as ``([0]*3+[1]*58)``."""
    return _pattern(c, "moe_layer_freq", c.value("moe_layer_freq") or 1, lambda layer, step: layer % step == 0)


def _pattern(c: Reading, name: str, given: Any, every: Callable[[int, int], bool]) -> list[bool]:
    n = c["n_layers"]
    if isinstance(given, str):
        given = _list_of(c, name, given)
    if isinstance(given, list):
        if len(given) != n or any(one not in (0, 1) for one in given):
            raise c.refusal(f"`{name}` must have a 0 or a 1 for each of {n} layers")
        return [bool(one) for one in given]
    step = positive(c, name, given)
    return [every(layer, step) for layer in range(n)]


def _list_of(c: Reading, name: str, text: str) -> list[int] | int:
    """Return the list of ``([0]*3+[1]*58)``: lists of digits, joined and repeated up to MAX_LAYERS; no other Python code."""
    if text.strip().isdecimal() and len(text) <= _DIGITS:
        return int(text)
    try:
        return _listed(ast.parse(text[:_LONG].strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise c.refusal(f"`{name}: {show(text)}` is not a list such as ([0]*3+[1]*58)") from None


def _listed(node: ast.expr) -> list[int]:
    match node:
        case ast.List(elts=elements):
            return [{"0": 0, "1": 1}.get(ast.unparse(one), -1) for one in elements]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _listed(left) + _listed(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int(times))):
            listed = _listed(left)
            if len(listed) * times <= MAX_LAYERS:
                return listed * times
    raise ValueError


def _experts(c: Reading) -> int:
    """Return the number of experts, in a list in Megatron-DeepSpeed, where 1 means a dense layer."""
    given = c.value("num_experts", "num_moe_experts")
    deepspeed = c.at("deepspeed") or isinstance(given, list) or c.at("mlp_type") is not None
    number = given[0] if isinstance(given, list) and len(given) == 1 else given
    if number is None or (alike(number, 0)) or (deepspeed and alike(number, 1)):
        return 0
    if deepspeed:
        raise c.refusal(f"`num_experts: {show(given)}` of Megatron-DeepSpeed is not supported")
    return positive(c, "num_experts", number)


_GELU = when(flag("openai_gelu"), "gelu_tanh", "gelu")
_HIDDEN = when(_SWIGLU, apply(lambda d_model: int(4 * d_model * 2 / 3) // 64 * 64, same("d_model")), same("d_model", 4))
_SHARED, _SOFTMAX = count("moe_shared_expert_intermediate_size"), {"softmax": "softmax", "sigmoid": "sigmoid"}
_ACTIVATION = when(_GATED, "silu", when(_SQUARED, "relu_squared", _GELU))  # a quick GELU is x times a sigmoid too

MEGATRON = row(
    {"vocab_size": size("padded_vocab_size pad_vocab_size_to", code(_vocabulary, "vocab_size", "vocab_size_override"))},
    {"pad_vocab_to_multiple_of": when(size("padded_vocab_size pad_vocab_size_to", None), None, when(_PADS, _MULTIPLE))},
    {"context_length": size("max_position_embeddings", size("seq_length encoder_seq_length")), "d_model": size("hidden_size")},
    {"n_layers": layers("num_layers encoder_num_layers"), "n_heads": size("num_attention_heads")},
    {"n_kv_heads": when(_GROUPED, size("num_query_groups", same("n_heads")), size("num_key_value_heads", same("n_heads")))},
    {"head_dim": head_dim("kv_channels"), "d_ff": size("ffn_hidden_size", _HIDDEN)},
    {"attention.bias": when(_BIASED, True, bias(flag("add_qkv_bias"))), "attention.qkv": "fused"},
    {"attention.sinks": choice("softmax_type", {"vanilla": None, "learnable": True}, None)},
    {"attention.output_gate": code(_gate, "attention_output_gate")},
    {"layers.windows": code(_windows, "window_size", "window_attn_skip_freq")},
    feed_forward(when(_GATED, "gated", "plain"), _ACTIVATION, _BIASED),
    {"norm.type": choice("normalization", _NORMS, "layernorm")},
    {"attention.qk_norm": code(_qk_norm, "qk_layernorm"), "embedding_norm": when(flag("embed_layernorm"), True)},
    {"positions": code(_positions, "rotary_percent", _KIND, _WITHOUT), "head.tied": when(_UNTIED, False, True)},
    where(_LATENT, {
        "mixer": "latent_attention", "latent_attention.q_rank": size("q_lora_rank", None),
        "latent_attention.kv_rank": size("kv_lora_rank", 32), "latent_attention.nope_dim": size("qk_head_dim", 128),
        "latent_attention.rope_dim": size("qk_pos_emb_head_dim", 64), "latent_attention.v_dim": size("v_head_dim", 128),
    }),
    prediction("mtp_num_layers", copies=False), {"experts.count": nonzero(code(_experts, "num_experts", "num_moe_experts"))},
    where(_HAS_EXPERTS, {
        "experts.top_k": size("moe_router_topk", 2), "experts.d_ff": size("moe_ffn_hidden_size", same("d_ff")),
        "experts.type": same("feed_forward.type"), "experts.activation": same("feed_forward.activation"),
        "experts.bias": same("feed_forward.bias"), "experts.router_bias": when(_BIASED, True),
        "experts.scoring": choice("moe_router_score_function", _SOFTMAX, "softmax"),
        "experts.correction_bias": when(flag("moe_router_enable_expert_bias"), "buffer", "none"),
        "experts.shared": when(flag("moe_shared_expert_gate"), shared(_SHARED, gate=True), shared(_SHARED)),
        "_sparse": code(_sparse, "moe_layer_freq"),
    }),
    TRAINING,
    only={
        **{name: (False, 0, 0.0, [], "") for name in _OFF.split()}, **ONLY, "spec": ("local", ["local"]),
        "tokenizer_type": code(_tokenizer),
    },
    ignored=IGNORED,
)  # fmt: skip

_OTHER_SCRIPT = re.compile(r"\bpretrain_(?!gpt)\w+\.py\b")
_HAVE = ({"num_layers", "encoder_num_layers"}, {"hidden_size"}, {"num_attention_heads"})


def _arguments(config: Config) -> dict[str, Any]:
    """Return the arguments in a file by their names, those with dashes too (``MODEL_ARGS: {--num-layers: 2}``), and under COMMAND how."""
    flat = flattened(config)
    dashed = {str(key)[2:].replace("-", "_"): value for key, value in flat.items() if str(key).startswith("--")}
    return {COMMAND: Command(), **{key: value for key, value in dashed.items() if value is not False}} if dashed else flat


def _names(config: Config) -> set[str]:
    keys = map(str, set(config).union(*(part for part in config.values() if isinstance(part, Mapping))))
    return {key[2:].replace("-", "_") if key.startswith("--") else key for key in keys}


def _matters(name: str) -> bool:
    return name not in MEGATRON.ignored and (name in MEGATRON.known or any(word in name for word in COUNTED_WORDS))


def _read(given: Given) -> Imported:
    config = _arguments(given.config)
    called = config.pop(COMMAND, None)
    if script := _OTHER_SCRIPT.search(called.script if called and called.script else given.text):
        raise UnsupportedConfigError(f"this looks like arguments of Megatron-LM's {script[0]}; only those of pretrain_gpt.py are supported")
    config = decided(config, _matters)
    if called:
        latent = {"qk_layernorm": False, "position_embedding_type": "learned_absolute"} if config.get("multi_latent_attention") else {}
        config = {"group_query_attention": False, **latent, **launched(called.launcher), **config}
    imported = read(MEGATRON, config, "Megatron-LM")
    empty = (f"not set in the file, so read as nothing: {', '.join(called.empty)}",) if called and called.empty else ()
    return replace(imported, notes=(*imported.notes, *empty))


FORMAT = Format(
    "Megatron-LM",
    "arguments of pretrain_gpt.py: a shell script, a command line, YAML, JSON, or the list that it prints at start",
    "NVIDIA's Megatron-LM core 0.20: megatron/training/arguments.py, core/transformer/transformer_config.py",
    lambda given: all(not names.isdisjoint(_names(given.config)) for names in _HAVE),
    _read,
    {"megatron": MEGATRON},
    "`num_layers`, `hidden_size` and `num_attention_heads`",
)
