"""Dense decoders with Llama's key names."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.engine import Reading, Row, Settings, row
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import SpecModel


def one_window(default: int | None) -> Settings:
    """Return the same window for all layers."""
    return {"attention.window": window(default), **LISTED_KINDS}


def qwen_windows(first: int, *, default: bool = False) -> Settings:
    """Return windows from layer ``max_window_layers`` on, if ``use_sliding_window`` is set."""
    which = per_layer(lambda layer, _, first: SLIDING if layer >= first else FULL, count("max_window_layers", first))
    return windowed(kinds(which), when(flag("use_sliding_window", default), window(4096)))


def gemma_activation() -> Source:
    """Return gelu_tanh for the first releases' "gelu" too, as the class does."""
    older = activation("hidden_act", "gelu_tanh")
    return activation("hidden_activation", code(lambda c: {"gelu": "gelu_tanh"}.get(c.of(older), c.of(older)), older))


def directions(switch: Source) -> Settings:
    """Add to what is not counted that tokens attend to later ones, too, if a switch is on."""

    def both(c: Reading) -> None:
        if c.of(switch):
            c.omits.append("attention to later tokens: FLOPs by matmul-causal and masks are those of causal attention")

    return {"_directions": code(both, switch)}


def halved(given: int | None) -> int | None:
    """Return the window that Gemma's classes make of ``sliding_window`` if tokens attend in both directions."""
    return given // 2 + 1 if given else given


BOTH_WAYS = flag("use_bidirectional_attention")
GEMMA = decoder(
    8192, GATED, BIAS, directions(BOTH_WAYS),
    {"feed_forward.activation": gemma_activation(), "norm.placement": "before", "norm.unit_offset": True, "embedding_scale": True},
    width=256, own_kv_heads=True, tie=True,
    ignored={SCALES: "query_pre_attn_scalar", GENERATES: "cache_implementation"},
)  # fmt: skip
GEMMA2 = row(
    GEMMA, windowed(kinds(every(2)), window(4096)),
    {"attention.logit_softcap": softcap("attn_logit_softcapping", 50.0), "head.logit_softcap": softcap("final_logit_softcapping", 30.0)},
)  # fmt: skip
COHERE = decoder(
    8192, GATED, BIAS, LAYERNORM, ONE_NORM, {"norm.bias": False}, qk_norm("use_qk_norm", "per_head"), tie=True,
    ignored={SCALES: "logit_scale", NAMES: "model_max_length"},
)  # fmt: skip
LLAMA = decoder(2048, GATED, BIAS, MLP_BIAS, LISTED_KINDS)
NORMS_AFTER = decoder(2048, BIAS, {"attention.qk_norm": "full_width", "norm.placement": "after"})
OLMO2 = row(NORMS_AFTER, GATED)
MINICPM_SCALES = row(ignored={SCALES: "dim_model_base scale_depth scale_emb"})
APERTUS = decoder(
    65536, BIAS, HEAD_NORM, wide("relu_squared", False), {"feed_forward.activation": "relu_squared"},
    {"layers.extra": [tensor("mlp.act_fn.alpha_p", [1], "feed_forward"), tensor("mlp.act_fn.alpha_n", [1], "feed_forward")]},
    only={"hidden_act": "xielu", "qk_norm": True, "post_norm": False, "mlp_bias": False},
    notes=("xIELU is counted as ReLU squared, with its two learned scalars in each layer as declared tensors",),
)  # fmt: skip
HUNYUAN = row(
    HEAD_NORM,
    only={
        "use_qk_norm": True, "use_rotary_pos_emb": True, "norm_type": "rms", "mlp_bias": False, "use_cla": False,
        "add_classification_head": False, "attention_head_dim": same("head_dim"),
    },
    ignored={
        UNREAD: "cla_share_factor class_num dense_list pool_type",
        NAMES: "im_end_id im_newline_id im_start_id mask_init_id org_vocab_size pad_id text_end_id text_start_id",
    },
)  # fmt: skip


