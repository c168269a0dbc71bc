"""Linear attention and short convolutions among attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importer.engine import Reading, Row, Settings, row
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import SpecModel, show
from planner.importer.types.moe import FACTORS, MINIMAX_POSITIONS
from planner.importer.types.scan import KERNELS, at, mixer_kinds


def delta_net(keys: Any = 16, values: Any = 32, key_dim: Any = 128, value_dim: Any = 128) -> Settings:  # sources, sizes
    """Return gated DeltaNet; the numbers are the class's defaults."""
    return {
        "gated_delta_net.n_key_heads": size("linear_num_key_heads", keys),
        "gated_delta_net.n_value_heads": size("linear_num_value_heads", values),
        "gated_delta_net.key_dim": size("linear_key_head_dim", key_dim),
        "gated_delta_net.value_dim": size("linear_value_head_dim", value_dim),
        "gated_delta_net.d_conv": size("linear_conv_kernel_dim", 4),
    }


GATE_BIAS = when(flag("attention_bias"), [tensor("self_attn.gate_proj.bias", ["n_heads*head_dim"], "attention")])

# Gated DeltaNet, and gated attention in the last of every four layers.
QWEN_HYBRID = decoder(
    32768, KERNELS, BIAS, HEAD_NORM, delta_net(),
    mixed(mixer_kinds(every(size("full_attention_interval", 4), others=LINEAR)), "gated_delta_net", {"extra": GATE_BIAS}),
    {"attention.output_gate": "element", "norm.unit_offset": True, "positions": rope(0.25)}, width=256, own_kv_heads=True,
    only={"attn_output_gate": True}, ignored={UNREAD: "output_gate_type"},
)  # fmt: skip


def _olmo_positions(c: Reading) -> str | SpecModel:
    """Return no positions if ``rope_theta`` is null, inside ``rope_parameters`` or else beside it; without the key it is 10,000."""
    inside = rope_parameters(c)
    place = inside if isinstance(inside, Mapping) and "rope_theta" in inside else c.config
    positions: str | SpecModel = "none" if place.get("rope_theta", 10000) is None else c.of(rope())
    return positions


_KDA = "linear_attn_config."


def _kimi_kinds(c: Reading) -> list[str]:
    """Return full attention in the listed layers, counted from 1, or in every fourth."""
    full, n = c.value(f"{_KDA}full_attn_layers"), c["n_layers"]
    if full is not None and not isinstance(full, list):
        raise c.refusal(f"`{_KDA}full_attn_layers: {show(full)}` is not a list")
    if full is not None and c.value(f"{_KDA}kda_layers") is not None:
        return [FULL if layer + 1 in full else LINEAR for layer in range(n)]
    return [FULL if layer and layer % 4 == 0 else LINEAR for layer in range(n)]


MINIMAX = decoder(
    131072, experts(**AS_WIDE),
    mixed(mixer_kinds(each("attn_type_list", {0: LINEAR, 1: FULL}, every(2, others=LINEAR, first=True))), "lightning_attention"),
    {"lightning_attention.n_heads": same("n_heads"), "lightning_attention.head_dim": same("head_dim"), "positions": MINIMAX_POSITIONS},
    {"lightning_attention.block": size("block_size", 256)},
    own_kv_heads=True, only={"shared_intermediate_size": 0},
    ignored={
        SCALES: (
            "full_attn_alpha_factor full_attn_beta_factor linear_attn_alpha_factor linear_attn_beta_factor mlp_alpha_factor "
            f"mlp_beta_factor {FACTORS}"
        ),
        UNREAD: "postnorm shared_moe_mode",
    },
)  # fmt: skip

# Short convolutions among attention.
LFM = decoder(
    128000, HEAD_NORM, feed_forward("gated", "silu", False), tied(True, "tie_embedding tie_word_embeddings"),
    {"d_ff": size("intermediate_size"), "short_convolution.d_conv": size("conv_L_cache", 3), "short_convolution.bias": flag("conv_bias")},
    own_kv_heads=True,
    ignored={
        UNREAD: "use_pos_enc theta conv_dim conv_dim_out block_dim block_norm_eps block_use_swiglu num_heads",
        STARTS: "conv_use_xavier_init block_mlp_init_scale block_out_init_scale block_use_xavier_init",
    },
)  # fmt: skip


