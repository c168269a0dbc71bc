"""State-space models and gated recurrences, alone or with attention."""

from __future__ import annotations

from collections.abc import Mapping
from operator import floordiv
from typing import Any

from planner.importer.engine import Reading, Row, Settings, row
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import SpecModel, show

# Settings of Mamba's kernels and initial values, which change no count.
KERNELS = row(
    ignored={
        RUNS: (
            "chunk_size fused_add_norm mamba_chunk_size mamba_ssm_cache_dtype mamba_ssm_dtype residual_in_fp32 use_associative_scan "
            "use_mamba_kernels use_mambapy use_mem_eff_path"
        ),
        STARTS: (
            "mamba_dt_init_floor mamba_dt_max mamba_dt_min rescale_prenorm_residual time_step_floor time_step_init_scheme time_step_max "
            "time_step_min time_step_scale"
        ),
        SCALES: "mamba_dt_limit time_step_limit", UNREAD: "mamba_norm_before_gate rms_norm",
    },
)  # fmt: skip


def scan(mixer: str, norm: str, names: str = "num_hidden_layers") -> Settings:
    """Return a model without attention; the context length is that of its training."""
    return {
        "vocab_size": size("vocab_size"),
        "context_length": size("max_position_embeddings context_length max_seq_len", 2048),
        "d_model": size("hidden_size"),
        "n_layers": layers(names),
        "mixer": mixer,
        "feed_forward": "none",
        "norm.type": norm,
        "positions": "none",
    }


def expanded(name: str, default: float = 2) -> Source:
    """Return the width times a factor that may be a fraction."""
    return apply(lambda factor, width: int(factor * width), number(name, default), same("d_model"))


