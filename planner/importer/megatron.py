"""Megatron-LM's arguments to the ``model`` and ``training`` mappings of a spec.

Read from Megatron-LM core 0.14: megatron/training/arguments.py (names and defaults), core/transformer/transformer_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importer.moe import with_experts
from planner.importer.parts import norm_of, qkv_bias
from planner.importer.reader import Imported, Reader, SpecModel, UnsupportedConfigError, show

# Arguments that make another model of it, unless they are off.
_REFUSED = (
    "bert_binary_head", "decoder_num_layers", "encoder_num_layers", "experimental_attention_variant", "hybrid_override_pattern",
    "is_hybrid_model", "moe_latent_size", "moe_use_legacy_grouped_gemm", "retro_add_retriever", "use_legacy_models", "window_size",
)  # fmt: skip
_POSITIONS = {"learned_absolute": "learned", "rope": "rope", "none": "none", "nope": "none"}


def looks_like_megatron(config: Mapping[str, Any]) -> bool:
    """Say whether these are Megatron-LM's names."""
    return {"num_layers", "hidden_size", "num_attention_heads"} <= set(config)


def read_megatron(config: Mapping[str, Any]) -> Imported:
    """Return the spec of Megatron-LM's arguments under the names that they have once parsed; raises UnsupportedConfigError."""
    c = Reader(config, "Megatron-LM")
    for name in _REFUSED:
        if c.value(name) not in (None, False, 0, [], ""):
            raise c.refusal(f"`{name}: {show(config[name])}` cannot be said in a spec")
    model = _model(c)
    training = _training(c)
    unread = tuple(key for key, value in config.items() if key not in c.known and value not in (None, False))
    return Imported(model, "Megatron-LM arguments", tuple(c.keys), unread, tuple(c.notes), further=training)


