"""Mamba-1: transformers' plain path. ``fused_mamba`` has the kernels of its authors.

Read from transformers 5.24: models/jamba/modeling_jamba.py, models/falcon_mamba/modeling_falcon_mamba.py.
"""

from __future__ import annotations

from planner.spec import records
from planner.spec.precision import Dtype
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers import fused_mamba
from planner.trace.mixers.operators import convolution, decodes, exp, rows_of_channels, softplus, state_of
from planner.trace.nodes import Saved
from planner.trace.sizes import product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)
UNSCALED = records.Norm("rmsnorm", weight=False, bias=False)


def mamba(t: Tape, kind: records.Mamba, x: Tensor) -> Tensor:
    """Mamba-1: in (x, z), convolution, dt, B and C from x, selective scan, out."""
    B, n, d = x.shape
    inner, state, rank = kind.d_inner, kind.d_state, kind.dt_rank
    with t.at("mamba", "ssm"):
        both = linear(t, x, 2 * inner, "in_proj", bias=kind.bias)
        a = t.weight("A_log", (inner, state), "decay: inner · state")
        rate = op.neg(t, exp(t, op.cast(t, a, "float32")))
        if t.modules.normalizes_selected:
            for name, width in (("dt", inner), ("b", state), ("c", state)):
                t.buffer(f"{name}_layernorm.weight", (width,), t.precision.weights)
        if t.fused_mixers:
            return (fused_mamba.one_by_one if kind.norms else fused_mamba.inner_function)(t, kind, x, both, rate)
        u, z = op.split(t, both, (B, n, inner), (B, n, inner))
        u = convolution(t, u, kind.d_conv, bias=kind.conv_bias)
        selected = linear(t, rows_of_channels(t, u), rank + 2 * state, "x_proj", bias=False)
        dt, b, c = op.split(t, selected, (B, n, rank), (B, n, state), (B, n, state))
        dt, b, c = (selected_norm(t, kind, part, name) for part, name in ((dt, "dt"), (b, "b"), (c, "c")))
        skip = t.weight("D", (inner,), "skip: inner")
        with t.at("dt_proj"):
            w = t.weight("weight", (inner, rank), op.LINEAR)
            shift = t.weight("bias", (inner,), "bias: out")
        dt = op.linear(t, dt, w)
        with t.inside_scan():
            scan = next_state if decodes(t) else selective_scan
            wide_shift = op.cast(t, shift, "float32")
            y = scan(t, (u, dt, rate, b, c), skip, z, wide_shift)
        op.keep_alive(t, both, dt, u, b, c)
        made = linear(t, rows_of_channels(t, op.cast(t, y, x.dtype)), d, "out_proj", bias=kind.bias)
        op.keep_alive(t, x, rate, wide_shift, y)
        return made


def selected_norm(t: Tape, kind: records.Mamba, x: Tensor, name: str) -> Tensor:
    """Normalize dt, B or C as in Jamba, or without a weight as in Falcon-Mamba; return it unchanged in other models."""
    if not kind.norms and not t.modules.normalizes_selected:
        return x
    return norm(t, RMS if kind.norms else UNSCALED, x, f"{name}_layernorm")


def selective_scan(t: Tape, inputs: tuple[Tensor, ...], skip: Tensor, z: Tensor, shift: Tensor) -> Tensor:
    """Return transformers' recurrence [B, n, inner]: decays and inputs [B, inner, n, state] in float32, then token by token."""
    u, dt, rate, b, c = inputs
    B, n, inner = u.shape
    state = rate.shape[-1]
    dtype = u.dtype
    wide_skip = op.cast(t, skip, "float32")
    dt = softplus(t, op.add(t, dt, op.cast(t, shift, dt.dtype)))
    by_token = dt.view(B, n, inner, 1)
    decay = exp(t, op.multiply(t, rate.view(1, 1, inner, state), by_token))
    rates = op.multiply(t, by_token, op.cast(t, b, "float32").view(B, n, 1, state))
    taken = op.multiply(t, rates, op.cast(t, u, "float32").view(B, n, inner, 1))
    y, *loop = token_by_token(t, decay, taken, c, dtype)
    y = op.add(t, y, op.multiply(t, u, wide_skip.view(1, 1, inner)))
    made = op.multiply(t, y, op.pointwise(t, "silu", z))
    op.keep_alive(t, decay, rates, taken, dt, wide_skip, y, *loop)
    if t.inference:
        state_of(t, (B, inner, state), "float32")
        op.keep_alive(t, *loop)
    return made


