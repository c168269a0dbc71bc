"""Decoders with key names of their own: GPT and what came of it, OPT, BLOOM, Falcon, MPT, XGLM."""

from __future__ import annotations

from planner.importer.parts import (
    gated,
    gpt_sizes,
    head_dim_of,
    head_of,
    norm_of,
    plain,
    qkv_bias,
    rope,
    sizes,
    with_layers,
)
from planner.importer.reader import Reader, SpecModel

GPT_BIGCODE_CACHES = (
    "attention_softmax_in_fp32", "inference_runner", "max_batch_size", "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache",
    "validate_runner_input",
)  # fmt: skip


def openai_gpt(c: Reader) -> SpecModel:
    """Normalise the sum with the residual, and no more after the last layer."""
    c.ignore("n_special", "predict_special_tokens")
    activation = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}  # of the class: its "gelu" is the tanh approximation
    afn = c.value("afn") or "gelu"
    if afn not in activation:
        raise c.refusal(f"`afn: {afn!r}` cannot be said in a spec")
    return {
        **gpt_sizes(c, context=512),
        "attention": {"bias": True, "qkv": "fused"},
        "feed_forward": {"type": "plain", "activation": activation[afn], "bias": True},
        "norm": norm_of("layernorm", placement="after_residual"),
        "positions": "learned",
        "final_norm": False,
        "head": head_of(c, tied=True),
    }


def gpt2(c: Reader) -> SpecModel:
    """Read GPT-2."""
    c.ignore("n_special", "predict_special_tokens")
    return {
        **gpt_sizes(c, context=1024),
        "attention": {"bias": True, "qkv": "fused"},
        "feed_forward": plain(c, default="gelu_new", bias=True, key="activation_function"),
        "norm": norm_of("layernorm"),
        "positions": "learned",
        "head": head_of(c, tied=True),
    }


def gpt_bigcode(c: Reader) -> SpecModel:
    """Read GPT-2 with one key and value head."""
    multi_query = c.flag("multi_query", default=True)
    read = gpt_sizes(c, context=1024)
    c.require("num_key_value_heads", 1 if multi_query else read["n_heads"])
    c.ignore(*GPT_BIGCODE_CACHES)
    return {
        **read,
        "n_kv_heads": 1 if multi_query else read["n_heads"],
        "attention": {"bias": True, "qkv": "fused" if multi_query else "fused_per_head"},
        "feed_forward": plain(c, default="gelu_pytorch_tanh", bias=True, key="activation_function"),
        "norm": norm_of("layernorm"),
        "positions": "learned",
        "head": head_of(c, tied=True),
    }


def gpt_neo(c: Reader) -> SpecModel:
    """Read GPT-Neo; ``attention_types`` says which layers see only a window."""
    read: SpecModel = {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", default=2048),
        "d_model": c.size("hidden_size"),
        "n_layers": c.layers("num_layers"),
        "n_heads": c.size("num_heads"),
    }
    c.ignore("attention_layers")
    window = c.size("window_size", default=256)
    kinds = _neo_layers(c, read["n_layers"])
    model = {
        **read,
        "d_ff": c.size("intermediate_size", default=4 * read["d_model"]),
        "attention": {"bias": qkv_bias(qkv=False, o=True), "qkv": "separate"},
        "feed_forward": plain(c, default="gelu_new", bias=True, key="activation_function"),
        "norm": norm_of("layernorm"),
        "positions": "learned",
        "head": head_of(c, tied=True),
    }
    return with_layers(model, [{"attention": {"window": window}} if kind == "local" else {} for kind in kinds])


