"""Norms, linears and feed-forwards.

Shapes: x is [B, n, d_model]. Weights are named as in transformers' Llama, so that they can be found in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.spec.records import FeedForward, Norm
from planner.trace import packed, trained
from planner.trace import primitives as op
from planner.trace.adapters import adapted, scaled, scaled_beside_packed
from planner.trace.collectives import enter, leave, partial_gradient
from planner.trace.nodes import Saved
from planner.trace.packed import packing_of
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def norm(t: Tape, kind: Norm, x: Tensor, name: str, *, heads: Size | None = None, of_heads: bool = False) -> Tensor:
    """Normalize the last dimension of x. Stores a weight and a bias of its size if the norm has them, or one of each per head.

    ``of_heads``: x has the device's part of the heads.

    Reads a bias that the spec declares under ``extra``, as ``linear`` does.
    """
    shape = (x.shape[-1],) if heads is None else (heads, x.shape[-1])
    with t.at(name, "norm"):
        weight = t.weight("weight", shape, "scale of a norm") if kind.weight else None
        bias = t.weight("bias", shape, "shift of a norm") if kind.bias else t.declared_weight("bias")
        if heads is not None:  # x is [B, heads, n, h]
            weight, bias = (vector and vector.view(heads, 1, x.shape[-1]) for vector in (weight, bias))
        partial_gradient(t, weight, bias, of_heads=of_heads)
        made = t.implementation.norm(t, x, kind, weight, bias)
        op.keep_alive(t, x)
        return made


def linear(t: Tape, x: Tensor, outputs: Size, name: str, *, bias: bool) -> Tensor:
    """Project the last dimension of x to ``outputs``. Stores outputs·inputs weights, and a bias of ``outputs``."""
    with t.at(name):
        packing = packing_of(t)
        before = packed.dtype_before(t) if packing else None
        w = t.weight("weight", (outputs, x.shape[-1]), op.LINEAR, dtype=before, packing=packing)
        stored = packed.compute_dtype(t) if packing else None  # to which the first pass casts the bias of a packed weight in place
        b = t.weight("bias", (outputs,), "bias: out", dtype=stored) if bias else t.declared_weight("bias")

        def project(x: Tensor) -> Tensor:
            return packed.linear(t, x, w, b, packing) if packing else t.implementation.linear(t, x, w, b)

        kind = t.training.adapters
        if not kind or not trained.targets(kind, t.path, name):
            return project(x)
        if kind.type == "ia3":
            return (scaled_beside_packed if packing else scaled)(t, kind, x, outputs, project)
        return adapted(t, kind, x, w, b, project(x), packing)


def feed_forward(
    t: Tape, kind: FeedForward, x: Tensor, *, name: str = "mlp", component: str = "feed_forward", drops: bool = True
) -> Tensor:
    """Plain: down(activation(up(x))). Gated: down(activation(gate(x)) · up(x)). Channel mix: sigmoid(receptance) · value(relu(key)²).

    ``drops``: with dropout.
    """
    with t.at(name, component):
        if kind.channel_mix:
            return channel_mix(t, kind, x)
        given, x = x, enter(t, x, readers=2 if kind.gated and not t.modules.fused_gate_up else 1)
        if kind.gated:
            gate, up = gate_and_up(t, kind, x)
            hidden = t.implementation.gated(t, kind.activation, largest(t, gate) if kind.sparse else gate, up)
        else:
            hidden = t.implementation.activation(t, kind.activation, linear(t, x, kind.d_ff, "up_proj", bias=kind.up_bias))
        if kind.hidden_norm:
            hidden = norm(t, Norm("rmsnorm", bias=False), hidden, "ffn_sub_norm")
        hidden = op.cast(t, hidden, t.precision.weights) if t.modules.casts_hidden else hidden
        if t.modules.rebinds_input:
            op.keep_alive(t, given, x)
        out = leave(t, linear(t, t.show("hidden", hidden), x.shape[-1], "down_proj", bias=kind.down_bias))
        out = t.implementation.drop(t, out) if drops else out
        op.keep_alive(t, *([] if t.modules.rebinds_input else [given, x]), hidden)
        return out


def largest(t: Tape, x: Tensor) -> Tensor:
    """Return what exceeds the mean plus a multiple of the standard deviation of each row, and 0 for the rest (Gemma 3n)."""
    mean, row = op.mean(t, x), t.tensor((*x.shape[:-1], 1), x.dtype)
    (deviation,) = t.record("std", [x], [row], [Saved(x, "input"), Saved(row, "standard deviation")], by=largest)
    (factor,) = t.record("icdf", [], [t.tensor((), x.dtype, needs_grad=False)], by=largest)
    cutoff = op.add(t, mean, op.multiply(t, deviation, factor))
    made = op.relu(t, op.add(t, x, cutoff))
    op.keep_alive(t, mean, deviation, factor, cutoff)
    return made


def gate_and_up(t: Tape, kind: FeedForward, x: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    """Return the gate and a function that returns up: separate projections, or the halves of one."""
    if not t.modules.fused_gate_up or kind.gate_bias != kind.up_bias:
        gate = linear(t, x, kind.d_ff, "gate_proj", bias=kind.gate_bias)
        return gate, lambda: linear(t, x, kind.d_ff, "up_proj", bias=kind.up_bias)
    half = (*x.shape[:-1], kind.d_ff)
    gate, up = op.split(t, linear(t, x, 2 * kind.d_ff, "gate_up_proj", bias=kind.gate_bias), half, half)
    return gate, lambda: up


def channel_mix(t: Tape, kind: FeedForward, x: Tensor) -> Tensor:
    """RWKV-4's feed-forward (Peng et al. 2023, arXiv:2305.13048): a squared ReLU between key and value, behind a receptance gate."""
    d = x.shape[-1]
    previous = shifted(t, x)
    key, receptance = (time_mix(t, x, previous, name) for name in ("key", "receptance"))
    key = linear(t, key, kind.d_ff, "key", bias=False)
    value = linear(t, t.implementation.activation(t, "relu_squared", key), d, "value", bias=False)
    return op.multiply(t, sigmoid(t, linear(t, receptance, d, "receptance", bias=False)), value)


def shifted(t: Tape, x: Tensor) -> Tensor:
    """Return each token's previous one: a copy. That of one token after others is in the cache."""
    if t.inference and t.inference.decodes:
        return op.constant(t, x.shape, x.dtype)
    return t.record("pad", [x], [op.like(t, x)], by=shifted)[0]


def time_mix(t: Tape, x: Tensor, previous: Tensor, name: str) -> Tensor:
    """Interpolate each channel between a token and the previous one: x · m + previous · (1 - m)."""
    m = t.weight(f"time_mix_{name}", (1, 1, x.shape[-1]), "mix: d")
    return op.add(t, op.multiply(t, x, m), op.multiply(t, previous, op.add_scalar(t, m)))