def token_by_token(t: Tape, decay: Tensor, taken: Tensor, c: Tensor, dtype: Dtype) -> tuple[Tensor, ...]:
    """Return C · state of each token -> [B, n, inner], where state = decay · previous state + input, all [B, inner, state].

    2·B·inner·state FLOPs per token forward: the product with C. Saves each token's state in ``dtype`` for that product, and in float32 for
    the next token, the zeros from which it starts, the decays and C. Backward, each token's part of the gradient of the decays, and of the
    inputs, is first a tensor for all tokens.
    """
    B, n, inner, state = decay.shape
    c = op.cast_lower_precision(t, c)
    if t.inference:
        return token_by_token_without_gradients(t, decay, taken, c)
    read = t.tensor((n, B, inner, state), c.dtype if t.precision.autocast else dtype)
    start = t.tensor((B, inner, state), dtype, needs_grad=False)
    passed = t.tensor((n - 1, B, inner, state), "float32")
    made = t.tensor((B, n, inner), c.dtype)
    forward = 2 * product(decay.shape)
    saved = [Saved(decay, "decays"), Saved(start, "first state"), Saved(c, "C")]
    if dtype == "float32" and not t.precision.autocast:
        read = t.tensor((n, B, inner, state), "float32")
        saved.append(Saved(read, "states"))
        outputs, temporary = [made, start, read], decay.bytes
    else:
        saved += [Saved(passed, "states"), Saved(read, "states cast to compute dtype")]
        outputs, temporary = [made, start, passed, read], decay.bytes - 2 * (read.bytes // n)  # two tokens' states are free then
    flops = op.products(decay, c, forward, "2 · batch · tokens · inner · state")
    return t.record("selective scan", [decay, taken, c], outputs, saved, flops, backward_temporary=temporary, by=token_by_token)[:1]


def token_by_token_without_gradients(t: Tape, decay: Tensor, taken: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Return C · state of each token -> [B, n, inner], and the variables of the loop: each token's output, and the last state.

    A token's state, its decayed one and their sum exist at once.
    """
    B, n, inner, state = decay.shape
    each, last = t.tensor((n, B, inner), c.dtype), t.tensor((B, inner, state), "float32")
    flops = op.products(decay, c, 2 * product(decay.shape), "2 · batch · tokens · inner · state")
    temporary = 2 * last.bytes - each.bytes // n
    t.record("selective scan", [decay, taken, c], [each, last], flops=flops, temporary=temporary, by=token_by_token_without_gradients)
    (made,) = t.record("stack", [each], [t.tensor((B, n, inner), c.dtype)], by=token_by_token_without_gradients)
    return made, each, last


def next_state(t: Tape, inputs: tuple[Tensor, ...], skip: Tensor, z: Tensor, shift: Tensor) -> Tensor:
    """Return the output of one token after others [B, 1, inner], and replace their state [B, inner, state] (selective_state_update)."""
    u, dt, rate, b, c = inputs
    B, n, inner = u.shape
    state = rate.shape[-1]
    by_channel, by_state = (B, inner, 1), (B, 1, state)
    dt = softplus(t, op.add(t, dt, op.cast(t, shift, dt.dtype)))
    decay = exp(t, op.multiply(t, op.cast(t, dt, "float32").view(*by_channel), rate))
    rates = op.multiply(t, op.cast(t, dt, "float32").view(*by_channel), op.cast(t, b, "float32").view(*by_state))
    taken = op.multiply(t, rates, op.cast(t, u, "float32").view(*by_channel))
    new = op.add(t, op.multiply(t, state_of(t, (B, inner, state), "float32"), decay), taken)
    read = op.matmul(t, op.cast(t, new, c.dtype), c.view(B, state, 1), pairs=False).view(B, n, inner)
    y = op.add(t, read, op.multiply(t, u, skip.view(1, 1, inner)))
    made = op.multiply(t, y, op.pointwise(t, "silu", z))
    op.keep_alive(t, dt, decay, rates, taken, new, y)
    return made
