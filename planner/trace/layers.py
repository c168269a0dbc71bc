"""Layers: mixers, feed-forwards and experts, the norms around them, and the residual stream that they add to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from planner.spec.records import (
    Extra,
    GatedDeltaNet,
    KimiDeltaAttention,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    Mlstm,
    RgLru,
    Rwkv,
    ShortConvolution,
)
from planner.trace import mixers
from planner.trace import primitives as op
from planner.trace.attention import attention
from planner.trace.blocks import feed_forward, linear, norm
from planner.trace.experts import experts
from planner.trace.latent import latent_attention
from planner.trace.positions import Places
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

MIXERS: dict[type[Mixer], Callable[..., Tensor]] = {
    Mamba: mixers.mamba,
    Mamba2: mixers.mamba2,
    GatedDeltaNet: mixers.gated_delta_net,
    KimiDeltaAttention: mixers.kimi_delta_attention,
    LightningAttention: mixers.lightning_attention,
    RgLru: mixers.rg_lru,
    Rwkv: mixers.rwkv,
    ShortConvolution: mixers.short_convolution,
    Mlstm: mixers.mlstm,
}
NORMS = {  # of a sublayer before and after: the mixers', the feed-forward's
    "before": (("input_layernorm", None), ("post_attention_layernorm", None)),
    "after": ((None, "post_attention_layernorm"), (None, "post_feedforward_layernorm")),
    "after_residual": ((None, "post_attention_layernorm"), (None, "post_feedforward_layernorm")),
    "before_and_after": (
        ("input_layernorm", "post_attention_layernorm"),
        ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
    ),
}


def decoder_layer(t: Tape, layer: Layer, places: Places, x: Tensor) -> Tensor:
    """One layer: what mixes tokens and what works on each, each with its norms, added to the residual stream [B, n, d_model]."""
    entered, t.returned = x, []
    mix = partial(mixing, t, layer, places)
    feed = partial(feeding, t, layer)
    if layer.block == "sequential":
        around_mix, around_feed = NORMS[layer.norm_placement]
        if layer.attention or layer.mixers:
            x = residual(t, layer, x, mix, *around_mix)
        if layer.feed_forward or layer.experts:
            x = residual(t, layer, x, feed, *around_feed)
    else:
        first = partial(norm, t, layer.norm, name="input_layernorm")
        second = partial(norm, t, layer.norm, name="post_attention_layernorm")
        x = t.implementation.parallel(t, x, first, None if layer.block == "parallel_one_norm" else second, mix, feed)
    if places.per_layer:
        x = with_layer_input(t, layer, x, places.per_layer)
    declare(t, layer.extra, x)
    op.hold(t, entered, *t.returned)
    return x


def recomputed(t: Tape, body: Callable[[Tensor], Tensor], x: Tensor, *tables: Tensor) -> Tensor:
    """Run a layer; full recomputation keeps only its input and the tables that layers share."""
    if t.training.recompute != "full":
        return body(x)
    return t.checkpoint(lambda x, *_: body(x), x, *tables, whole=t.implementation.recomputes_whole)


def with_layer_input(t: Tape, layer: Layer, x: Tensor, inputs: Tensor) -> Tensor:
    """Add what the layer's own input [B, n, n_layers, dim] makes of x: gated by a projection of x, projected back, normed (Gemma 3n)."""
    B, n, d = x.shape
    with t.at("", "other"):
        gate = linear(t, x, inputs.shape[-1], "per_layer_input_gate", bias=False)
        (own,) = op.split(t, inputs, (B, n, inputs.shape[-1]))
        y = linear(t, t.implementation.gated(t, "gelu_tanh", gate, lambda: own), d, "per_layer_projection", bias=False)
        return op.add(t, x, norm(t, layer.norm, y, "post_per_layer_input_norm"))


def residual(
    t: Tape,
    layer: Layer,
    x: Tensor,
    sublayer: Callable[[Tensor], Tensor],
    before: str | None,
    after: str | None,
) -> Tensor:
    """Add a sublayer to x, with the norms named before and after it; ``after_residual`` norms the sum."""
    y = sublayer(norm(t, layer.norm, x, before) if before else x)
    if after and layer.norm_placement != "after_residual":
        y = norm(t, layer.norm, y, after)
    x = op.add(t, x, y)
    return norm(t, layer.norm, x, after) if after and layer.norm_placement == "after_residual" else x


def mixing(t: Tape, layer: Layer, places: Places, x: Tensor) -> Tensor:
    """Return the sum of the layer's mixers, side by side on x."""
    made = [attention(t, layer.attention, layer, places, x)] if layer.attention else []
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            made.append(latent_attention(t, mixer, layer, places, x))
        else:
            made.append(MIXERS[type(mixer)](t, mixer, x))
    return added(t, made)


def feeding(t: Tape, layer: Layer, x: Tensor) -> Tensor:
    """Return the feed-forward, the experts, or their sum, on x."""
    made = [feed_forward(t, layer.feed_forward, x)] if layer.feed_forward else []
    if layer.experts:
        made.append(experts(t, layer.experts, x))
    return added(t, made)


def added(t: Tape, tensors: list[Tensor]) -> Tensor:
    """Return the sum of one or more tensors."""
    total, *others = tensors
    for other in others:
        total = op.add(t, total, other)
    return total


def declare(t: Tape, extra: Iterable[Extra], x: Tensor) -> None:
    """Store the tensors that the user declares, and multiply each token by them as often as they say."""
    for item in extra:
        with t.at("", item.component):
            w = t.weight(item.name, item.shape, "declared by the spec")
            if item.uses:
                op.declared(t, x, w, item.uses)
