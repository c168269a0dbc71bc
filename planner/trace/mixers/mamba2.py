"""Mamba-2: transformers' plain path of the state-space dual scan. ``fused_mamba2`` has the kernel of its authors.

Read from transformers 5.24: models/bamba/modeling_bamba.py, whose functions falcon_h1, granitemoehybrid, mamba2 and nemotron_h share.
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace import pytorch
from planner.trace.blocks import linear
from planner.trace.mixers.fused_mamba2 import split_function
from planner.trace.mixers.operators import convolution, decodes, exp
from planner.trace.mixers.state_space_dual import chunk_scan, next_state
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def mamba2(t: Tape, kind: records.Mamba2, x: Tensor) -> Tensor:
    """Mamba-2: in (z, x, B, C, dt), convolution of x, B and C, state-space dual scan, gated norm, out."""
    B, n, d = x.shape
    inner, grouped = kind.d_inner, kind.n_groups * kind.d_state
    with t.at("mamba", "ssm"):
        channels = 2 * inner + 2 * grouped + kind.n_heads
        entering = op.mul_scalar(t, x) if t.modules.scales_mixers else x
        both = linear(t, entering, channels, "in_proj", bias=kind.bias)
        if t.modules.scales_mixers:
            t.buffer("mup_vector", (1, 1, channels), t.precision.weights)
            both = op.multiply(t, both, op.constant(t, (1, 1, channels), t.precision.weights))
        a, skip, shift = (t.weight(name, (kind.n_heads,), f"{name}: heads") for name in ("A_log", "D", "dt_bias"))
        rate = op.neg(t, exp(t, op.cast(t, a, "float32")))
        if t.fused_mixers:
            return split_function(t, kind, x, both, (rate, skip, shift))
        z, xbc, dt = op.split(t, both, (B, n, inner), (B, n, inner + 2 * grouped), (B, n, kind.n_heads))
        xbc = convolution(t, xbc, kind.d_conv, bias=kind.conv_bias)
        with t.inside_scan():
            scanned = (next_state if decodes(t) else chunk_scan)(t, kind, xbc, dt, (rate, skip, shift))
        y = gated(t, kind, scanned, z)
        op.keep_alive(t, both, xbc)
        made = linear(t, op.cast(t, y, x.dtype), d, "out_proj", bias=kind.bias)
        op.keep_alive(t, x, rate, y)
        return made


def gated(t: Tape, kind: records.Mamba2, x: Tensor, z: Tensor) -> Tensor:
    """Return x [B, n, inner] times SiLU of the gate, normalized in groups of heads, in float32. Without a norm, the gate is not cast."""
    if not kind.gated_norm:
        return op.multiply(t, x, op.pointwise(t, "silu", z))
    B, n, inner = x.shape
    with t.at("norm", "norm"):
        weight = t.weight("weight", (inner,), "scale of a norm")
        y = op.multiply(t, op.cast(t, x, "float32"), op.pointwise(t, "silu", op.cast(t, z, "float32")))
        _, normed = pytorch.divided_by_rms(t, y.view(B, n, kind.n_groups, inner // kind.n_groups))
        return op.multiply(t, weight, op.cast(t, normed.view(B, n, inner), x.dtype))
