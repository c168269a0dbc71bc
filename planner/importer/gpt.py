"""The configurations of nanoGPT (Karpathy, model.py: GPTConfig) and LitGPT (Lightning AI, litgpt/config.py) to a spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importer.moe import with_experts
from planner.importer.parts import norm_of, qkv_bias, shared_of
from planner.importer.reader import Imported, Reader, SpecModel, show

_LITGPT_ONLY = ("mlp_class_name", "norm_class_name", "n_query_groups", "padded_vocab_size", "rotary_percentage", "parallel_residual")
_LITGPT_NEUTRAL = (
    "attention_logit_softcapping", "attention_scores_scalar", "final_logit_softcapping", "head_size", "hf_config", "name", "norm_eps",
    "norm_topk_prob", "rope_adjustments", "rope_base", "rope_condense_ratio", "rope_indices", "rope_interleave", "rope_local_base_freq",
    "rope_n_elem", "routed_scaling_factor", "sliding_window_indices", "sliding_window_offset", "sliding_window_size", "n_expert_groups",
    "n_topk_groups", "n_topk_scores_per_group", "moe_intermediate_size", "first_k_dense_replace", "n_shared_expert", "gelu_approximate",
    "norm_1", "norm_2",
)  # fmt: skip


def looks_like_nanogpt(config: Mapping[str, Any]) -> bool:
    """Say whether these are nanoGPT's names, or LitGPT's."""
    return {"n_layer", "n_head", "n_embd"} <= set(config)


def looks_like_litgpt(config: Mapping[str, Any]) -> bool:
    """Say whether these are LitGPT's names."""
    return looks_like_nanogpt(config) and any(key in config for key in _LITGPT_ONLY)


def read_nanogpt(config: Mapping[str, Any]) -> Imported:
    """Return the spec of nanoGPT's settings; what is absent is what its GPTConfig and train.py say."""
    c = Reader(config, "nanoGPT")
    if c.value("bias") is None:
        raise c.refusal("`bias` is missing; its train.py means false by that, its GPTConfig true")
    bias = c.flag("bias", default=True)
    model: SpecModel = {
        "vocab_size": c.size("vocab_size", "meta_vocab_size", default=50304),
        "context_length": c.size("block_size", default=1024),
        "d_model": c.size("n_embd"),
        "n_layers": c.layers("n_layer"),
        "n_heads": c.size("n_head"),
        "attention": {"bias": bias, "qkv": "fused"},
        "feed_forward": {"type": "plain", "activation": "gelu", "bias": bias},
        "norm": norm_of("layernorm", bias=bias),
        "positions": "learned",
        "head": {"tied": True},
    }
    training: SpecModel = {}
    if c.value("batch_size") is not None:
        training["batch_size"] = c.size("batch_size")
    if c.value("dropout") is not None:
        training["dropout"] = c.value("dropout")
    return Imported(model, "nanoGPT settings", tuple(c.keys), _unread(c), tuple(c.notes), further=training)


def _unread(c: Reader) -> tuple[str, ...]:
    return tuple(str(key) for key, value in c.config.items() if key not in c.known and value not in (None, False))


