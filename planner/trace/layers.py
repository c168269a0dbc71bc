"""Layers: token mixers, feed-forwards and experts, the norms around them, and the residual stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, reduce

from planner.spec import records
from planner.spec.records import Extra, LatentAttention, Layer
from planner.trace import alternating, beside
from planner.trace import primitives as op
from planner.trace.attention import attention
from planner.trace.blocks import feed_forward, linear, norm
from planner.trace.cross_attention import cross_attention
from planner.trace.experts import experts
from planner.trace.implementation import Sublayer
from planner.trace.latent import latent_attention
from planner.trace.mixers.delta import gated_delta_net, kimi_delta_attention
from planner.trace.mixers.lightning import lightning_attention
from planner.trace.mixers.mamba import mamba
from planner.trace.mixers.mamba2 import mamba2
from planner.trace.mixers.mlstm import mlstm
from planner.trace.mixers.rg_lru import rg_lru
from planner.trace.mixers.rwkv import rwkv
from planner.trace.mixers.short_convolution import short_convolution
from planner.trace.positions import PositionTables
from planner.trace.tape import DECLARED, Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

MIXERS: dict[type[records.Mixer], Callable[..., Tensor]] = {
    records.Mamba: mamba,
    records.Mamba2: mamba2,
    records.GatedDeltaNet: gated_delta_net,
    records.KimiDeltaAttention: kimi_delta_attention,
    records.LightningAttention: lightning_attention,
    records.RgLru: rg_lru,
    records.Rwkv: rwkv,
    records.ShortConvolution: short_convolution,
    records.Mlstm: mlstm,
}
NORMS = {  # (before, after) the token mixer, (before, after) the feed-forward
    "before": (("input_layernorm", None), ("post_attention_layernorm", None)),
    "after": ((None, "post_attention_layernorm"), (None, "post_feedforward_layernorm")),
    "after_residual": ((None, "post_attention_layernorm"), (None, "post_feedforward_layernorm")),
    "before_and_after": (("input_layernorm", "post_attention_layernorm"), ("pre_feedforward_layernorm", "post_feedforward_layernorm")),
}

AROUND_CROSS = {
    "before": ("cross_attn_layernorm", None),
    "after": (None, "cross_attn_layernorm"),
    "after_residual": (None, "cross_attn_layernorm"),
    "before_and_after": ("cross_attn_layernorm", "post_cross_attn_layernorm"),
}


def decoder_layer(t: Tape, layer: Layer, positions: PositionTables, x: Tensor) -> Tensor:
    """One layer: token mixers and feed-forward, each with its norms, added to the residual stream [B, n, d_model]."""
    entered, t.returned = x, []
    t.declared = {f"{t.path}.{item.name}": item for item in layer.extra}
    mix = partial(token_mixer, t, layer, positions)
    again = t.recomputes("mlp") and not layer.experts
    feed = partial(feed_forward_block, t, layer, drops=not again)
    first = None  # of the streams of alternating updates
    if len(x.shape) == alternating.DIMENSIONS:
        x, first = alternating.layer(t, layer, x, mix, feed)
    elif layer.block == "sequential":
        around_mix, around_feed = NORMS[layer.norm_placement]
        around_mix = around_mix if layer.mixer_norm else (None, None)
        if layer.attention or layer.mixers:
            x = residual(t, layer, x, mix, *around_mix)
        if t.encoded:
            x = residual(
                t, layer, x, partial(cross_attention, t, layer, t.encoded, positions.of_cross), *AROUND_CROSS[layer.norm_placement]
            )
        if layer.feed_forward or layer.experts:
            feed = partial(beside.block, t, layer, x) if beside.declared(t, layer) else feed
            x = residual(t, layer, x, feed, *around_feed, checkpointed=again)
    else:
        before_mix = partial(norm, t, layer.norm, name="input_layernorm")
        before_feed = None if layer.block == "parallel_one_norm" else partial(norm, t, layer.norm, name="post_attention_layernorm")
        x = t.implementation.parallel(t, x, before_mix, before_feed, mix, feed)
    if positions.per_layer:
        own = layer_input(t, layer, first or x, positions.per_layer)
        x = alternating.with_layer_input(t, x, own) if first else op.add(t, x, own)
    if t.modules.layer_scalar:
        t.buffer("layer_scalar", (1,), t.precision.weights)
        x = op.scale_in_place(t, x)
    declare(t, t.declared.values(), x)
    op.keep_alive(t, entered, *t.returned)
    return x


def first_layer(t: Tape, layer: Layer, positions: PositionTables, x: Tensor) -> Tensor:
    """Run the first layer, which normalizes the embeddings in some classes."""
    if t.model.embedding_norm and t.modules.norm_in_first_layer:
        x = norm(t, t.model.norm, x, "pre_ln")
    return decoder_layer(t, layer, positions, x)


def recomputed(t: Tape, body: Sublayer, x: Tensor, *tables: Tensor) -> Tensor:
    """Run a layer. Full recomputation saves only its input and the tables that layers share, selective recomputation outputs too."""
    selective = t.training.recompute == "selective"
    if t.training.recompute == "none" or (selective and not t.implementation.saved_outputs):
        return body(x)
    if t.training.reentrant and not x.needs_grad:
        raise UnsupportedError("reentrant recomputation gives layers no gradients if their input needs none; write input_gradients: true")
    if t.training.reentrant:  # the graph holds the tables in the function that it calls
        for table in tables:
            op.keep_alive_until_step_end(table)
        return t.checkpoint(body, x, whole=True)
    return t.checkpoint(lambda x, *_: body(x), x, *tables, whole=t.implementation.recomputes_whole, selective=selective)


def layer_input(t: Tape, layer: Layer, x: Tensor, inputs: Tensor) -> Tensor:
    """Return the layer's own input, a slice of [B, n, n_layers, dim], gated by a projection of x, projected back and normalized."""
    B, n, d = x.shape
    with t.at("", "other"):
        gate = linear(t, x, inputs.shape[-1], "per_layer_input_gate", bias=False)
        (own,) = op.split(t, inputs, (B, n, inputs.shape[-1]))
        y = linear(t, t.implementation.gated(t, "gelu_tanh", gate, lambda: own), d, "per_layer_projection", bias=False)
        return norm(t, layer.norm, y, "post_per_layer_input_norm")


