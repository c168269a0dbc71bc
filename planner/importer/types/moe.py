"""Mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.engine import Reading, Row, row
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import SpecModel
from planner.importer.types.dense import BY_INTERVAL, HUNYUAN, NORMS_AFTER, ROTATED, SCALED, exaone_windows, granite_windows, qwen_windows

ONE_WINDOW = {"attention.window": window(None)}
GRANITEMOE = decoder(2048, SCALED, BIAS, experts(**AS_WIDE, **COMPUTE), ignored={UNREAD: "activation_function"})
GRANITEMOESHARED = row(GRANITEMOE, {"experts.shared": shared(count("shared_intermediate_size"))})
GLM4_MOE = decoder(
    131072, GATED, deepseek(1), prediction(), qk_norm("use_qk_norm", "head_dim"),
    {"attention.bias": bias(flag("attention_bias")), "positions": rope(0.5)}, own_kv_heads=True, only={"moe_layer_freq": 1},
)  # fmt: skip
QWEN3_MOE = decoder(
    32768, GATED, BIAS, HEAD_NORM, experts(normalize=normalized(False), **COMPUTE),
    {"attention.window": when(flag("use_sliding_window"), window(4096)), "_sparse": sparse_steps(layer_numbers("mlp_only_layers", []))},
    own_kv_heads=True, only={"use_qk_norm": True},
)  # fmt: skip


def _cohere_kind(layer: int, _: int, dense: int, first: int, rest: int) -> str:
    """Return a layer's kind: dense layers have a separate pattern."""
    full = (layer + 1) % first == 0 if layer < dense else (layer - dense + 1) % rest == 0
    return FULL if full else SLIDING


_DBRX_NORM = "ffn_config.moe_normalize_expert_weights"
_COHERE_DENSE = count("first_k_dense_replace")
_RMS = code(lambda c: c.at("rms_norm_eps") is not None, "rms_norm_eps")


def _hunyuan_top_k(c: Reading) -> int:
    """Return the experts per token; the class reads a list's first entry."""
    for key in ("num_shared_expert", "moe_intermediate_size", "moe_topk"):
        value = c.at(key)
        if isinstance(value, list) and any(one != value[0] for one in value):
            raise c.refusal(f"`{key}` differs from layer to layer")
    number = c.at("num_shared_expert")
    if (number[0] if isinstance(number, list) and number else number) not in (None, 1):
        raise c.unsupported("num_shared_expert", number, (1,))
    top_k = c.at("moe_topk")
    return positive(c, "moe_topk", c.value("moe_topk")[0]) if isinstance(top_k, list) and top_k else int(c.of(_HUNYUAN_TOP_K))


_HUNYUAN_TOP_K = size("moe_topk num_experts_per_tok")
_ERNIE_END = when(code(lambda c: c.value("moe_layer_end_index") in (None, -1), "moe_layer_end_index"), N, count("moe_layer_end_index"))
_ERNIE_SPARSE = per_layer(
    lambda layer, _, start, step, end: start <= layer <= end and (layer + 1) % step == 0,
    count("moe_layer_start_index", 1), size("moe_layer_interval", 1), _ERNIE_END,
)  # fmt: skip


def _ernie_prediction(c: Reading) -> None:
    if c.of(count("num_nextn_predict_layers")):
        c.notes.append("its multi-token-prediction layers are not counted")


FACTORS = " ".join(f"layernorm_{part}_{name}" for part in ("full_attention", "linear_attention", "mlp") for name in ("alpha", "beta"))
MINIMAX_POSITIONS = apply(
    lambda rotary, width, whole: whole if rotary == width else {"type": "rope", "rotary_dim": rotary},
    size("rotary_dim", same("head_dim")), same("head_dim"), rope(),
)  # fmt: skip
_HALF, _ALL = rope(0.5, kind=FULL), rope(kind=SLIDING)

_MIMO_KINDS = per_layer(lambda layer, _: FULL if layer == 0 or (layer + 1) % 6 == 0 else SLIDING)
_MIMO_WINDOW = apply(lambda less, width: width if less is None else less + 1, size("sliding_window_size", None), window(129))


