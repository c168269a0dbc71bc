"""Alternating updates (AltUp) and the learned augmented residual (LAuReL) of Gemma 3n.

Baykal et al. 2023 (arXiv:2301.13310); Menghani et al. 2024 (arXiv:2411.07501). Read from transformers 5.24,
models/gemma3n/modeling_gemma3n.py. A spec declares their weights under ``extra``. The residual stream is [I, B, n, d], with I inputs of
each layer: the layer mixes them to predictions, runs on the first one, and corrects all of them by its result.
"""

from __future__ import annotations

from planner.spec.precision import Dtype
from planner.spec.records import Layer, Model
from planner.trace import primitives as op
from planner.trace.blocks import norm
from planner.trace.implementation import Sublayer
from planner.trace.nodes import Saved
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

# The names of declared weights, with their dimensions.
OF_MODEL = {("altup_projections.0", 2), ("altup_unembed_projections.0", 2)}
OF_LAYER = {
    ("altup.correct_output_scale", 1), ("altup.correction_coefs", 2), ("altup.prediction_coefs", 2), ("altup.modality_router", 2),
    ("altup.router_norm", 1), ("laurel.linear_left", 2), ("laurel.linear_right", 2), ("laurel.post_laurel_norm", 1),
}  # fmt: skip
DIMENSIONS = 4  # of the residual stream


def alternates(t: Tape, model: Model) -> bool:
    """Return whether the spec declares all weights of alternating updates, which only transformers runs."""
    layers = (layer for run in model.runs for layer in run.layers)
    declared = [(model.extra, OF_MODEL), *((layer.extra, OF_LAYER) for layer in layers)]
    complete = all(names <= {(item.name, len(item.shape)) for item in extra} for extra, names in declared)
    return complete and t.training.implementation.startswith("transformers")


def expanded(t: Tape, x: Tensor) -> Tensor:
    """Return the embedded tokens [B, n, d] and their projections, rescaled to their magnitude: [I, B, n, d]."""
    if t.implementation.constant_buffers:
        for name in ("per_layer_projection_scale", "per_layer_input_scale"):
            t.buffer(name, (), t.precision.weights)
    with t.at("", "other"):
        target = magnitude(t, x)
        others = [rescaled(t, op.cast(t, op.linear(t, x, w), x.dtype), target) for w in projections(t, "altup_projections")]
        op.keep_alive(t, target, *others)
        return stacked(t, x, *others)


def merged(t: Tape, x: Tensor, dtype: Dtype) -> Tensor:
    """Return the mean [B, n, d] of the streams [I, B, n, d], each but the first projected and rescaled to the first one's magnitude."""
    with t.at("", "other"):
        first = selected(t, x)
        target = magnitude(t, first)
        weights = projections(t, "altup_unembed_projections")
        others = [rescaled(t, op.cast(t, op.linear(t, selected(t, x), w), dtype), target) for w in weights]
        op.keep_alive(t, x, target, *others)
        every = stacked(t, first, *others)
        return t.record("mean", [every], [t.tensor(first.shape, every.dtype)], by=merged)[0]


def projections(t: Tape, name: str) -> list[Tensor]:
    """Return the declared projections of all streams but the first."""
    weights: list[Tensor] = []
    while w := t.declared_weight(f"{name}.{len(weights)}", 2):
        weights.append(w)
    return weights


def layer(t: Tape, its: Layer, x: Tensor, mix: Sublayer, feed: Sublayer) -> tuple[Tensor, Tensor]:
    """Predict, run the layer on the first prediction with LAuReL beside attention, and correct.

    Return the corrected streams [I, B, n, d], and the first one scaled [B, n, d].
    """
    weights = {name: w for name, dimensions in sorted(OF_LAYER) if (w := t.declared_weight(name, dimensions))}
    if t.implementation.constant_buffers:
        t.buffer("altup.router_input_scale", (), t.precision.weights)
    predictions = predicted(t, its, weights, x)
    active = selected(t, predictions)
    normed = norm(t, its.norm, active, "input_layernorm")
    beside = laurel(t, its, weights, normed)
    mixed = norm(t, its.norm, mix(normed), "post_attention_layernorm")
    gated = op.add(t, active, mixed)
    both = op.mul_scalar(t, op.add(t, gated, beside))
    before = norm(t, its.norm, both, "pre_feedforward_layernorm")
    fed = feed(before)
    fed_normed = norm(t, its.norm, fed, "post_feedforward_layernorm")
    made = corrected(t, its, weights, predictions, op.add(t, both, fed_normed))
    with t.at("altup", "other"):
        copy = copied(t, selected(t, made))
        first = op.cast(t, op.multiply(t, copy, weights["altup.correct_output_scale"]), copy.dtype)
    t.returned += [predictions, normed, beside, mixed, gated, both, before, fed, fed_normed]  # variables of the layer
    return made, first


