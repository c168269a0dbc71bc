"""Decoders with their own key names: GPT and its successors, OPT, BLOOM, Falcon, MPT, XGLM."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.engine import Reading, Row, row
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import SpecModel

FUSED = {"attention.bias": True, "attention.qkv": "fused"}
SEPARATE = {"attention.bias": True, "attention.qkv": "separate"}
LEARNED = {"positions": "learned"}
AFTER_TWO_ROWS = {"positions": {"type": "learned", "offset": 2}}
TIED, UNTIED = tied(True), tied(False)
FUNCTION = "activation_function"

# Without `n_inner`, the feed-forward is 4 times as wide as the model.
_CONTEXT, _DEPTH, _HEADS = "n_positions max_position_embeddings", "n_layer num_hidden_layers", "n_head num_attention_heads"
OPENAI = row(
    sizes(1024, context=_CONTEXT, d_model="n_embd hidden_size", n_layers=_DEPTH, n_heads=_HEADS),
    {"d_ff": size("n_inner", same("d_model", 4))}, LAYERNORM, TIED,
    ignored={NAMES: "n_ctx", SCALES: "scale_attn_weights scale_attn_by_inverse_layer_idx", RUNS: "reorder_and_upcast_attn"},
)  # fmt: skip
NOT_READ = row(ignored={UNREAD: "n_special predict_special_tokens"})
GPT2 = row(OPENAI, NOT_READ, FUSED, plain("gelu_new", True, FUNCTION), LEARNED)

# Attention without biases and a feed-forward with biases in parallel under one norm; an LM head with a bias.
ROTARY_DIM = size("rotary_dim", 64, null=None)
GPTJ = row(
    OPENAI, {"context_length": size(_CONTEXT, 2048)}, ONE_NORM, UNTIED, plain("gelu_new", True, FUNCTION),
    {"attention.bias": False, "attention.qkv": "separate"},
    {"positions": code(lambda c: {"type": "rope", "rotary_dim": c.of(ROTARY_DIM)} if c.of(ROTARY_DIM) else "rope", ROTARY_DIM)},
    {"head.bias": True},
)  # fmt: skip


def _neo_layers(c: Reading) -> list[SpecModel]:
    """Return each layer's window, from ``[[["global", "local"], 12]]``."""
    given, n = c.value("attention_types"), c["n_layers"]
    given = [[["global", "local"], n // 2], [["global"], n % 2]] if given is None else given
    kinds: list[str] = []
    wrong = c.refusal("`attention_types` must be a list such as [[['global', 'local'], 12]], with a kind for each layer")
    if not isinstance(given, list):
        raise wrong
    for group in given:
        if not isinstance(group, list) or len(group) != 2 or not isinstance(group[0], list):
            raise wrong
        kinds += group[0] * (group[1] if isinstance(group[1], int) and 0 <= group[1] <= n else 0)
    if len(kinds) != n or any(kind not in ("local", "global") for kind in kinds):
        raise wrong
    window = c.of(NEO_WINDOW)
    return [{"attention": {"window": window}} if kind == "local" else {} for kind in kinds]


NEO_WINDOW = size("window_size", 256)
MULTI_QUERY = flag("multi_query", True)
NEW_FALCON = flag("new_decoder_architecture")
FALCON_NORMS = size("num_ln_in_parallel_attn", when(NEW_FALCON, 2, 1))


def _falcon_block(c: Reading) -> str:
    two = c.of(FALCON_NORMS) == 2
    return ("parallel_two_norms" if two else "parallel_one_norm") if c.of(flag("parallel_attn", True)) else "sequential"


def _cpmant_tensors(c: Reading) -> list[SpecModel]:
    prompts, length, segments, buckets = (c.of(source) for source in (PROMPTS, LENGTH, SEGMENTS, BUCKETS))
    return [
        tensor("prompt_embedding", [prompts, length, "d_model"], "embedding"),
        tensor("segment_embedding", [segments, "d_model"], "other"),
        tensor("relative_attention_bias", [segments * segments + buckets, "n_heads"], "position"),
    ]


PROMPTS, LENGTH = size("prompt_types", 32), size("prompt_length", 32)
SEGMENTS, BUCKETS = size("segment_types", 32), size("position_bias_num_buckets", 512)
LAST_BIAS = {"q": False, "k": False, "v": False, "o": True}
TABLE = size("word_embed_proj_dim", same("d_model"))

ROWS: Mapping[str, Row] = {
    # OPT's positions, and tokens scaled by the square root of the width
    "biogpt": row(
        sizes(1024), LAYERNORM, TIED, SEPARATE, plain("gelu", True), AFTER_TWO_ROWS,
        {"d_ff": size("intermediate_size"), "embedding_scale": flag("scale_embedding", True)},
    ),
    # the class has no context length, since ALiBi has no limit; all models were trained at 2,048
    "bloom": row(
        LAYERNORM, TIED, feed_forward("plain", "gelu_tanh", True),
        sizes(2048, context="seq_length", d_model="hidden_size n_embed", n_layers=_DEPTH, n_heads=_HEADS),
        {"attention.bias": True, "attention.qkv": "fused_per_head", "positions": "alibi", "embedding_norm": True},
        only={"apply_residual_connection_post_layernorm": False},
        ignored={RUNS: "bias_dropout_fusion masked_softmax_fusion slow_but_exact", UNREAD: "offset_alibi skip_bias_add skip_bias_add_qkv"},
    ),
    "codegen": row(GPTJ, {"attention.qkv": "fused"}),
    # prompts have rows of their own in the token embedding, to which the head is not tied; segments have an embedding
    "cpmant": row(
        sizes(2048, context="position_bias_max_distance", n_layers="num_hidden_layers"), feed_forward("gated", "gelu", False),
        {"head_dim": size("dim_head"), "d_ff": size("dim_ff"), "attention.bias": False, "attention.qkv": "separate"},
        {"norm.type": "rmsnorm", "positions": "none", "head.tied": False},
        {"extra": code(_cpmant_tensors, PROMPTS, LENGTH, SEGMENTS, BUCKETS)},
        ignored={RUNS: "max_new_tokens mask_modules dropout_p", SCALES: "eps", UNREAD: "tie_word_embeddings"},
    ),
    # a tied head that has a bias
    "ctrl": row(
        OPENAI, SEPARATE, feed_forward("plain", "relu", True), {"context_length": size(_CONTEXT, 256), "d_ff": size("dff")},
        {"positions": "sinusoidal", "embedding_scale": True, "head.bias": True}, ignored={NAMES: "from_tf", UNREAD: "n_inner"},
    ),
    # all four shapes of its block; without the new architecture, `num_kv_heads` is not read
    "falcon": row(
        sizes(2048), LAYERNORM, TIED, plain("gelu", flag("bias"), "activation"),
        {"n_kv_heads": when(NEW_FALCON, size("num_kv_heads", same("n_heads")), when(MULTI_QUERY, 1, same("n_heads")))},
        {"d_ff": size("ffn_hidden_size", same("d_model", 4)), "attention.bias": flag("bias")},
        {"attention.qkv": when(NEW_FALCON, "fused", when(MULTI_QUERY, "fused", "fused_per_head"))},
        {"block": code(_falcon_block, FALCON_NORMS, flag("parallel_attn", True)), "positions": when(flag("alibi"), "alibi", "rope")},
        only={"apply_residual_connection_post_layernorm": False},
    ),
    "gpt-sw3": GPT2,
    "gpt2": GPT2,
    # GPT-2 with one key and value head
    "gpt_bigcode": row(
        OPENAI, plain("gelu_tanh", True, FUNCTION), LEARNED, {"n_kv_heads": when(MULTI_QUERY, 1, same("n_heads")), "attention.bias": True},
        {"attention.qkv": when(MULTI_QUERY, "fused", "fused_per_head")}, only={"num_key_value_heads": same("n_kv_heads")},
        ignored={RUNS: "inference_runner max_batch_size max_sequence_length pad_key_length pre_allocate_kv_cache validate_runner_input"},
    ),
    # `attention_types` lists the layers with a window
    "gpt_neo": row(
        sizes(2048, n_layers="num_layers", n_heads="num_heads"), LAYERNORM, TIED, plain("gelu_new", True, FUNCTION), LEARNED,
        {"d_ff": size("intermediate_size", same("d_model", 4)), "attention.bias": bias(False, True), "attention.qkv": "separate"},
        {"layers.windows": code(_neo_layers, "attention_types", NEO_WINDOW)}, ignored={UNREAD: "attention_layers"},
    ),
    "gpt_neox": row(
        sizes(2048), LAYERNORM, UNTIED, plain("gelu", True),
        {"head_dim": divided(), "d_ff": size("intermediate_size"), "attention.bias": flag("attention_bias", True)},
        {"attention.qkv": "fused_per_head", "block": when(flag("use_parallel_residual", True), "parallel_two_norms", "sequential")},
        {"positions": rope(0.25, "rotary_pct")}, only={"head_dim": same("head_dim")}, ignored={ROTATES: "rotary_emb_base"},
    ),
    # no biases except in the output projection of the last layer's attention
    "gpt_neox_japanese": row(
        sizes(2048), LAYERNORM, TIED, plain("gelu", False),
        {"head_dim": divided(), "d_ff": times(size("intermediate_multiple_size", 4), same("d_model")), "attention.bias": False},
        {"attention.qkv": "fused_per_head", "positions": rope(name="rotary_pct")},
        {"layers.biases": per_layer(lambda layer, n: {"attention": {"bias": LAST_BIAS}} if layer == n - 1 else {})},
        only={"head_dim": same("head_dim")}, ignored={ROTATES: "rotary_emb_base"},
    ),
    "gptj": row(GPTJ, ignored={UNREAD: "rotary"}),
    "mpt": row(
        LAYERNORM, TIED, feed_forward("plain", "gelu", False), {"norm.bias": False, "positions": "alibi"},
        sizes(
            2048, context="max_seq_len", d_model="d_model hidden_size", n_layers="n_layers num_hidden_layers",
            n_heads="n_heads num_attention_heads",
        ),
        {"d_ff": times(size("expansion_ratio", 4), same("d_model")), "attention.bias": False, "attention.qkv": "fused"},
        only={
            "attn_config.attn_type": "multihead_attention", "attn_config.qk_ln": False, "attn_config.prefix_lm": False,
            "attn_config.alibi": True, "no_bias": True, "norm_type": "low_precision_layernorm", "expansion_ratio": 4,
        },
        ignored={
            RUNS: "attn_config.attn_impl attn_config.attn_uses_sequence_id init_device verbose", STARTS: "init_config",
            SCALES: "attn_config.alibi_bias_max attn_config.clip_qkv attn_config.softmax_scale logit_scale",
            NAMES: "attn_config.model_type tokenizer_name", UNREAD: "learned_pos_emb embedding_fraction",
        },
    ),
    # norms after the residual sum, and none after the last layer; its "gelu" is the tanh approximation
    "openai-gpt": row(
        OPENAI, NOT_READ, FUSED, LEARNED,
        feed_forward("plain", choice("afn", {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}, "gelu_new"), True),
        {"context_length": size(_CONTEXT, 512), "d_ff": same("d_model", 4), "norm.placement": "after_residual", "final_norm": False},
        ignored={UNREAD: "n_inner"},
    ),
    # its 350m model has norms after the residual sum and a narrower token embedding
    "opt": row(
        sizes(2048), LAYERNORM, TIED, plain("relu", flag("enable_bias", True), FUNCTION), AFTER_TWO_ROWS,
        {"embedding_dim": code(lambda c: None if c.of(TABLE) == c["d_model"] else c.of(TABLE), TABLE), "d_ff": size("ffn_dim")},
        {"attention.bias": flag("enable_bias", True), "attention.qkv": "separate"},
        {"norm.weight": when(flag("layer_norm_elementwise_affine", True), None, False)},
        {"norm.placement": when(flag("do_layer_norm_before", True), "before", "after_residual")},
        {"final_norm": when(flag("do_layer_norm_before", True), when(flag("_remove_final_layer_norm"), False, True), False)},
        ignored={NAMES: "prefix"},
    ),
    "xglm": row(
        LAYERNORM, TIED, SEPARATE, plain("gelu", True, FUNCTION),
        sizes(2048, d_model="d_model hidden_size", n_layers="num_layers num_hidden_layers", n_heads="attention_heads num_attention_heads"),
        {"d_ff": size("ffn_dim"), "positions": "sinusoidal", "embedding_scale": flag("scale_embedding", True)},
    ),
}  # fmt: skip