def _neo_layers(c: Reader, n_layers: int) -> list[str]:
    """Return ``local`` or ``global`` for each layer, from ``[[["global", "local"], 12]]``."""
    given = c.value("attention_types")
    given = [[["global", "local"], n_layers // 2], [["global"], n_layers % 2]] if given is None else given
    kinds: list[str] = []
    wrong = c.refusal("`attention_types` must be a list such as [[['global', 'local'], 12]], with a kind for each layer")
    if not isinstance(given, list):
        raise wrong
    for group in given:
        if not isinstance(group, list) or len(group) != 2 or not isinstance(group[0], list):  # noqa: PLR2004 - kinds and how often
            raise wrong
        kinds += group[0] * (group[1] if isinstance(group[1], int) and 0 <= group[1] <= n_layers else 0)
    if len(kinds) != n_layers or any(kind not in ("local", "global") for kind in kinds):
        raise wrong
    return kinds


def _gptj_like(c: Reader, *, qkv: str) -> SpecModel:
    """Return attention without biases beside a feed-forward with biases, under one norm, and a head with a bias."""
    rotary_dim = c.size("rotary_dim", default=64)
    all_rotated = "rotary_dim" in c.config and c.value("rotary_dim") is None
    return {
        **gpt_sizes(c, context=2048),
        "attention": {"bias": False, "qkv": qkv},
        "feed_forward": plain(c, default="gelu_new", bias=True, key="activation_function"),
        "norm": norm_of("layernorm"),
        "block": "parallel_one_norm",
        "positions": "rope" if all_rotated else {"type": "rope", "rotary_dim": rotary_dim},
        "head": head_of(c, tied=False, bias=True),
    }


def gptj(c: Reader) -> SpecModel:
    """Read GPT-J."""
    c.ignore("rotary", "scale_attn_weights")
    return _gptj_like(c, qkv="separate")


def codegen(c: Reader) -> SpecModel:
    """Read CodeGen."""
    return _gptj_like(c, qkv="fused")


def gpt_neox(c: Reader) -> SpecModel:
    """Read GPT-NeoX and Pythia."""
    c.ignore("rotary_emb_base")
    read = sizes(c, context=2048)
    return {
        **read,
        "d_ff": c.size("intermediate_size"),
        "attention": {"bias": c.flag("attention_bias", default=True), "qkv": "fused_per_head"},
        "feed_forward": plain(c, default="gelu", bias=True),
        "norm": norm_of("layernorm"),
        "block": "parallel_two_norms" if c.flag("use_parallel_residual", default=True) else "sequential",
        "positions": rope(c, head_dim_of(c, read), fraction=0.25, name="rotary_pct"),
        "head": head_of(c, tied=False),
    }


def gpt_neox_japanese(c: Reader) -> SpecModel:
    """Leave all biases out but that of the last layer's last attention projection."""
    c.ignore("rotary_emb_base")
    read = sizes(c, context=2048)
    model: SpecModel = {
        **read,
        "d_ff": c.size("intermediate_multiple_size", default=4) * read["d_model"],
        "attention": {"bias": False, "qkv": "fused_per_head"},
        "feed_forward": plain(c, default="gelu", bias=False),
        "norm": norm_of("layernorm"),
        "positions": rope(c, head_dim_of(c, read), name="rotary_pct"),
        "head": head_of(c, tied=True),
    }
    return with_layers(model, [{}] * (read["n_layers"] - 1) + [{"attention": {"bias": qkv_bias(qkv=False, o=True)}}])


def opt(c: Reader) -> SpecModel:
    """Read OPT; its 350m normalises the sum with the residual and has a narrower token table."""
    read = sizes(c, context=2048)
    before = c.flag("do_layer_norm_before", default=True)
    table = c.size("word_embed_proj_dim", default=read["d_model"])
    bias = c.flag("enable_bias", default=True)
    affine = c.flag("layer_norm_elementwise_affine", default=True)
    removed = c.flag("_remove_final_layer_norm", default=False)
    c.ignore("prefix")
    norm = norm_of("layernorm") if affine else norm_of("layernorm", weight=False)
    return {
        **read,
        **({} if table == read["d_model"] else {"embedding_dim": table}),
        "d_ff": c.size("ffn_dim"),
        "attention": {"bias": bias, "qkv": "separate"},
        "feed_forward": plain(c, default="relu", bias=bias, key="activation_function"),
        "norm": norm if before else {**norm, "placement": "after_residual"},
        "positions": {"type": "learned", "offset": 2},
        "final_norm": before and not removed,
        "head": head_of(c, tied=True),
    }


def biogpt(c: Reader) -> SpecModel:
    """Read BioGPT: OPT's positions, and tokens scaled by the square root of the width."""
    model = sizes(c, context=1024)
    return {
        **model,
        "d_ff": c.size("intermediate_size"),
        "attention": {"bias": True, "qkv": "separate"},
        "feed_forward": plain(c, default="gelu", bias=True),
        "norm": norm_of("layernorm"),
        "positions": {"type": "learned", "offset": 2},
        "embedding_scale": c.flag("scale_embedding", default=True),
        "head": head_of(c, tied=True),
    }


def bloom(c: Reader) -> SpecModel:
    """Read BLOOM."""
    c.require("apply_residual_connection_post_layernorm", False)
    c.ignore("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi", "skip_bias_add")
    c.ignore("skip_bias_add_qkv", "slow_but_exact")
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("seq_length", default=2048),  # the class has none: ALiBi goes on for ever; all were trained at 2,048
        "d_model": c.size("hidden_size", "n_embed"),
        "n_layers": c.layers("n_layer", "num_hidden_layers"),
        "n_heads": c.size("n_head", "num_attention_heads"),
        "attention": {"bias": True, "qkv": "fused_per_head"},
        "feed_forward": {"type": "plain", "activation": "gelu_tanh", "bias": True},
        "norm": norm_of("layernorm"),
        "positions": "alibi",
        "embedding_norm": True,
        "head": head_of(c, tied=True),
    }


def falcon(c: Reader) -> SpecModel:
    """Read Falcon, all four shapes of its block."""
    c.require("apply_residual_connection_post_layernorm", False)
    read = sizes(c, context=2048)
    new = c.flag("new_decoder_architecture", default=False)
    multi_query = c.flag("multi_query", default=True)
    parallel = c.flag("parallel_attn", default=True)
    norms = c.size("num_ln_in_parallel_attn", default=2 if new else 1)
    n_kv_heads = c.size("num_kv_heads", default=read["n_heads"])
    if not new:
        n_kv_heads = 1 if multi_query else read["n_heads"]  # as the class does, whatever num_kv_heads says
    bias = c.flag("bias", default=False)
    return {
        **read,
        "n_kv_heads": n_kv_heads,
        "d_ff": c.size("ffn_hidden_size", default=4 * read["d_model"]),
        "attention": {"bias": bias, "qkv": "fused" if new or multi_query else "fused_per_head"},
        "feed_forward": plain(c, default="gelu", bias=bias, key="activation"),
        "norm": norm_of("layernorm"),
        "block": ("parallel_two_norms" if norms == 2 else "parallel_one_norm") if parallel else "sequential",  # noqa: PLR2004
        "positions": "alibi" if c.flag("alibi", default=False) else "rope",
        "head": head_of(c, tied=True),
    }


def mpt(c: Reader) -> SpecModel:
    """Read MPT."""
    attention = c.section("attn_config")
    attention.require("attn_type", "multihead_attention")
    attention.require("qk_ln", False)
    attention.require("prefix_lm", False)
    attention.require("alibi", True)
    attention.ignore("attn_impl", "attn_uses_sequence_id", "alibi_bias_max", "clip_qkv", "softmax_scale", "model_type")
    attention.refuse_unread()
    c.require("no_bias", True)
    c.require("norm_type", "low_precision_layernorm")
    c.ignore("learned_pos_emb", "init_device", "init_config", "logit_scale", "embedding_fraction", "verbose", "tokenizer_name")
    d_model = c.size("d_model", "hidden_size")
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_seq_len", default=2048),
        "d_model": d_model,
        "n_layers": c.layers("n_layers", "num_hidden_layers"),
        "n_heads": c.size("n_heads", "num_attention_heads"),
        "d_ff": c.size("expansion_ratio", default=4) * d_model,
        "attention": {"bias": False, "qkv": "fused"},
        "feed_forward": {"type": "plain", "activation": "gelu", "bias": False},
        "norm": norm_of("layernorm", bias=False),
        "positions": "alibi",
        "head": head_of(c, tied=True),
    }