def granite_windows() -> Settings:
    """Return Granite's windows; a layer whose ``layer_rope_theta`` is 0 has no positions."""

    def rotated(c: Reading) -> list[float]:
        n, thetas = c["n_layers"], c.value("layer_rope_theta")
        thetas = [1.0] * n if thetas is None else thetas
        if not isinstance(thetas, list) or len(thetas) < n or any(not isinstance(theta, (int, float)) for theta in thetas):
            raise c.refusal(f"`layer_rope_theta` must be a list with a number for each of {n} layers")
        return thetas[:n]

    positions = marked(code(rotated, "layer_rope_theta"), NO_POSITIONS)
    return {**windowed(kinds(every(4, first=True)), window(128)), "layers.positions": positions}


# Which layers have rotary positions: all but every n-th, or those that `no_rope_layers` marks with a 0.
BY_INTERVAL = every(size("no_rope_layer_interval", 4), last=0, others=1)
ROTATED = each("no_rope_layers", (0, 1), BY_INTERVAL)


def exaone_windows() -> Settings:
    """Return EXAONE 4's windows; ``LLLG`` or 4: the last of every four is full. Without a window all are full and rotated."""
    width, period = window(4096), count("sliding_window_pattern", 4)

    def default(c: Reading) -> list[str]:
        pattern, n = c.value("sliding_window_pattern"), c["n_layers"]
        length = len(pattern) if isinstance(pattern, str) and pattern else c.of(period)
        return c.of(every(length)) if length and c.of(width) else [FULL] * n

    return windowed(kinds(code(default, width, period)), width, when(width, NO_POSITIONS))


def _baichuan_positions(c: Reading) -> str | SpecModel:
    rotary, alibi = c.value("max_position_embeddings"), c.value("model_max_length")
    if rotary is None and alibi is None:
        c.notes.append(
            "neither `max_position_embeddings` (7B: rotary) nor `model_max_length` (13B: ALiBi) is set: rotary positions are assumed"
        )
    positions: str | SpecModel = c.of(rope())
    return "alibi" if rotary is None and alibi is not None else positions


def _doge_tensors(c: Reading) -> list[SpecModel]:
    return [
        tensor("input_residual", ["d_model"], "other"),
        tensor("post_attention_residual", ["d_model"], "other"),
        tensor("self_attn.A", ["n_kv_heads"], "attention"),
        tensor("self_attn.dt_proj", ["n_kv_heads", "n_kv_heads*head_dim"], "attention", uses=1),
        *([tensor("self_attn.dt_proj_bias", ["n_kv_heads"], "attention")] if c["attention.bias"] else []),
    ]


_PERSIMMON_BIASES = [tensor(f"self_attn.{one}_norm.bias", ["head_dim"], "norm") for one in ("q", "k")]
_HEAD_DIM = head_dim(default=128)


def _square(c: Reading) -> int:
    width: int = c.of(_HEAD_DIM)
    if c["n_heads"] * width != c["d_model"]:
        raise c.refusal("n_heads · head_dim must equal hidden_size, since the output projection is square")
    return width


_GROUPED = flag("multi_query_attention")
PADDED = {"padded_vocab_size": same("vocab_size")}
QWEN2 = decoder(32768, GATED, qwen_windows(28), {"attention.bias": bias(True)}, own_kv_heads=True, only=PADDED)
QWEN3 = decoder(32768, GATED, BIAS, HEAD_NORM, qwen_windows(28), width=128, own_kv_heads=True)

GLM = decoder(
    131072, GATED, {"attention.bias": bias(flag("attention_bias", True)), "positions": rope(0.5)}, width=128, own_kv_heads=True,
)  # fmt: skip