def _laguna_positions(c: Reading) -> list[SpecModel]:
    given, half = rope_parameters(c), c.of(_HALF)
    sliding = c.of(_ALL) if isinstance(given, dict) and SLIDING in given else "rope"
    return [{"positions": sliding} if kind == SLIDING and sliding != half else {} for kind in c["_kinds"]]


def _laguna_heads(heads: list[int], most: int) -> list[SpecModel]:
    return [{} if number == most else {"n_heads": number} for number in heads]


CHUNKED = "chunked_attention"
_ROTATED = when(code(lambda c: c.at("no_rope_layers") not in (None, [])), ROTATED, BY_INTERVAL)


def _llama4_sparse(layer: int, _: int, listed: list[int] | None, step: int) -> bool:
    return (layer + 1) % step == 0 if listed is None else layer in listed


ROWS: Mapping[str, Row] = {
    # output gates, norms on both sides, full attention without positions among windows
    "afmoe": decoder(
        16384, GATED, BIAS, HEAD_NORM, BOTH_SIDES,
        windowed(kinds(every(size("global_attn_every_n_layers", 4))), window(1024), NO_POSITIONS),
        experts(
            normalize=flag("route_norm", True), scoring="sigmoid", correction_bias="parameter",
            shared=shared_count("num_shared_experts", 2),
        ),
        {"attention.output_gate": "element", "embedding_scale": flag("mup_enabled"), "_sparse": after(count("num_dense_layers", 1))},
        width=128, only={"score_func": "sigmoid"},
        ignored={LOSES: "load_balance_coeff", ROUTES: "num_expert_groups num_limited_groups n_group topk_group route_scale"},
    ),
    # experts as wide as `intermediate_size` and shared experts in every layer
    "aria_text": decoder(
        2048, BIAS,
        experts(number="moe_num_experts", top_k="moe_topk", **AS_WIDE, **COMPUTE, shared=shared_count("moe_num_shared_experts", 2)),
        only={"mlp_bias": False}, ignored={LOSES: "moe_z_loss_coeff moe_aux_loss_coeff"},
    ),
    # output gates with a bias for each head, norms on both sides
    "beam": decoder(
        8192, GATED, BIAS, HEAD_NORM, BOTH_SIDES,
        windowed(kinds(per_layer(lambda layer, n: FULL if (layer + 1) % 6 == 0 or layer == n - 1 else SLIDING)), window(512), NO_POSITIONS),
        experts(normalize=normalized(True), **SIGMOID),
        {"attention.output_gate": "element", "head.logit_softcap": softcap("final_logit_softcapping", 30.0)},
        {"layers.extra": [tensor("self_attn.gate_bias", ["n_heads"], "attention")], "_sparse": mlp_kinds(after(3))}, width=128,
        own_kv_heads=True, ignored={ROUTES: ROUTING},
    ),
    # attention and experts side by side under one norm, windows with rotary positions
    "cohere2_moe": decoder(
        8192, BIAS, ONE_NORM, where(SOME_DENSE, GATED),
        windowed(
            kinds(per_layer(_cohere_kind, _COHERE_DENSE, size("prefix_dense_sliding_window_pattern", 1), size(PATTERN, 4))), window(4096),
            NO_POSITIONS,
        ),
        experts(
            **AS_WIDE, scoring=choice("expert_selection_fn", {"softmax": "softmax", "sigmoid": "sigmoid"}, "softmax"),
            normalize=when(apply("sigmoid".__eq__, same("experts.scoring")), normalized(True), False),
            shared=shared_count("num_shared_experts"),
        ),
        {"norm.type": when(_RMS, "rmsnorm", "layernorm"), "norm.bias": when(_RMS, None, False)},
        {"d_ff": when(SOME_DENSE, size("prefix_dense_intermediate_size", size("intermediate_size")))},
        {"_sparse": mlp_kinds(after(_COHERE_DENSE))}, width=128, tie=True,
        ignored={SCALES: "logit_scale", GENERATES: "cache_implementation", UNREAD: "shared_expert_combination_strategy"},
    ),
    "dbrx": row(
        sizes(2048, context="max_seq_len", d_model="d_model", n_layers="n_layers", n_heads="n_heads"), feed_forward("gated", "silu", False),
        {"n_kv_heads": size("attn_config.kv_n_heads"), "attention.bias": False, "attention.qkv": "fused"},
        {"norm.type": "layernorm", "norm.bias": False, "positions": "rope"}, tied(False),
        experts(
            number="ffn_config.moe_num_experts", top_k="ffn_config.moe_top_k", d_ff="ffn_config.ffn_hidden_size", **COMPUTE,
            activation=None, normalize=code(lambda c: c.at(_DBRX_NORM) is not None or not c.has(_DBRX_NORM), _DBRX_NORM),
        ),
        only={"ffn_config.ffn_act_fn": {"name": "silu"}, "num_key_value_heads": same("n_kv_heads")},
        ignored={
            SCALES: "attn_config.clip_qkv", ROTATES: "attn_config.rope_theta",
            LOSES: "ffn_config.moe_loss_weight ffn_config.moe_jitter_eps",
            UNREAD: "attn_config.model_type ffn_config.model_type ffn_config.hidden_size ffn_config.uniform_expert_assignment",
        },
    ),
    # by its published code
    "deepseek": decoder(
        2048, GATED, BIAS, deepseek(0, scoring="softmax", correction_bias=None, normalize=False, share=0), only={"scoring_func": "softmax"},
    ),
    "dots1": decoder(
        2048, GATED, BIAS, HEAD_NORM, qwen_windows(62, default=True), deepseek(0, normalize=False, share=0), own_kv_heads=True,
        only={"scoring_func": ("sigmoid", "noaux_tc"), "moe_layer_freq": 1},
    ),
    # experts in layers `moe_layer_start_index` to `moe_layer_end_index`
    "ernie4_5_moe": decoder(
        131072, GATED,
        experts(
            number="moe_num_experts", top_k="moe_k", **COMPUTE, correction_bias="parameter",
            shared=shared_count("moe_num_shared_experts", 2),
        ),
        {"attention.bias": flag("use_bias"), "feed_forward.bias": flag("use_bias"), "head.bias": when(flag("use_bias"), True)},
        shared_biases(flag("use_bias")), {"prediction": code(_ernie_prediction, "num_nextn_predict_layers"), "_sparse": _ERNIE_SPARSE},
        own_kv_heads=True, tie=True,
        ignored={
            ROUTES: "moe_norm_min moe_capacity moe_gate moe_use_aux_free", RUNS: "fuse_rms_norm",
            ROTATES: "compression_ratio freq_allocation",
        },
    ),
    # norms before, full attention without positions among windows
    "exaone_moe": decoder(2048, GATED, HEAD_NORM, exaone_windows(), deepseek(1), prediction(), own_kv_heads=True),
    "flex_olmo": row(NORMS_AFTER, experts(**AS_WIDE, normalize=normalized(False), **COMPUTE)),
    # sinks, the first two layers dense, full attention in every fourth layer and at both ends
    "flint": decoder(
        262144, GATED, BIAS, HEAD_NORM,
        windowed(kinds(per_layer(lambda layer, n: FULL if layer in (0, 1, n - 1) or layer % 4 == 1 else SLIDING)), window(513)),
        experts(normalize=normalized(True), scoring="sigmoid", shared=shared_width(1024)),
        {"attention.sinks": True, "_sparse": sparse_steps(layer_numbers("mlp_only_layers", [0, 1]))}, width=128, own_kv_heads=True,
    ),
    "glm4_moe": GLM4_MOE,
    # biases everywhere, sinks, a window in every second layer
    "gpt_oss": decoder(
        131072, windowed(kinds(every(2)), window(128)), experts(**AS_WIDE, bias=True, router_bias=True, **COMPUTE),
        {"attention.bias": flag("attention_bias", True), "attention.sinks": True}, width=64, own_kv_heads=True, only={"hidden_act": "silu"},
        ignored={UNREAD: "experts_per_token initial_context_length", SCALES: "swiglu_limit swiglu_alpha"},
        notes=("the experts' clamped SwiGLU is counted as SwiGLU",),
    ),
    "granitemoe": GRANITEMOE,
    "granitemoeshared": GRANITEMOESHARED,
    "granitemoe_swa": row(GRANITEMOESHARED, granite_windows(), {"attention.sinks": True}),
    # experts and a shared one in every layer
    "hunyuan_v1_moe": decoder(
        2048, HUNYUAN, BIAS, experts(number="num_experts", **AS_WIDE, **COMPUTE, shared=shared(same("experts.d_ff"))),
        {"experts.top_k": code(_hunyuan_top_k, _HUNYUAN_TOP_K, "moe_topk", "num_shared_expert", "moe_intermediate_size")},
        only={"use_mixed_mlp_moe": True, "moe_layer_num_skipped": 0},
        ignored={
            ROUTES: (
                "moe_drop_tokens moe_random_routing_dropped_token capacity_factor norm_topk_prob group_limited_greedy "
                "routed_scaling_factor n_group topk_group"
            ),
        },
    ),
    "hy_v3": decoder(
        131072, GATED, BIAS, HEAD_NORM, prediction(),
        experts(
            d_ff="moe_intermediate_size expert_hidden_dim", normalize=flag("route_norm", True), **SIGMOID,
            shared=shared(times(size("num_shared_experts", 1), same("experts.d_ff"))),
        ),
        {"_sparse": mlp_kinds(first_dense(1))}, width=128, own_kv_heads=True,
        only={"qk_norm": True, "mlp_bias": False, "moe_router_use_sigmoid": True, "moe_router_enable_expert_bias": True},
        ignored={RUNS: "enable_attention_fp32_softmax enable_lm_head_fp32 enable_moe_fp32_combine", SCALES: "router_scaling_factor"},
    ),
    # norms on both sides, experts and a shared one in every layer
    "kolibri1": decoder(
        262144, HEAD_NORM, BOTH_SIDES, windowed(kinds(every(5)), window(513)),
        experts(normalize=normalized(False), **SIGMOID, shared=shared_width(512)), width=128, own_kv_heads=True,
    ),
    # heads that differ from layer to layer, and a gate for each head or each of their channels
    "laguna": decoder(
        131072, GATED, BIAS, HEAD_NORM, windowed(kinds(FULL), window(512)),
        experts(**COMPUTE, scoring="sigmoid", correction_bias="parameter", shared=shared_width(512)),
        {"attention.output_gate": choice("gating", {True: "head", "per-head": "head", "per-element": "element"}, "head")},
        {"positions": code(lambda c: c.of(_HALF if FULL in c["_kinds"] else _ALL), _HALF, _ALL)},
        {"layers.positions": code(_laguna_positions, _HALF, _ALL)},
        {"layers.heads": apply(_laguna_heads, each_size("num_attention_heads_per_layer", same("n_heads")), same("n_heads"))},
        {"_sparse": mlp_kinds(after(1))}, width=128, own_kv_heads=True, only={"moe_apply_router_weight_on_input": False},
        ignored={SCALES: "moe_routed_scaling_factor moe_router_logit_softcapping"},
    ),
    # experts and a shared one in every n-th layer, dense layers of another width, windows that do not slide
    "llama4_text": decoder(
        131072, BIAS, where(SOME_DENSE, GATED), qk_norm("use_qk_norm", "unweighted", True),
        experts(number="num_local_experts", **AS_WIDE, normalize=False, scoring="sigmoid", **COMPUTE, shared=shared(same("experts.d_ff"))),
        {"d_ff": when(SOME_DENSE, size("intermediate_size_mlp", 16384))},
        {"_sparse": per_layer(_llama4_sparse, layer_numbers("moe_layers", None), size("interleave_moe_layer_step", 1))},
        {"layers.positions": marked(_ROTATED, NO_POSITIONS)},
        {"_kinds": each("layer_types", (CHUNKED, FULL), marked(_ROTATED, FULL, CHUNKED))},
        {"layers.windows": by_kind({CHUNKED: {"attention": {"window": window(8192, "attention_chunk_size"), "chunked": True}}})}, width=128,
        own_kv_heads=True,
        ignored={SCALES: "attn_temperature_tuning floor_scale attn_scale", RUNS: "for_llm_compressor"},
    ),
    # Qwen 3 with experts, windows by layer
    "mellum": decoder(
        131072, GATED, BIAS, HEAD_NORM, prediction(), windowed(kinds(FULL), window(1024)), experts(normalize=normalized(True), **COMPUTE),
        {"_sparse": mlp_kinds(after(0))}, width=128, own_kv_heads=True, ignored={UNREAD: "mtp_layer_types mtp_mlp_layer_types"},
    ),
    # twice the key heads and sinks in layers with a window, values narrower than keys
    "mimo_v2_flash": decoder(
        131072, GATED, deepseek(mlp_kinds(when(code(lambda c: c.at("moe_layer_freq") is not None), first_dense(0), after(1))), share=0),
        {"attention.bias": bias(flag("attention_bias")), "attention.v_head_dim": size("v_head_dim", 128), "positions": rope(0.334)},
        {"_kinds": kinds(each("hybrid_layer_pattern", {0: FULL, 1: SLIDING}, _MIMO_KINDS))},
        {"layers.windows": by_kind({SLIDING: {"attention": {"window": _MIMO_WINDOW, "sinks": True}, "n_kv_heads": same("n_kv_heads", 2)}})},
        width=192, own_kv_heads=True,
        only={
            "n_shared_experts": 0, "num_shared_experts": 0, "swa_num_attention_heads": same("n_heads"),
            "swa_num_key_value_heads": same("n_kv_heads", 2),
            "swa_head_dim": same("head_dim"), "swa_v_head_dim": same("attention.v_head_dim"), "add_swa_attention_sink_bias": True,
            "add_full_attention_sink_bias": False,
        },
        ignored={SCALES: "attention_value_scale", UNREAD: "attention_chunk_size hybrid_block_size", ROTATES: "swa_rope_theta"},
    ),
    # norms over all heads' queries and keys
    "minimax_m2": decoder(
        196608, experts(**AS_WIDE, **SIGMOID), {"attention.qk_norm": "full_width", "positions": MINIMAX_POSITIONS}, width=128,
        own_kv_heads=True,
        only={"shared_intermediate_size": 0, "scoring_func": "sigmoid", "use_qk_norm": True, "qk_norm_type": "per_layer"},
        ignored={UNREAD: f"{FACTORS} attn_type_list mtp_transformer_layers num_mtp_modules use_mtp use_routing_bias"},
    ),
    "mixtral": decoder(131072, ONE_WINDOW, experts(**AS_WIDE), own_kv_heads=True),
    "olmoe": decoder(
        4096, BIAS, experts(**AS_WIDE, normalize=normalized(False), **COMPUTE),
        {"attention.qk_norm": "full_width", "head_dim": divided()}, only={"head_dim": same("head_dim")}, ignored={SCALES: "clip_qkv"},
    ),
    "phimoe": decoder(
        131072, BIAS, LAYERNORM, ONE_WINDOW, experts(**AS_WIDE), {"head.bias": when(flag("lm_head_bias"), True)}, own_kv_heads=True,
        ignored={LOSES: "input_jitter_noise"},
    ),
    # a shared expert with a gate
    "qwen2_moe": decoder(
        32768, GATED,
        windowed(
            kinds(per_layer(lambda layer, _, end: SLIDING if layer % 2 == 0 and layer < end else FULL, count("max_window_layers", 28))),
            when(flag("use_sliding_window"), window(4096)),
        ),
        experts(normalize=normalized(False), **COMPUTE, shared=shared_width(5632, gate=True)),
        {"attention.bias": bias(flag("qkv_bias", True)), "_sparse": sparse_steps(layer_numbers("mlp_only_layers", []))}, own_kv_heads=True,
    ),
    "qwen3_moe": QWEN3_MOE,
    "qwen3_vl_moe_text": row(QWEN3_MOE, {"experts.normalize": True}, ignored={UNREAD: "norm_topk_prob"}),
    # GLM-4.5's block with all of a head rotated
    "sarvam_moe": decoder(
        131072, GATED, deepseek(1), prediction(), qk_norm("use_qk_norm", "head_dim", True),
        {"attention.bias": bias(flag("attention_bias use_qkv_bias"))}, width=64, own_kv_heads=True, only={"moe_layer_freq": 1},
    ),
    # experts in every layer
    "solar_open": decoder(
        131072, deepseek(after(0)), {"attention.bias": bias(flag("attention_bias"))}, width=128, own_kv_heads=True,
        only={"first_k_dense_replace": 0, "use_qk_norm": False}, ignored={UNREAD: "intermediate_size"},
    ),
}  # fmt: skip