def xglm(c: Reader) -> SpecModel:
    """Read XGLM: sinusoidal positions."""
    scale = c.flag("scale_embedding", default=True)
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", default=2048),
        "d_model": c.size("d_model", "hidden_size"),
        "n_layers": c.layers("num_layers", "num_hidden_layers"),
        "n_heads": c.size("attention_heads", "num_attention_heads"),
        "d_ff": c.size("ffn_dim"),
        "attention": {"bias": True, "qkv": "separate"},
        "feed_forward": plain(c, default="gelu", bias=True, key="activation_function"),
        "norm": norm_of("layernorm"),
        "positions": "sinusoidal",
        "embedding_scale": scale,
        "head": head_of(c, tied=True),
    }


def ctrl(c: Reader) -> SpecModel:
    """Read CTRL: a tied head that has a bias."""
    read = gpt_sizes(c, context=256)
    c.ignore("from_tf", "torchscript")
    return {
        **read,
        "d_ff": c.size("dff"),
        "attention": {"bias": True, "qkv": "separate"},
        "feed_forward": {"type": "plain", "activation": "relu", "bias": True},
        "norm": norm_of("layernorm"),
        "positions": "sinusoidal",
        "embedding_scale": True,
        "head": head_of(c, tied=True, bias=True),
    }


def cpmant(c: Reader) -> SpecModel:
    """Read CPM-Ant: prompts have rows of their own in the token table, which the head is not tied to, and segments a table."""
    c.ignore("max_new_tokens", "mask_modules", "dropout_p", "eps", "init_std", "tie_word_embeddings")
    prompts = c.size("prompt_types", default=32) * c.size("prompt_length", default=32)
    segments = c.size("segment_types", default=32)
    buckets = c.size("position_bias_num_buckets", default=512)
    width = c.size("dim_head")
    extra = [
        {"name": "prompt_embedding", "shape": [prompts, "d_model"], "component": "embedding"},
        {"name": "segment_embedding", "shape": [segments, "d_model"], "component": "other"},
        {"name": "relative_attention_bias", "shape": [segments * segments + buckets, "n_heads"], "component": "position"},
    ]
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("position_bias_max_distance", default=2048),
        "d_model": c.size("hidden_size"),
        "n_layers": c.layers("num_hidden_layers"),
        "n_heads": c.size("num_attention_heads"),
        "head_dim": width,
        "d_ff": c.size("dim_ff"),
        "attention": {"bias": False, "qkv": "separate"},
        "feed_forward": gated(c, activation="gelu"),
        "norm": norm_of("rmsnorm"),
        "positions": "none",
        "head": {"tied": False},
        "extra": extra,
    }
