"""Gemma 3n and Gemma 4: per-layer embeddings, and layers that reuse keys and values of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importer.engine import Reading, Row, Settings
from planner.importer.keys import *
from planner.importer.neutral import *
from planner.importer.parts import *
from planner.importer.reader import SpecModel, show
from planner.importer.types.dense import directions, gemma_activation, halved


def shares(default: int) -> Source:
    """Return which layers reuse keys and values: the last ``num_kv_shared_layers``."""
    number = count("num_kv_shared_layers", default)

    def shared(c: Reading) -> list[bool]:
        which = c["_kinds"]
        first = len(which) - c.of(number)
        if first < 0 or not set(which) <= set(which[:first]):
            raise c.refusal("`num_kv_shared_layers` leaves a kind of layer without one that has keys and values of its own")
        return [layer >= first for layer in range(len(which))]

    return code(shared, number)


def gemma(context_length: int, cap: float | None, *parts: Row | Settings, **more: Any) -> Row:  # of ``row``
    """Return a decoder with the common parts of Gemma 3n and 4."""
    rows = size("vocab_size_per_layer_input", 262144)
    dim = count("hidden_size_per_layer_input", 256)
    base: Settings = {
        "n_kv_heads": size("num_key_value_heads"),
        "head_dim": size("head_dim", 256),
        "feed_forward.activation": gemma_activation(),
        "positions": rope(kind=SLIDING),
        "embedding_scale": True,
        "head.logit_softcap": softcap("final_logit_softcapping", cap),
        "per_layer_embedding": when(dim, {"vocab_size": rows, "dim": dim}),
    }
    return decoder(context_length, GATED, BIAS, HEAD_NORM, BOTH_SIDES, base, *parts, tie=True, **more)


# Gemma 3n: AltUp and LAuReL as declared tensors. The published weights contain unused key and value projections, too.
INPUTS, RANK = size("altup_num_inputs", 4), size("laurel_rank", 64)
WIDTHS = each_size("intermediate_size", 16384)
SPARSE = 10  # the first layers


def _altup(c: Reading) -> list[SpecModel]:
    inputs = c.of(INPUTS)
    if inputs > MAX_LAYERS:
        raise c.refusal(f"`altup_num_inputs: {inputs}` is more than any model has")
    names = ("altup_projections", "altup_unembed_projections")
    return [tensor(f"{name}.{n}", ["d_model", "d_model"], "other", uses=1) for name in names for n in range(inputs - 1)]


def _3n_layers(c: Reading) -> list[SpecModel]:
    inputs, rank = c.of(INPUTS), c.of(RANK)
    each = [
        tensor("altup.correct_output_scale", ["d_model"], "other"),
        tensor("altup.correction_coefs", [inputs, inputs], "other", uses=1),
        tensor("altup.prediction_coefs", [inputs * inputs, inputs], "other", uses=1),
        tensor("altup.modality_router", [inputs, "d_model"], "other", uses=2),
        tensor("altup.router_norm", ["d_model"], "norm"),
        tensor("laurel.linear_left", [rank, "d_model"], "other", uses=1),
        tensor("laurel.linear_right", ["d_model", rank], "other", uses=1),
        tensor("laurel.post_laurel_norm", ["d_model"], "norm"),
    ]
    unread = [
        tensor("self_attn.k_proj_unused", ["n_kv_heads*head_dim", "d_model"], "attention"),
        tensor("self_attn.v_proj_unused", ["n_kv_heads*head_dim", "d_model"], "attention"),
        tensor("self_attn.k_norm_unused", ["head_dim"], "norm"),
    ]
    reuse: SpecModel = {"attention": {"shared_kv": True}, "extra": [*each, *unread]}
    return [reuse if one else {"extra": each} for one in c.of(shares(15))]


def _sparse(c: Reading) -> list[SpecModel]:
    """Return which layers are sparse: by default the first 10 of more."""
    given, n = c.value("activation_sparsity_pattern"), c["n_layers"]
    if given is None:
        given = [0.95 * (layer < SPARSE < n) for layer in range(n)]
    shares = given if isinstance(given, list) else [given] * n
    if len(shares) != n or not all(isinstance(share, int | float) for share in shares):
        raise c.refusal(f"`activation_sparsity_pattern` must be a number, or a list of one for each of {n} layers")
    return [{"feed_forward": {"sparse": True}} if share > 0 else {} for share in shares]


# Gemma 4: full layers have wider heads and may use keys as values; layers may reuse keys and values.
KEYS_AS_VALUES = flag("attention_k_eq_v")
WIDE, WIDE_HEADS = size("global_head_dim", 512), count("num_global_key_value_heads")
HAS_EXPERTS = flag("enable_moe_block")
BOTH_WAYS = choice("use_bidirectional_attention", {"all": True, "vision": False, False: False}, False)


def _full_last(c: Reading) -> list[str]:
    return [*c.of(kinds(every(6)))[:-1], FULL]  # as in the class, for any value of the key


def _geometry(c: Reading) -> list[SpecModel]:
    """Return head_dim, KV heads and rotation of each layer: by its kind, or by ``per_layer_config``."""
    given = by_number(c, "per_layer_config", c["n_layers"])
    if given is None and c.has("per_layer_config"):
        given = {}  # null: no layer has settings of its own
    full = (c.of(WIDE), c.of(WIDE_HEADS) if c.of(KEYS_AS_VALUES) else 0)
    made: list[SpecModel] = []
    for layer, kind in enumerate(c["_kinds"]):
        head_dim, heads = full if kind == FULL and given is None else (c["head_dim"], 0)
        own = (given or {}).get(layer, {})
        if set(own) - {"head_dim", "num_key_value_heads"}:
            raise c.refusal(f"`per_layer_config`: {show(own)} of layer {layer} has keys other than head_dim and num_key_value_heads")
        head_dim = positive(c, "head_dim", own.get("head_dim", head_dim))
        heads = positive(c, "num_key_value_heads", own.get("num_key_value_heads", heads or c["n_kv_heads"]))
        own_sizes: SpecModel = {} if heads == c["n_kv_heads"] else {"n_kv_heads": heads}
        own_sizes |= {} if head_dim == c["head_dim"] else {"head_dim": head_dim}
        made.append(own_sizes | ({"positions": rotary(c, head_dim, 0.25, "partial_rotary_factor", FULL)} if kind == FULL else {}))
    return made


def _router(c: Reading) -> list[SpecModel]:
    """Return the experts' norms and the router's scales."""
    norms = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
    return [
        tensor("router.scale", ["d_model"], "router"),
        tensor("router.per_expert_scale", [c["experts.count"]], "router"),
        *(tensor(name, ["d_model"], "norm") for name in norms),
    ]


REUSE: SpecModel = {"attention": {"shared_kv": True}, "d_ff": when(flag("use_double_wide_mlp"), same("d_ff", 2))}
EXPERTS = experts(
    number="num_experts", top_k="top_k_experts", d_ff="moe_intermediate_size expert_intermediate_size",
    activation=same("feed_forward.activation"), beside_feed_forward=True,
)  # fmt: skip

ROWS: Mapping[str, Row] = {
    "gemma3n_text": gemma(
        32768, 30.0, windowed(kinds(every(5)), window(512)), {"_unused": size("hidden_size_per_layer_input", 256)},
        {"d_ff": code(lambda c: c.of(WIDTHS)[0], WIDTHS), "extra": code(_altup, INPUTS)},
        {"layers.shared": code(_3n_layers, INPUTS, RANK, shares(15))},
        {"layers.widths": code(lambda c: [{} if width == c["d_ff"] else {"d_ff": width} for width in c.of(WIDTHS)], WIDTHS)},
        {"layers.sparse": code(_sparse, "activation_sparsity_pattern")},
        only={"enable_moe_block": False},
        ignored={SCALES: "altup_coef_clip altup_correct_scale query_pre_attn_scalar", RUNS: "altup_active_idx"},
        notes=("activations of AltUp and LAuReL count under implementation transformers only",),
    ),
    "gemma4_text": gemma(
        131072, None,
        windowed(
            code(_full_last, kinds(every(6))), when(BOTH_WAYS, apply(halved, window(512)), window(512)),
            {"attention": {"keys_as_values": when(KEYS_AS_VALUES, True)}},
        ),
        directions(BOTH_WAYS),
        {"layers.geometry": code(_geometry, "per_layer_config", WIDE, WIDE_HEADS, KEYS_AS_VALUES, rope(0.25, kind=FULL))},
        {"layers.shared": marked(shares(0), {}, REUSE)}, where(HAS_EXPERTS, {**EXPERTS, "layers.extra": code(_router)}),
        ignored={SCALES: "query_pre_attn_scalar"},
    ),
}  # fmt: skip