def _lfm2_width(d_ff: int, factor: float, multiple: int) -> int:
    """Return two thirds of the configured width, rounded up."""
    return -(-int(factor * int(2 * d_ff / 3)) // multiple) * multiple


_BLOCK_WIDTH = size("block_ff_dim intermediate_size")
_ADJUSTED_WIDTH = apply(_lfm2_width, _BLOCK_WIDTH, number("block_ffn_dim_multiplier", 1.0), size("block_multiple_of", 256))
_FULL_LISTED = layer_numbers("full_attn_idxs", None)


def _lfm2_moe_kinds(c: Reading) -> list[str]:
    if c.of(_FULL_LISTED) is None:
        raise c.refusal("`layer_types` is missing")
    return list(c.of(at(_FULL_LISTED, CONV)))


def _lfm3_positions(kinds: list[str], sliding: Any, full: Any) -> list[SpecModel]:  # positions
    return [{"positions": sliding} if kind == SLIDING and sliding != full else {} for kind in kinds]


ROWS: Mapping[str, Row] = {
    # Kimi Delta Attention, and latent attention without positions in every fourth layer
    "kimi_linear": latent_decoder(
        1048576, None, deepseek(1), prediction("num_nextn_predict_layers"),
        mixed(mixer_kinds(code(_kimi_kinds, f"{_KDA}full_attn_layers", f"{_KDA}kda_layers")), "kimi_delta_attention"),
        {"context_length": size("max_position_embeddings", size("model_max_length", 1048576))},
        {"kimi_delta_attention.n_heads": size(f"{_KDA}num_heads", size("linear_num_heads", 32))},
        {"kimi_delta_attention.head_dim": size(f"{_KDA}head_dim", size("linear_head_dim", 128))},
        {"kimi_delta_attention.d_conv": size(f"{_KDA}short_conv_kernel_size", size("linear_conv_kernel_dim", 4)), "positions": "none"},
        only={"moe_router_activation_func": "sigmoid", "mla_use_nope": True, "tie_word_embeddings": False},
        ignored={UNREAD: "use_grouped_topk num_expert_group"},
    ),
    # gated DeltaNet, attention with windows and full attention in turns, experts in every layer
    "lara_mini": decoder(
        131072, BIAS, HEAD_NORM, delta_net(8, 16),
        {"_kinds": kinds(per_layer(lambda layer, _: (LINEAR, SLIDING, LINEAR, FULL, SLIDING)[layer % 5]), LINEAR)},
        {
            "layers.mixers": by_kind(
                {LINEAR: {"mixer": "gated_delta_net"}, SLIDING: {"attention": {"window": window(512)}}, FULL: NO_POSITIONS},
            ),
        },
        experts(normalize=normalized(True), **COMPUTE, shared=shared_width(512)), width=128, own_kv_heads=True, tie=True,
    ),
    # attention in the layers of `full_attn_idxs`
    "lfm2": row(
        LFM, mixed(kinds(at(_FULL_LISTED, CONV), CONV), "short_convolution"),
        {"d_ff": when(flag("block_auto_adjust_ff_dim", True), _ADJUSTED_WIDTH, _BLOCK_WIDTH)},
    ),
    "lfm2_moe": row(
        LFM, mixed(mixer_kinds(code(_lfm2_moe_kinds, _FULL_LISTED), CONV), "short_convolution"),
        experts(normalize=normalized(True), scoring="sigmoid", correction_bias=when(flag("use_expert_bias", True), "buffer")),
        {"_sparse": after(count("num_dense_layers", 2))}, ignored={SCALES: "routed_scaling_factor"},
    ),
    # norms on both sides, a gate for each head, windows among the attention
    "lfm3": row(
        LFM, BIAS,
        {"head_dim": head_dim(default=128), "short_convolution.d_conv": size("conv_L_cache", 7), "positions": rope(0.5, kind=FULL)},
        {"attention.output_gate": when(flag("use_attention_gate", True), "head", "none")},
        {"norm.placement": when(flag("use_sandwich_norm", True), "before_and_after", "before")},
        {"_kinds": kinds(per_layer(lambda layer, _: (SLIDING if layer else CONV, CONV, FULL, CONV)[layer % 4]), CONV)},
        {"layers.mixers": by_kind({CONV: {"mixer": "short_convolution"}, SLIDING: {"attention": {"window": window(256)}}})},
        {"layers.positions": apply(_lfm3_positions, same("_kinds"), rope(kind=SLIDING), same("positions"))},
    ),
    # lightning attention, and attention in every second or eighth layer
    "minimax": MINIMAX,
    "minimax_m1": MINIMAX,
    "minimax_text_01": MINIMAX,
    # gated DeltaNet with norms before, and OLMo 2's attention with norms after
    "olmo_hybrid": decoder(
        65536, GATED, BIAS,
        delta_net(
            same("n_heads"), same("n_heads"),
            apply(lambda d, heads: 3 * d // (4 * heads) or 1, same("d_model"), same("gated_delta_net.n_key_heads")),
            same("gated_delta_net.key_dim", 2),
        ),
        mixed(
            mixer_kinds(per_layer(lambda layer, n: FULL if (layer + 1) % min(n, 4) == 0 else LINEAR)), "gated_delta_net",
            {"norm": {"placement": "after"}},
        ),
        {"attention.qk_norm": "full_width", "positions": code(_olmo_positions, rope())},
        ignored={
            SCALES: "linear_allow_neg_eigval", STARTS: "linear_a_log_min linear_a_log_max linear_dt_min linear_dt_max linear_dt_init_floor",
        },
    ),
    "qwen3_5_text": row(
        QWEN_HYBRID, GATED, prediction("mtp_num_hidden_layers", copies=False),
        ignored={UNREAD: "mtp_use_dedicated_embeddings mlp_only_layers"},
    ),
    "qwen3_5_moe_text": row(
        QWEN_HYBRID, prediction("mtp_num_hidden_layers", copies=False), experts(**COMPUTE, shared=shared_width(512, gate=True)),
        ignored={UNREAD: "mtp_use_dedicated_embeddings norm_topk_prob decoder_sparse_step intermediate_size mlp_only_layers"},
    ),
    "qwen3_next": row(
        QWEN_HYBRID, where(SOME_DENSE, GATED), experts(normalize=normalized(True), **COMPUTE, shared=shared_width(512, gate=True)),
        {"_sparse": sparse_steps(layer_numbers("mlp_only_layers", []))},
    ),
}  # fmt: skip