def read_litgpt(config: Mapping[str, Any]) -> Imported:
    """Return the spec of a LitGPT ``model_config.yaml``; raises UnsupportedConfigError."""
    c = Reader(config, "LitGPT")
    c.ignore(*_LITGPT_NEUTRAL)
    d_model, n_heads = c.size("n_embd"), c.size("n_head")
    head_dim = c.size("head_size", default=d_model // n_heads or 1)
    kind = c.value("mlp_class_name") or "GptNeoxMLP"
    activation = "gelu_tanh" if c.value("gelu_approximate") == "tanh" else "gelu"
    bias = c.flag("bias", default=True)
    feed_forward: SpecModel = {
        "GptNeoxMLP": {"type": "plain", "activation": activation, "bias": bias},
        "LLaMAMLP": {"type": "gated", "activation": "silu", "bias": bias},
        "GemmaMLP": {"type": "gated", "activation": activation, "bias": bias},
        "LLaMAMoE": {"type": "gated", "activation": "silu", "bias": bias},
    }.get(kind if isinstance(kind, str) else "", {})
    if not feed_forward:
        raise c.refusal(f"`mlp_class_name: {show(kind)}` cannot be said in a spec; GptNeoxMLP, LLaMAMLP, GemmaMLP and LLaMAMoE can")
    model: SpecModel = {
        "vocab_size": _rows(c),
        "context_length": c.size("block_size", default=4096),
        "d_model": d_model,
        "n_layers": c.layers("n_layer"),
        "n_heads": n_heads,
        "n_kv_heads": c.size("n_query_groups", default=n_heads),
        "head_dim": head_dim,
        "d_ff": c.size("intermediate_size", default=None if feed_forward["type"] == "gated" else 4 * d_model),
        "attention": {
            "bias": bias or qkv_bias(qkv=c.flag("attn_bias", default=False)),
            "qkv": "fused",
            "qk_norm": _qk_norm(c),
        },
        "feed_forward": feed_forward,
        "norm": _norm(c),
        "block": _block(c),
        "positions": _positions(c, head_dim),
        "embedding_scale": c.flag("scale_embeddings", default=False),
        "head": {"tied": False} | ({"bias": True} if c.flag("lm_head_bias", default=False) else {}),
    }
    c.require("latent_attention")
    c.note("LitGPT does not tie the head to the token table")
    if kind == "LLaMAMoE":
        model = _with_experts(c, model)
    return Imported(model, "LitGPT model_config", tuple(c.keys), c.refuse_unread(), tuple(c.notes))


def _rows(c: Reader) -> int:
    padded = c.value("padded_vocab_size")
    if padded is not None:
        c.ignore("vocab_size", "padding_multiple")
        return c.size("padded_vocab_size")
    multiple = c.size("padding_multiple", default=512)
    return -(-c.size("vocab_size", default=50254) // multiple) * multiple


def _qk_norm(c: Reader) -> str:
    kind = c.value("norm_qk_type") or "default"
    if not c.flag("norm_qk", default=False):
        return "none"
    if kind not in ("default", "olmo2"):
        raise c.refusal(f"`norm_qk_type: {show(kind)}` cannot be said in a spec; 'default' or 'olmo2' can")
    return "full_width" if kind == "olmo2" else "head_dim"


def _norm(c: Reader) -> SpecModel:
    kind = c.value("norm_class_name") or "LayerNorm"
    if kind not in ("LayerNorm", "RMSNorm"):
        raise c.refusal(f"`norm_class_name: {show(kind)}` cannot be said in a spec; 'LayerNorm' or 'RMSNorm' can")
    after = c.flag("post_attention_norm", default=False), c.flag("post_mlp_norm", default=False)
    before = c.flag("norm_1", default=True), c.flag("norm_2", default=True)
    placements = {
        ((True, True), (False, False)): "before",
        ((True, True), (True, True)): "before_and_after",
        ((False, False), (True, True)): "after",
    }
    if (before, after) not in placements:
        raise c.refusal("`post_attention_norm` and `post_mlp_norm` differ, which cannot be said in a spec")
    offset = {"unit_offset": True} if c.flag("add_unit_offset", "rmsnorm_unit_offset", default=False) else {}
    return norm_of("rmsnorm" if kind == "RMSNorm" else "layernorm", placement=placements[before, after], **offset)


def _block(c: Reader) -> str:
    shared = c.flag("shared_attention_norm", default=False)
    if not c.flag("parallel_residual", default=True):
        return "sequential"
    return "parallel_one_norm" if shared else "parallel_two_norms"


def _positions(c: Reader, head_dim: int) -> str | SpecModel:
    share = c.value("rotary_percentage")
    rotary_dim = int(head_dim * (0.25 if share is None else c.fraction("rotary_percentage", share) if share else 0))
    if not rotary_dim:
        return "none"
    return "rope" if rotary_dim == head_dim else {"type": "rope", "rotary_dim": rotary_dim}


def _with_experts(c: Reader, model: SpecModel) -> SpecModel:
    width = c.size("moe_intermediate_size", default=model["d_ff"])
    experts: SpecModel = {"count": c.size("n_expert"), "top_k": c.size("n_expert_per_token"), "d_ff": width}
    if experts["top_k"] > experts["count"]:
        raise c.refusal(f"`n_expert_per_token: {experts['top_k']}` is more than the {experts['count']} experts")
    if shared := shared_of(c.count("n_shared_expert") * width):
        experts["shared"] = shared
    first = c.count("first_k_dense_replace")
    return with_experts(model, experts, [layer >= first for layer in range(model["n_layers"])])