def _model(c: Reader) -> SpecModel:
    d_model, n_heads, n_layers = c.size("hidden_size"), c.size("num_attention_heads"), c.layers("num_layers")
    swiglu = c.flag("swiglu", "gated_linear_unit", default=False)
    activation = "silu" if swiglu else "relu_squared" if c.flag("squared_relu", default=False) else "gelu"
    if activation == "gelu" and c.flag("openai_gelu", default=False):
        activation = "gelu_tanh"
    biased = c.flag("add_bias_linear", default=not c.flag("disable_bias_linear", default=False))
    grouped = c.flag("group_query_attention", default=c.value("num_query_groups") is not None)
    quotient, rest = divmod(d_model, n_heads)
    if c.value("kv_channels") is None and rest:
        raise c.refusal(f"{n_heads} heads do not divide a width of {d_model}, and `kv_channels` is missing")
    rms = c.value("normalization") or "LayerNorm"
    if rms not in ("LayerNorm", "RMSNorm"):
        raise c.refusal(f"`normalization: {show(rms)}` cannot be said in a spec; 'LayerNorm' or 'RMSNorm' can")
    d_ff = c.size("ffn_hidden_size", default=int(4 * d_model * 2 / 3) // 64 * 64 if swiglu else 4 * d_model)
    normed = c.flag("qk_layernorm", default=False)
    model: SpecModel = {
        **_vocabulary(c),
        "context_length": c.size("max_position_embeddings", "seq_length"),
        "d_model": d_model,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "n_kv_heads": c.size("num_query_groups", default=n_heads) if grouped else n_heads,
        "head_dim": c.size("kv_channels", default=quotient or 1),
        "d_ff": d_ff,
        "attention": {
            "bias": biased or qkv_bias(qkv=c.flag("add_qkv_bias", default=False)),
            "qkv": "fused",
            "qk_norm": "head_dim" if normed else "none",
        },
        "feed_forward": {"type": "gated" if swiglu else "plain", "activation": activation, "bias": biased},
        "norm": norm_of("rmsnorm" if rms == "RMSNorm" else "layernorm"),
        "positions": _positions(c, c.size("kv_channels", default=quotient or 1)),
        "head": {"tied": not c.flag("untie_embeddings_and_output_weights", default=False)},
    }
    if normed and rms == "LayerNorm":
        raise c.refusal("`qk_layernorm` with LayerNorm gives queries and keys biases, which cannot be said in a spec")
    if c.flag("multi_latent_attention", default=False):
        model |= _latent(c)
    if c.count("mtp_num_layers"):
        model["prediction"] = {"count": c.count("mtp_num_layers"), "copies_embedding": False}
    return _with_experts(c, model) if c.count("num_experts", "num_moe_experts") else model


def _vocabulary(c: Reader) -> SpecModel:
    """Return the vocabulary as it is stored: padded to a multiple of 128 times the tensor parallel size, or as was printed."""
    tensor = c.size("tensor_model_parallel_size", default=1)
    multiple = c.size("make_vocab_size_divisible_by", default=128) * tensor
    padded = c.value("padded_vocab_size")
    if padded is not None:
        return {"vocab_size": c.size("padded_vocab_size")}
    size = c.value("vocab_size", "vocab_size_override")
    if size is None:
        raise c.refusal("`vocab_size` or `padded_vocab_size` is missing; Megatron-LM takes it from the tokenizer")
    return {"vocab_size": c.positive("vocab_size", size), "pad_vocab_to_multiple_of": multiple}


def _positions(c: Reader, head_dim: int) -> str | SpecModel:
    kind = c.value("position_embedding_type") or "learned_absolute"
    if c.flag("use_rotary_position_embeddings", default=False):
        kind = "rope"
    if kind not in _POSITIONS:
        raise c.refusal(f"`position_embedding_type: {show(kind)}` cannot be said in a spec; {', '.join(_POSITIONS)} can")
    share = c.value("rotary_percent")
    rotary_dim = int(head_dim * (1.0 if share is None else c.fraction("rotary_percent", share)))
    return {"type": "rope", "rotary_dim": rotary_dim} if kind == "rope" and rotary_dim != head_dim else _POSITIONS[kind]


def _latent(c: Reader) -> SpecModel:
    rank = c.value("q_lora_rank")
    latent = {
        "kv_rank": c.size("kv_lora_rank", default=512),
        "nope_dim": c.size("qk_head_dim", default=128),
        "rope_dim": c.size("qk_pos_emb_head_dim", default=64),
        "v_dim": c.size("v_head_dim", default=128),
    }
    return {
        "mixer": "latent_attention",
        "latent_attention": ({} if rank is None else {"q_rank": c.positive("q_lora_rank", rank)}) | latent,
        "positions": "rope",
    }


def _with_experts(c: Reader, model: SpecModel) -> SpecModel:
    n = model["n_layers"]
    scoring = c.value("moe_router_score_function") or "softmax"
    if scoring not in ("softmax", "sigmoid"):
        raise c.refusal(f"`moe_router_score_function: {show(scoring)}` cannot be said in a spec; 'softmax' or 'sigmoid' can")
    shared = c.count("moe_shared_expert_intermediate_size")
    gate = c.flag("moe_shared_expert_gate", default=False)
    experts: SpecModel = {
        "count": c.size("num_experts", "num_moe_experts"),
        "top_k": c.size("moe_router_topk", default=2),
        "d_ff": c.size("moe_ffn_hidden_size", default=model["d_ff"]),
        "type": model["feed_forward"]["type"],
        "activation": model["feed_forward"]["activation"],
        "bias": model["feed_forward"]["bias"],
        "scoring": scoring,
        "correction_bias": "buffer" if c.flag("moe_router_enable_expert_bias", default=False) else "none",
    }
    if experts["top_k"] > experts["count"]:
        raise c.refusal(f"`moe_router_topk: {experts['top_k']}` is more than the {experts['count']} experts")
    if shared:
        experts["shared"] = {"d_ff": shared} | ({"gate": True} if gate else {})
    return with_experts(model, experts, _sparse(c, n))


def _sparse(c: Reader, n_layers: int) -> list[bool]:
    """Return whether each layer has experts: every n-th, or a list, or Python's text of one such as ``([0]*3+[1]*58)``."""
    given = c.value("moe_layer_freq")
    if isinstance(given, str):
        given = _list_of(c, given)
    if isinstance(given, list):
        if len(given) != n_layers or any(one not in (0, 1) for one in given):
            raise c.refusal(f"`moe_layer_freq` must have a 0 or a 1 for each of {n_layers} layers")
        return [bool(one) for one in given]
    step = 1 if given is None else c.positive("moe_layer_freq", given)
    return [layer % step == 0 for layer in range(n_layers)]


def _list_of(c: Reader, text: str) -> list[int] | int:
    """Return the list that ``[0]*3+[1]*58`` means: lists of digits, repeated and joined, and nothing else of Python."""
    made: list[int] = []
    if text.strip().isdecimal():
        return int(text)
    for part in text.replace(" ", "").strip("()").split("+"):
        body, _, times = part.strip("()").partition("]*")
        digits = body.strip("[]").split(",")
        if not part.lstrip("(").startswith("[") or not all(digit in ("0", "1") for digit in digits) or not (times or "1").isdecimal():
            raise c.refusal(f"`moe_layer_freq: {show(text)}` is no list such as ([0]*3+[1]*58)")
        made += [int(digit) for digit in digits] * min(int(times or 1), 10_000)
    return made


def _training(c: Reader) -> SpecModel:
    """Return what the arguments say of training."""
    training: SpecModel = {}
    if c.value("micro_batch_size") is not None:
        training["batch_size"] = c.size("micro_batch_size")
    if c.value("seq_length") is not None:
        training["sequence_length"] = c.size("seq_length")
    if c.flag("bf16", default=False):
        training["precision"] = "bf16-master"
    granularity = c.value("recompute_granularity")
    if granularity in ("full", "selective"):
        training["recompute"] = granularity
    elif granularity is not None:
        raise UnsupportedConfigError(f"Megatron-LM config: `recompute_granularity: {show(granularity)}` is neither 'full' nor 'selective'")
    return training