def residual(
    t: Tape, layer: Layer, x: Tensor, sublayer: Sublayer, before: str | None, after: str | None, *, checkpointed: bool = False
) -> Tensor:
    """Add a sublayer to x, with the named norms before and after it; ``after_residual`` normalizes the sum.

    ``checkpointed``: the norm before and the sublayer are recomputed, the dropout after them is not.
    """
    if checkpointed:
        y = t.checkpoint(lambda x: sublayer(norm(t, layer.norm, x, before) if before else x), x, whole=True)
        return op.add(t, x, t.implementation.drop(t, y))
    y = op.cast(t, x, t.precision.weights) if t.modules.residual_in_float32 else x
    y = norm(t, layer.norm, y, before) if before else y
    x = op.cast(t, x, "float32") if t.modules.residual_in_float32 else x
    normed, y = y, sublayer(y)
    if before == "input_layernorm":
        ends = {"none": [], "input": [normed], "output": [y], "both": [normed, y]}
        t.returned += ends[t.modules.keeps_ends]
    if before and (scale := t.declared_weight(f"{before.removesuffix('layernorm')}residual")):
        return op.add(t, op.multiply(t, scale, x), y)
    if after and layer.norm_placement != "after_residual":
        y = norm(t, layer.norm, y, after)
    x = op.add(t, op.mul_scalar(t, y), op.mul_scalar(t, x)) if t.modules.scales_residual else op.add(t, x, y)
    if after and layer.norm_placement == "after_residual":
        x = norm(t, layer.norm, x, after)
        op.keep_alive(t, *([y] if t.modules.keeps_ends == "both" else []))
        t.returned += [x] if t.modules.keeps_ends in ("output", "both") and after == "post_attention_layernorm" else []
    return x


def token_mixer(t: Tape, layer: Layer, positions: PositionTables, x: Tensor) -> Tensor:
    """Return the sum of the layer's token mixers, applied to x in parallel."""
    scaled = partial(op.mul_scalar, t) if t.modules.scales_mixers else lambda x: x
    made = []
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            made.append(latent_attention(t, mixer, layer, positions, x))
        else:
            made.append(scaled(MIXERS[type(mixer)](t, mixer, x)))
    if layer.attention:
        made.append(scaled(attention(t, layer.attention, layer, positions, scaled(x))))
    return reduce(partial(op.add, t), made)


def feed_forward_block(t: Tape, layer: Layer, x: Tensor, *, drops: bool = True) -> Tensor:
    """Return the feed-forward of x, the experts, or their sum; ``drops``: with dropout."""
    made = [feed_forward(t, layer.feed_forward, x, drops=drops)] if layer.feed_forward else []
    if layer.experts:
        route = partial(experts, t, layer.experts)
        routed = t.checkpoint(route, x, whole=True) if t.recomputes("moe") else route(x)
        made.append(t.implementation.drop(t, routed) if t.implementation.experts else routed)
    return reduce(partial(op.add, t), made)


def declare(t: Tape, extra: Iterable[Extra], x: Tensor) -> None:
    """Store the tensors declared under ``extra``, and multiply each token by them ``uses`` times."""
    for item in extra:
        with t.at("", item.component):
            w = t.weight(item.name, item.shape, DECLARED)
            if item.uses:
                op.declared(t, x, w, item.uses)
