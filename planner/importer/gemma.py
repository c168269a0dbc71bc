"""Gemma 3n and Gemma 4: a second token table that feeds every layer, and layers that share another's keys and values."""

from __future__ import annotations

from planner.importer.dense import every, gemma_activation, layer_kinds
from planner.importer.parts import (
    FULL,
    SLIDING,
    by_layer,
    gated,
    head_of,
    norm_of,
    rope,
    sizes,
    softcap_of,
    window_of,
    windows,
    with_layers,
)
from planner.importer.reader import MAX_LAYERS, Reader, SpecModel


def _shared(c: Reader, kinds: list[str], default: int) -> list[bool]:
    """Return which layers use another's keys and values: the last ``num_kv_shared_layers``."""
    n = len(kinds)
    first = n - c.count("num_kv_shared_layers", default=default)
    if first < 0 or not set(kinds) <= set(kinds[: max(first, 0)]):
        raise c.refusal("`num_kv_shared_layers` leaves a kind of layer without one that has keys and values of its own")
    return [layer >= first for layer in range(n)]


def _base(c: Reader, *, softcap: float | None, d_ff: int, context: int) -> SpecModel:
    read = sizes(c, context=context)
    head_dim = c.size("head_dim", default=256)
    return {
        **read,
        "n_kv_heads": c.size("num_key_value_heads"),
        "head_dim": head_dim,
        "d_ff": d_ff,
        "attention": {"bias": c.flag("attention_bias", default=False), "qk_norm": "head_dim", "qkv": "separate"},
        "feed_forward": gated(c, activation=gemma_activation(c)),
        "norm": norm_of("rmsnorm", placement="before_and_after"),
        "positions": rope(c, head_dim, kind=SLIDING),
        "embedding_scale": True,
        "head": head_of(c, tied=True, softcap=softcap),
    }


def _per_layer_embedding(c: Reader, default: int) -> SpecModel:
    dim = c.count("hidden_size_per_layer_input", default=default)
    rows = c.size("vocab_size_per_layer_input", default=262144)
    return {"per_layer_embedding": {"vocab_size": rows, "dim": dim}} if dim else {}