ROWS: Mapping[str, Row] = {
    "apertus": APERTUS,
    "apertus1p5_text": row(APERTUS, only={"output_vocab_size": same("vocab_size")}),
    "arcee": decoder(4096, BIAS, wide("relu_squared", flag("mlp_bias"))),
    # by its published code: rotary with `max_position_embeddings` (7B), ALiBi with `model_max_length` alone (13B)
    "baichuan": decoder(
        4096, GATED, {"context_length": size("max_position_embeddings", size("model_max_length", 4096)), "attention.qkv": "fused"},
        {"positions": code(_baichuan_positions, "max_position_embeddings", "model_max_length", rope())},
    ),
    # norms before the last projection of attention and feed-forward
    "bitnet": decoder(
        2048, GATED, BIAS, {"attention.output_norm": True, "feed_forward.activation": activation("hidden_act", "relu_squared")},
        {"feed_forward.hidden_norm": True, "head_dim": divided()}, own_kv_heads=5, only={"head_dim": same("head_dim")},
    ),
    # by its published code (ChatGLM2, ChatGLM3, GLM-4-9B): half of a head rotated, an LM head that is not tied
    "chatglm": row(
        sizes(2048, context="seq_length", n_layers="num_layers num_hidden_layers"), {"vocab_size": size("padded_vocab_size")},
        {"n_kv_heads": when(_GROUPED, size("multi_query_group_num", 1), same("n_heads")), "head_dim": size("kv_channels", 128)},
        {"attention.bias": when(flag("add_bias_linear"), True, bias(flag("add_qkv_bias")))},
        {"attention.qkv": when(_GROUPED, "fused", "fused_per_head"), "d_ff": size("ffn_hidden_size")},
        feed_forward("gated", "silu", flag("add_bias_linear")),
        {"norm.type": when(flag("rmsnorm", True), "rmsnorm", "layernorm"), "final_norm": flag("post_layer_norm", True)},
        {"positions": apply(lambda width: rotated(width, width // 2), same("head_dim")), "head.tied": False},
        only={
            "apply_residual_connection_post_layernorm": False, "fp32_residual_connection": False, "tie_word_embeddings": False,
            "pre_seq_len": (), "prefix_projection": False, "position_encoding_2d": (), "inner_hidden_size": (),
        },
        ignored={UNREAD: "vocab_size", ROTATES: "original_rope", RUNS: "apply_query_key_layer_scaling bias_dropout_fusion"},
    ),
    "cohere": COHERE,
    # windows with rotary positions, and full attention without
    "cohere2": row(
        COHERE, windowed(kinds(every(size(PATTERN, 4))), window(4096), NO_POSITIONS), only={"use_qk_norm": False},
        ignored={
            GENERATES: "cache_implementation",
            UNREAD: (
                "use_parallel_block use_parallel_embedding use_gated_activation position_embedding_type layer_switch "
                "order_of_interleaved_layers rotary_pct use_embedding_sharing"
            ),
        },
    ),
    "cwm": decoder(131072, GATED, MLP_BIAS, windowed(kinds(every(4, first=True)), window(8192)), width=128, own_kv_heads=True),
    "diffllama": decoder(2048, GATED, BIAS, {"attention.differential": True}, only={"mlp_bias": False}, ignored={STARTS: "lambda_std_dev"}),
    # a mask made of the values, and learned scales on the residual stream
    "doge": decoder(
        2048, GATED, HEAD_NORM, {"attention.bias": flag("attention_bias", flag("hidden_bias")), "attention.window": window(None)},
        {"feed_forward.bias": flag("mlp_bias", flag("hidden_bias")), "layers.extra": code(_doge_tensors)}, only={"is_moe": False},
        ignored={
            UNREAD: (
                "num_experts num_experts_per_tok norm_topk_prob dynamic_mask_ratio expert_retrieval_size num_cdmoe_experts "
                "num_cdmoe_experts_per_head num_cdmoe_heads"
            ),
            RUNS: "keep_window_size",
        },
    ),
    # one switch for all biases
    "ernie4_5": decoder(
        131072, GATED, {"attention.bias": flag("use_bias"), "feed_forward.bias": flag("use_bias")}, width=128, own_kv_heads=2, tie=True,
        ignored={
            ROTATES: "compression_ratio freq_allocation rope_reset_position_id", RUNS: "fuse_rms_norm", UNREAD: "weight_share_add_bias",
        },
    ),
    # by its published code, with its names or Llama's
    "exaone": decoder(
        4096, GATED, BIAS, MLP_BIAS, {"feed_forward.activation": activation("activation_function hidden_act", "silu")}, own_kv_heads=True,
    ),
    "exaone4": decoder(2048, GATED, HEAD_NORM, exaone_windows(), {"norm.placement": "after"}, own_kv_heads=True),
    "gemma": GEMMA,
    "gemma2": row(GEMMA2, BOTH_SIDES),
    "gemma3_text": row(
        GEMMA, BOTH_SIDES, HEAD_NORM,
        windowed(kinds(every(size(PATTERN, 6))), when(BOTH_WAYS, apply(halved, window(4096)), window(4096))),
        {"context_length": size("max_position_embeddings", 131072), "head.logit_softcap": softcap("final_logit_softcapping")},
        only={"attn_logit_softcapping": ()},
    ),
    "glm": GLM,
    "glm4": row(GLM, BOTH_SIDES),
    "granite": row(LLAMA, SCALED),
    "granite_swa": decoder(8192, SCALED, GATED, BIAS, MLP_BIAS, granite_windows(), {"attention.sinks": True}, own_kv_heads=4, tie=True),
    "helium": decoder(
        4096, GATED, MLP_BIAS, {"attention.bias": bias(flag("attention_bias")), "head_dim": code(_square, _HEAD_DIM)}, own_kv_heads=True,
    ),
    "hunyuan_v1_dense": decoder(2048, HUNYUAN, GATED, BIAS),
    "hyperclovax": decoder(
        2048, SCALED, GATED, BIAS, MLP_BIAS, {"norm.placement": when(flag("use_post_norm", True), "before_and_after", "before")},
    ),
    # by its published code: one switch for q, k, v and o, default true; no biases in the feed-forward
    "internlm": decoder(2048, GATED, {"attention.bias": flag("bias", True)}),
    "internlm2": decoder(2048, GATED, {"attention.bias": flag("bias", True), "attention.qkv": "fused"}),
    "internlm3": decoder(
        32768, GATED,
        {"attention.bias": bias(flag("qkv_bias attention_bias"), flag("bias mlp_bias")), "feed_forward.bias": flag("bias mlp_bias")},
        width=128, own_kv_heads=True,
    ),
    "iquestcoder": decoder(131072, GATED, BIAS, MLP_BIAS, width=128, own_kv_heads=True, only={"clip_qkv": ()}),
    "jais2": decoder(8192, LAYERNORM, wide("relu_squared", flag("mlp_bias", True)), {"attention.bias": flag("attention_bias", True)}),
    "llama": LLAMA,
    "minicpm": decoder(2048, MINICPM_SCALES, GATED, BIAS, tie=True, only={"num_experts": 0}),
    # layers with windows among those without
    "ministral": decoder(131072, GATED, windowed(kinds(SLIDING), window(4096)), own_kv_heads=True),
    "ministral3": decoder(262144, GATED, one_window(None), width=128, own_kv_heads=True),
    "mistral": decoder(131072, GATED, one_window(4096), own_kv_heads=True),
    # norms without weights, on queries and keys too
    "nanochat": decoder(
        2048, BIAS, wide("relu_squared", False),
        {"norm.weight": False, "embedding_norm": True, "head.logit_softcap": softcap("final_logit_softcapping", 15.0)},
        notes=("the norms of queries and keys, which have no weights, count under implementation transformers only",),
    ),
    "nemotron": decoder(
        4096, BIAS, LAYERNORM, wide("relu_squared", flag("mlp_bias")), {"positions": rope(0.5)}, only={"kv_channels": same("head_dim")},
    ),
    "olmo": decoder(2048, GATED, BIAS, LAYERNORM, {"norm.weight": False}, ignored={SCALES: "clip_qkv"}),
    "olmo2": OLMO2,
    "olmo3": row(OLMO2, windowed(kinds(every(4)), window(4096))),
    "orion": decoder(4096, GATED, LAYERNORM, ignored={NAMES: "max_sequence_length"}),
    # norms with biases on each head's queries and keys, the same for all heads
    "persimmon": decoder(
        16384, LAYERNORM, wide("relu_squared", True), qk_norm("qk_layernorm", "head_dim", True),
        {"attention.bias": True, "attention.qkv": "fused_per_head", "positions": rope(0.5)},
        {"layers.extra": when(flag("qk_layernorm", True), _PERSIMMON_BIASES)},
        {"head_dim": divided()}, only={"num_key_value_heads": same("n_heads"), "head_dim": same("head_dim")},
    ),
    "phi": decoder(
        2048, LAYERNORM, ONE_NORM, wide("gelu_new", True), {"attention.bias": True, "positions": rope(0.5), "head.bias": True},
        only={"qk_layernorm": False},
    ),
    "phi3": decoder(
        4096, GATED, one_window(None), {"attention.qkv": "fused"}, only={"attention_bias": False, "mlp_bias": False, "lm_head_bias": False},
        ignored={ROTATES: "interpolate_factor", UNREAD: "full_attn_mod"},
    ),
    # by its published code: `intermediate_size` counts both halves of the gated width
    "qwen": row(
        sizes(8192), GATED, tied(False), {"head_dim": size("kv_channels", 128), "d_ff": half(size("intermediate_size"))},
        {"attention.bias": bias(True, when(flag("no_bias", True), False, True)), "attention.qkv": "fused"},
        {"feed_forward.activation": "silu", "feed_forward.bias": when(flag("no_bias", True), False, True), "norm.type": "rmsnorm"},
        {"positions": rope(name="rotary_pct")}, only=PADDED,
        ignored={
            ROTATES: "rotary_emb_base use_dynamic_ntk", SCALES: "scale_attn_weights use_logn_attn",
            RUNS: "bf16 fp16 fp32 onnx_safe softmax_in_fp32 use_cache_quantization use_cache_kernel", NAMES: "seq_length tokenizer_type",
        },
    ),
    "qwen2": QWEN2,
    "qwen2_5_vl_text": QWEN2,
    "qwen2_vl_text": QWEN2,
    "qwen3": QWEN3,
    "qwen3_vl_text": QWEN3,
    # one switch for the biases of q, k and v, another for the last projection's
    "seed_oss": decoder(
        524288, GATED, MLP_BIAS, {"attention.bias": bias(flag("attention_bias", True), flag("attention_out_bias"))},
        width=128, own_kv_heads=8,
    ),
    # every fourth layer without rotary positions, or those that `no_rope_layers` marks with a 0
    "smollm3": decoder(
        32768, GATED, BIAS, MLP_BIAS, windowed(kinds(marked(ROTATED, SLIDING, FULL)), when(flag("use_sliding_window"), window(None))),
        {"layers.positions": marked(ROTATED, NO_POSITIONS)}, own_kv_heads=True, tie=True,
    ),
    # `qk_layernorm`: separate weights per head
    "stablelm": decoder(
        4096, GATED, LAYERNORM, qk_norm("qk_layernorm", "per_head"),
        {"attention.bias": bias(flag("use_qkv_bias")), "block": when(flag("use_parallel_residual"), "parallel_one_norm", "sequential")},
        {"positions": rope(0.25), "head_dim": divided()}, own_kv_heads=True, only={"head_dim": same("head_dim")},
        ignored={ROTATES: "rotary_scaling_factor"},
    ),
    "starcoder2": decoder(
        4096, LAYERNORM, wide("gelu_tanh", flag("use_bias", True)), one_window(None), {"attention.bias": flag("use_bias", True)},
        own_kv_heads=True, tie=True, only={"mlp_type": "default", "norm_type": "layer_norm"},
        ignored={UNREAD: "activation_function use_position_embedding_type", SCALES: "scale_attn_weights"},
    ),
    "vaultgemma": GEMMA2,
}  # fmt: skip