def with_layer_input(t: Tape, x: Tensor, own: Tensor) -> Tensor:
    """Add a layer's own input [B, n, d] to all streams [I, B, n, d] but the first, in place."""
    with t.at("altup", "other"):
        made = Tensor(x.shape, x.dtype, x.parts, needs_grad=x.needs_grad)
        return t.record("add_", [x, own], [made], elementwise=True, by=with_layer_input)[0]


def predicted(t: Tape, its: Layer, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """Mix the streams [I, B, n, d] by I² coefficients per token, and add them."""
    every, B, n, d = x.shape
    modalities = routed(t, its, weights, selected(t, x))
    with t.at("altup", "other"):
        coefficients = op.linear(t, modalities, weights["altup.prediction_coefs"])
        with t.inside_scan():  # no convention counts it
            mixed = op.matmul(t, x.view(B, n, d, every), coefficients.view(B, n, every, every), pairs=False)
        total = op.add_in_place(t, mixed.view(every, B, n, d), x)
        return op.cast(t, copied(t, total), x.dtype)


def corrected(t: Tape, its: Layer, weights: dict[str, Tensor], predictions: Tensor, activated: Tensor) -> Tensor:
    """Add to each prediction what the layer has added to the first one, times a coefficient per token."""
    every, B, n, _ = predictions.shape
    modalities = routed(t, its, weights, activated)
    with t.at("altup", "other"):
        difference = op.add(t, activated, selected(t, predictions))
        repeated = op.expand(t, difference, predictions.shape, 1)
        coefficients = op.add_scalar(t, op.linear(t, modalities, op.clamp(t, weights["altup.correction_coefs"])))
        made = op.multiply(t, repeated, coefficients.view(every, B, n, 1))
        op.keep_alive(t, modalities, repeated, coefficients)
        return op.cast(t, op.add_in_place(t, made, predictions), activated.dtype)


def routed(t: Tape, its: Layer, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the hyperbolic tangent, in float32, of a projection of x [B, n, d] to I numbers."""
    with t.at("altup", "other"):
        normed = op.mul_scalar(t, t.implementation.norm(t, x, its.norm, weights["altup.router_norm"], None))
        made = op.linear(t, normed, weights["altup.modality_router"])
        return op.cast(t, op.tanh(t, op.cast(t, made, "float32")), x.dtype)


def laurel(t: Tape, its: Layer, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """Add to x [B, n, d] its projection of low rank, normalized."""
    with t.at("laurel", "other"):
        low = op.linear(t, op.linear(t, x, weights["laurel.linear_left"]), weights["laurel.linear_right"])
        return op.add(t, x, t.implementation.norm(t, low, its.norm, weights["laurel.post_laurel_norm"], None))


def magnitude(t: Tape, x: Tensor) -> Tensor:
    """Return the root mean square of each row of x [B, n, d]: a mean of squares to the power 0.5."""
    return op.power(t, op.mean(t, op.power(t, x)))


def rescaled(t: Tape, x: Tensor, target: Tensor) -> Tensor:
    """Return x [B, n, d] with another root mean square."""
    its_own = op.clamp(t, op.mean(t, op.power(t, x)))
    root = op.like(t, its_own)
    t.record("sqrt", [its_own], [root], [Saved(root, "output")], by=rescaled)
    return op.divide(t, op.multiply(t, x, target), root)


def stacked(t: Tape, *streams: Tensor) -> Tensor:
    """Copy I tensors [B, n, d] into one [I, B, n, d]. Its gradient is split into views."""
    made = t.tensor((len(streams), *streams[0].shape), op.promote(*streams))
    return t.record("stack", streams, [made], passes_gradient=True, views_gradient=True, by=stacked)[0]


def selected(t: Tape, x: Tensor) -> Tensor:
    """Return one stream, a view of all [I, B, n, d]. Its gradient is copied into zeros."""
    return t.record("select", [x], [Tensor(x.shape[1:], x.dtype, x.parts, needs_grad=x.needs_grad)], by=selected)[0]


def copied(t: Tape, x: Tensor) -> Tensor:
    """Copy x."""
    return t.record("clone", [x], [op.like(t, x)], passes_gradient=True, by=copied)[0]