def gemma3n(c: Reader) -> SpecModel:
    """Read Gemma 3n's text model, with AltUp and LAuReL as declared tensors.

    The published weights hold keys and values of layers that use another's, too; nothing reads them.
    """
    c.ignore("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "activation_sparsity_pattern", "query_pre_attn_scalar")
    c.require("enable_moe_block", False)
    n = c.layers("num_hidden_layers")
    widths = c.sizes("intermediate_size", n, 16384)
    model = _base(c, softcap=softcap_of(c, "final_logit_softcapping", 30.0), d_ff=widths[0], context=32768)
    c.note("AltUp and LAuReL are counted as declared tensors; the sparsity of the first layers' activations is not counted")
    inputs, rank = c.size("altup_num_inputs", default=4), c.size("laurel_rank", default=64)
    if inputs > MAX_LAYERS:
        raise c.refusal(f"`altup_num_inputs: {inputs}` is more than any model has")
    once = [
        {"name": f"{name}.{number}", "shape": ["d_model", "d_model"], "component": "other", "uses": 1}
        for name in ("altup_projections", "altup_unembed_projections")
        for number in range(inputs - 1)
    ]
    each = [
        {"name": "altup.correct_output_scale", "shape": ["d_model"], "component": "other"},
        {"name": "altup.correction_coefs", "shape": [inputs, inputs], "component": "other", "uses": 1},
        {"name": "altup.prediction_coefs", "shape": [inputs * inputs, inputs], "component": "other", "uses": 1},
        {"name": "altup.modality_router", "shape": [inputs, "d_model"], "component": "other", "uses": 2},
        {"name": "altup.router_norm", "shape": ["d_model"], "component": "norm"},
        {"name": "laurel.linear_left", "shape": [rank, "d_model"], "component": "other", "uses": 1},
        {"name": "laurel.linear_right", "shape": ["d_model", rank], "component": "other", "uses": 1},
        {"name": "laurel.post_laurel_norm", "shape": ["d_model"], "component": "norm"},
    ]
    unread = [
        {"name": "self_attn.k_proj_unused", "shape": ["n_kv_heads*head_dim", "d_model"], "component": "attention"},
        {"name": "self_attn.v_proj_unused", "shape": ["n_kv_heads*head_dim", "d_model"], "component": "attention"},
        {"name": "self_attn.k_norm_unused", "shape": ["head_dim"], "component": "norm"},
    ]
    kinds = layer_kinds(c, n, every(5, n))
    reuse: SpecModel = {"attention": {"shared_kv": True}, "extra": [*each, *unread]}
    shared = [reuse if one else {"extra": each} for one in _shared(c, kinds, 15)]
    own: list[SpecModel] = [{} if width == widths[0] else {"d_ff": width} for width in widths]
    model |= _per_layer_embedding(c, 256) | {"extra": once}
    return with_layers(model, by_layer(windows(kinds, window_of(c, 512)), shared, own))


def gemma4(c: Reader) -> SpecModel:
    """Read Gemma 4's text model: full layers have wider heads, may use keys as values, and half of the layers may share theirs."""
    c.require("use_bidirectional_attention", "vision", False)
    c.ignore("expert_intermediate_size", "query_pre_attn_scalar")
    model = _base(c, softcap=softcap_of(c, "final_logit_softcapping"), d_ff=c.size("intermediate_size"), context=131072)
    n = model["n_layers"]
    kinds = layer_kinds(c, n, every(6, n))
    kinds[-1] = FULL  # as the class does, whatever the file says
    shared = _shared(c, kinds, 0)
    keys_as_values = c.flag("attention_k_eq_v", default=False)
    wide = c.size("global_head_dim", default=512)
    heads = c.count("num_global_key_value_heads")
    full: SpecModel = {"attention": {"keys_as_values": True}} if keys_as_values else {}
    double = c.flag("use_double_wide_mlp", default=False)
    reuse: SpecModel = {"attention": {"shared_kv": True}} | ({"d_ff": 2 * model["d_ff"]} if double else {})
    wide_layer = (wide, heads if keys_as_values else 0)
    geometry = _geometry(c, kinds, (model["head_dim"], 0), wide_layer)
    layers = by_layer(windows(kinds, window_of(c, 512), full=full), geometry, [reuse if one else {} for one in shared])
    model |= _per_layer_embedding(c, 256)
    if c.flag("enable_moe_block", default=False):
        model, layers = _with_experts(c, model, layers)
    c.ignore("num_experts", "top_k_experts", "moe_intermediate_size")
    return with_layers(model, layers)


def _geometry(c: Reader, kinds: list[str], sliding: tuple[int, int], full: tuple[int, int]) -> list[SpecModel]:
    """Return head_dim, key heads and rotation of each layer: by its kind, or as ``per_layer_config`` says for it."""
    given = c.section("per_layer_config")
    layers: list[SpecModel] = []
    for number, kind in enumerate(kinds):
        head_dim, heads = full if kind == FULL and not given.config else sliding
        own = given.section(str(number))
        head_dim = own.size("head_dim", default=head_dim)
        heads = own.count("num_key_value_heads", default=heads)
        own.refuse_unread()
        layer: SpecModel = {"n_kv_heads": heads} if heads else {}
        if head_dim != sliding[0]:
            layer |= {"head_dim": head_dim}
        if kind == FULL:
            layer |= {"positions": rope(c, head_dim, fraction=0.25, kind=FULL)}
        layers.append(layer)
    return layers


def _with_experts(c: Reader, model: SpecModel, layers: list[SpecModel]) -> tuple[SpecModel, list[SpecModel]]:
    """Return the model with experts beside each feed-forward; their norms and the router's scales are declared tensors."""
    experts = {
        "count": c.size("num_experts"),
        "top_k": c.size("top_k_experts"),
        "d_ff": c.size("moe_intermediate_size", "expert_intermediate_size"),
        "activation": model["feed_forward"]["activation"],
        "beside_feed_forward": True,
    }
    extra = [
        {"name": "router.scale", "shape": ["d_model"], "component": "router"},
        {"name": "router.per_expert_scale", "shape": [experts["count"]], "component": "router"},
        *(
            {"name": name, "shape": ["d_model"], "component": "norm"}
            for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
        ),
    ]
    return {**model, "experts": experts}, by_layer(layers, [{"extra": extra}] * len(layers))