def dt_rank(name: str) -> Source:
    """Return the rank of dt; ``auto`` is a sixteenth of d_model, rounded up."""
    return code(lambda c: -(-c["d_model"] // 16) if c.value(name) in (None, "auto") else c.of(size(name)), size(name, None))


def mixer_kinds(default: Any, linear: str = LINEAR) -> Source:  # kinds or a source of them
    """Return ``layer_types`` of layers without windows."""
    return each("layer_types", (FULL, linear), default)


def at(numbers: Source, others: str = LINEAR) -> Source:
    """Return full attention in the listed layers, or in all without a list."""
    return per_layer(lambda layer, _, full: FULL if full is None or layer in full else others, numbers)


def every_nth(period: Source, offset: Source, there: Any, others: Any) -> Source:  # of a layer
    """Return one value for the layers at an offset in every period, another for the others."""
    return per_layer(lambda layer, _, length, start: there if layer % length == start else others, period, offset)


MAMBA = row(
    KERNELS, scan("mamba", "rmsnorm"), tied(True),
    {"mamba.d_inner": size("intermediate_size", expanded("expand")), "mamba.d_state": size("state_size", 16)},
    {"mamba.d_conv": size("conv_kernel", 4), "mamba.dt_rank": dt_rank("time_step_rank")},
    {"mamba.conv_bias": flag("use_conv_bias", True), "mamba.bias": flag("use_bias")}, only={"hidden_act": "silu"},
    ignored={UNREAD: "d_inner d_model n_layer ssm_cfg pad_vocab_size_multiple dt_rank mixer_rms_eps", RUNS: "use_falcon_mambapy"},
)  # fmt: skip


def _head_of_mamba2(c: Reading) -> tuple[object, ...]:
    inner, heads = c["mamba2.d_inner"], c["mamba2.n_heads"]
    if inner is None:
        return (c.at("mamba_d_head"),)
    return ("auto", inner // heads) if inner % heads == 0 else ("auto",)


def mamba2(d_inner: Source) -> Row:
    """Return a Mamba-2 mixer with the key names of Bamba, Falcon-H1 and Granite 4."""
    return row(
        KERNELS,
        {"mamba2.d_inner": d_inner, "mamba2.d_state": size("mamba_d_state", 256), "mamba2.n_heads": size("mamba_n_heads", 128)},
        {"mamba2.n_groups": size("mamba_n_groups", 1), "mamba2.d_conv": size("mamba_d_conv", 4)},
        {"mamba2.chunk": size("mamba_chunk_size", 256)},
        {"mamba2.conv_bias": flag("mamba_conv_bias", True), "mamba2.bias": flag("mamba_proj_bias")},
        only={"mamba_d_head": code(_head_of_mamba2)},
    )


def _falcon_h1_bias(c: Reading) -> bool:
    biased: bool = c.of(flag("mamba_proj_bias"))
    if biased != c.of(flag("projectors_bias")):
        raise c.refusal("`projectors_bias` and `mamba_proj_bias` differ, which is not supported")
    return biased


_HAS_LINEAR, _HAS_MLP, _HAS_MOE = (apply(lambda kinds, kind=kind: kind in kinds, same("_kinds")) for kind in (LINEAR, "mlp", "moe"))
# Granite 4: without experts, the shared feed-forward is the only one. Jamba: one expert means no experts.
_HAS_EXPERTS, _MANY_EXPERTS = (apply(lambda number, least=least: number >= least, same("_experts")) for least in (1, 2))
_GRANITE_SHARED = size("shared_intermediate_size", 1024)
_GRANITE_MAMBA2 = mamba2(expanded("mamba_expand"))

# Nemotron-H: one letter per layer, as in Megatron-LM.
_PATTERN = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}
_NO_MLP = {"feed_forward": when(_HAS_MLP, "none"), "experts": when(_HAS_MOE, "none")}
_MLP_ACTIVATION, _MLP_BIAS = activation("mlp_hidden_act", "relu_squared"), flag("mlp_bias")
_LISTED = ("layers_block_type", "layer_types")
_NEMOTRON_LAYERS = {
    LINEAR: {"mixer": "mamba2", **_NO_MLP}, FULL: {"mixer": "attention", **_NO_MLP},
    "mlp": {"mixer": "none", "experts": when(_HAS_MOE, "none")}, "moe": {"mixer": "none"},
}  # fmt: skip
_NEMOTRON_EXPERTS = experts(
    number="n_routed_experts num_local_experts", normalize=normalized(True), type="plain", activation=_MLP_ACTIVATION, **SIGMOID,
    latent_dim=size("moe_latent_size", None), shared=shared(size("moe_shared_expert_intermediate_size", 7688)),
)  # fmt: skip


def _nemotron_kinds(c: Reading) -> list[str]:
    """Return the kind of each layer, from a list or from a string such as ``M-M*ME``."""
    listed, pattern = c.found(*_LISTED), c.value("hybrid_override_pattern")
    if listed:
        return entries(c, *listed, tuple(_PATTERN.values()), len(listed[1]) if isinstance(listed[1], list) and listed[1] else 1)
    if isinstance(pattern, str) and pattern and set(pattern) <= set(_PATTERN):
        return [_PATTERN[letter] for letter in pattern]
    raise c.refusal(
        f"`hybrid_override_pattern: {show(pattern)}` is not a string of {' '.join(_PATTERN)}, and `layers_block_type` is missing"
    )


def _no_biased_experts(c: Reading) -> None:
    if c.of(_HAS_MOE) and c.of(_MLP_BIAS):
        raise c.refusal("`mlp_bias: True` with experts is not supported")


def _griffin_mixers(c: Reading) -> list[SpecModel]:
    """Return the mixer of each layer by a repeated pattern."""
    kinds = c.value("block_types")
    kinds = ["recurrent", "recurrent", "attention"] if kinds is None else kinds
    if not isinstance(kinds, list) or not kinds or any(kind not in ("recurrent", "attention") for kind in kinds):
        raise c.refusal("`block_types` must be a list of `recurrent` and `attention`")
    return [{"mixer": "rg_lru"} if kind == "recurrent" else {} for kind in (kinds * c["n_layers"])[: c["n_layers"]]]


def _xlstm_width(d_model: int, factor: float, multiple: int) -> int:
    return int((d_model * factor + multiple - 1) // multiple * multiple)


ROWS: Mapping[str, Row] = {
    # attention in the layers of `attn_layer_indices`
    "bamba": decoder(
        262144, GATED, BIAS, MLP_BIAS, mamba2(expanded("mamba_expand")), mixed(at(layer_numbers("attn_layer_indices", [])), "mamba2"),
        {"positions": rope(0.5)}, own_kv_heads=True, ignored={LOSES: "z_loss_coefficient", UNREAD: "attn_rotary_emb"},
    ),
    # attention and Mamba-2 side by side in every layer
    "falcon_h1": decoder(
        8192, GATED, BIAS, MLP_BIAS, mamba2(size("mamba_d_ssm", 1024, null=expanded("mamba_expand"))),
        {"mixer": ["attention", "mamba2"], "mamba2.bias": code(_falcon_h1_bias, "mamba_proj_bias", "projectors_bias")},
        {"mamba2.gated_norm": flag("mamba_rms_norm")}, own_kv_heads=True,
        ignored={
            SCALES: (
                "attention_in_multiplier attention_out_multiplier embedding_multiplier key_multiplier lm_head_multiplier mlp_multipliers "
                "ssm_in_multiplier ssm_multipliers ssm_out_multiplier"
            ),
            UNREAD: "attn_layer_indices mlp_expansion_factor mamba_use_mlp",
        },
    ),
    "falcon_mamba": row(
        MAMBA, notes=("the norms of dt, B and C, which have no weights, are counted only under implementation transformers",)
    ),
    "granitemoehybrid": decoder(
        2048, SCALED, BIAS, _GRANITE_MAMBA2, where(_HAS_LINEAR, _GRANITE_MAMBA2.settings),
        mixed(mixer_kinds(each("layers_block_type", (FULL, LINEAR), LINEAR)), "mamba2"),
        where(_HAS_EXPERTS, experts(**AS_WIDE, **COMPUTE, shared=shared(_GRANITE_SHARED))),
        {setting: when(_HAS_EXPERTS, None, source) for setting, source in GATED.items()},
        {"_experts": count("num_local_experts", 8), "d_ff": when(_HAS_EXPERTS, None, _GRANITE_SHARED)},
        {"positions": when(choice("position_embedding_type", {"rope": True, "nope": False}, False), rope(), "none")},
        only={"normalization_function": "rmsnorm"}, ignored={STARTS: "init_method"},
    ),
    # attention in one of every 8 layers, experts in every second, no positions
    "jamba": decoder(
        262144, KERNELS, GATED, mixed(every_nth(size("attn_layer_period", 8), count("attn_layer_offset", 4), FULL, LINEAR), "mamba"),
        where(_MANY_EXPERTS, experts(**AS_WIDE, normalize=False, **COMPUTE)), {"_experts": size("num_experts num_local_experts")},
        {"_sparse": when(_MANY_EXPERTS, every_nth(size("expert_layer_period", 2), count("expert_layer_offset", 1), True, False))},
        {"mamba.d_inner": times(size("mamba_expand", 2), same("d_model")), "mamba.d_state": size("mamba_d_state", 16)},
        {"mamba.d_conv": size("mamba_d_conv", 4), "mamba.dt_rank": dt_rank("mamba_dt_rank")},
        {"mamba.conv_bias": flag("mamba_conv_bias", True), "mamba.bias": flag("mamba_proj_bias"), "mamba.norms": True, "positions": "none"},
        own_kv_heads=True, only={"layers_block_type": (), "mamba_inner_layernorms": True},
        ignored={RUNS: "calc_logits_for_entire_prompt", UNREAD: "partial_rotary_factor"},
    ),
    "mamba": MAMBA,
    "mamba2": row(
        KERNELS, scan("mamba2", "rmsnorm"), tied(False),
        {"mamba2.d_inner": expanded("expand"), "mamba2.d_state": size("state_size", 128), "mamba2.n_heads": size("num_heads", 128)},
        {"mamba2.n_groups": size("n_groups", 8), "mamba2.d_conv": size("conv_kernel", 4), "mamba2.conv_bias": flag("use_conv_bias", True)},
        {"mamba2.bias": flag("use_bias"), "mamba2.chunk": size("chunk_size", 256)},
        only={"hidden_act": "silu", "head_dim": apply(floordiv, same("mamba2.d_inner"), same("mamba2.n_heads"))},
        ignored={UNREAD: "time_step_rank norm_before_gate"},
    ),
    # one of Mamba-2, attention, feed-forward or experts in each layer, under one norm
    "nemotron_h": row(
        KERNELS, tied(False), prediction("num_nextn_predict_layers"),
        {"vocab_size": size("vocab_size"), "context_length": size("max_position_embeddings", 4096), "d_model": size("hidden_size")},
        {"n_layers": size("num_hidden_layers", apply(len, same("_kinds"))), "n_heads": size("num_attention_heads")},
        {"n_kv_heads": size("num_key_value_heads", 8), "head_dim": size("head_dim attention_head_dim", 128)},
        {"attention.bias": flag("attention_bias"), "attention.qkv": "separate"},
        {"mamba2.d_inner": times(size("mamba_num_heads", 128), size("mamba_head_dim", 64)), "mamba2.d_state": size("ssm_state_size", 128)},
        {"mamba2.n_heads": size("mamba_num_heads", 128), "mamba2.n_groups": size("n_groups mamba_n_groups", 8)},
        {"mamba2.d_conv": size("conv_kernel mamba_d_conv", 4), "mamba2.conv_bias": flag("use_conv_bias mamba_conv_bias", True)},
        {"mamba2.chunk": size("chunk_size mamba_chunk_size", 128)},
        {"mamba2.bias": flag("use_bias"), "norm.type": "rmsnorm", "positions": "none", "feed_forward": when(_HAS_MLP, None, "none")},
        {"_kinds": code(_nemotron_kinds, *_LISTED, "hybrid_override_pattern"), "_unused": code(_no_biased_experts, _MLP_BIAS)},
        {"layers.mixers": by_kind(_NEMOTRON_LAYERS)}, where(_HAS_MOE, _NEMOTRON_EXPERTS),
        where(_HAS_MLP, {"d_ff": size("intermediate_size"), **feed_forward("plain", _MLP_ACTIVATION, _MLP_BIAS)}),
        only={
            "mamba_hidden_act": "silu", "num_hidden_layers": apply(len, same("_kinds")), "mamba_proj_bias": same("mamba2.bias"),
            "attention_bias": False, "tie_word_embeddings": False,  # the class and the published code disagree
        },
        ignored={
            ROUTES: ROUTING,
            UNREAD: (
                "expand time_step_rank mamba_d_state mamba_expand partial_rotary_factor mtp_hybrid_override_pattern mtp_layers_block_type "
                "n_shared_experts"
            ),
            RUNS: "moe_shared_expert_overlap",
        },
    ),
    # `intermediate_size` is twice the gated width, and the last projections have biases
    "recurrent_gemma": row(
        sizes(8192), tied(True),
        {"n_kv_heads": size("num_key_value_heads", same("n_heads")), "head_dim": divided(), "d_ff": half(size("intermediate_size"))},
        {"attention.bias": bias(flag("attention_bias"), True), "attention.qkv": "separate"},
        {"attention.window": window(2048, "attention_window_size"), "rg_lru.width": size("lru_width", same("d_model"))},
        feed_forward("gated", activation("hidden_activation", "gelu_tanh"), True),
        {"rg_lru.n_blocks": same("n_heads"), "rg_lru.d_conv": size("conv1d_width", 4), "norm.type": "rmsnorm", "norm.unit_offset": True},
        {"positions": rope(0.5), "embedding_scale": True, "head.logit_softcap": softcap("logits_soft_cap", 30.0)},
        {"layers.mixers": code(_griffin_mixers, "block_types")}, only={"head_dim": same("head_dim")},
        ignored={STARTS: "w_init_variance_scale final_w_init_variance_scale", UNREAD: "embeddings_scale_by_sqrt_dim _block_types"},
    ),
    # the first layer's extra norm is the embedding norm
    "rwkv": row(
        scan("rwkv", "layernorm"), tied(False),
        {"rwkv.width": size("attention_hidden_size", same("d_model")), "d_ff": size("intermediate_size", same("d_model", 4))},
        {"feed_forward": {"type": "rwkv"}, "embedding_norm": True}, ignored={RUNS: "rescale_every"},
    ),
    # mLSTM and a gated feed-forward in each layer
    "xlstm": row(
        scan("mlstm", "rmsnorm", "num_hidden_layers num_blocks"), tied(False),
        {"mlstm.n_heads": size("num_heads", 8), "mlstm.qk_dim": expanded("qk_dim_factor", 0.5)},
        {"mlstm.v_dim": expanded("v_dim_factor", 1.0), "head.logit_softcap": softcap("output_logit_soft_cap", 30.0)},
        {"d_ff": apply(_xlstm_width, same("d_model"), number("ffn_proj_factor", 2.667), size("ffn_round_up_to_multiple_of", 64))},
        {"feed_forward": {"type": "gated", "activation": "silu", "bias": False}},
        only={
            "add_qk_norm": False, "add_post_norm": False, "slstm_at": [], "use_bias": False, "weight_mode": ("single", "fused"),
            "add_out_norm": True, "embedding_dim": same("d_model"), "tie_word_embeddings": False,
        },
        ignored={
            RUNS: (
                "add_forward_backend_padding autocast_kernel_dtype chunk_size chunkwise_kernel force_bos_token_insert "
                "inference_state_dtype max_inference_chunksize mode norm_reduction_force_float32 num_chunks return_last_states "
                "sequence_kernel step_kernel"
            ),
            STARTS: "igate_bias_init_range", SCALES: "cell_norm_eps eps gate_soft_cap",
            UNREAD: "add_embedding_dropout add_post_blocks_norm head_dim mlstm_round_up_to_multiple_of qk_norm",
        },
    ),
}  # fmt: skip
