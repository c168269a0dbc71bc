"""TODO"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers.operators import convolution, scan
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def mamba2(t: Tape, kind: records.Mamba2, x: Tensor) -> Tensor:
    """Mamba-2: in (z, x, B, C, dt), convolution of x, B and C, state-space dual scan, gated norm, out."""
    B, n, d = x.shape
    inner, grouped = kind.d_inner, kind.n_groups * kind.d_state
    with t.at("mamba", "ssm"):
        both = linear(t, x, 2 * inner + 2 * grouped + kind.n_heads, "in_proj", bias=kind.bias)
        z, xbc, dt = op.split(t, both, (B, n, inner), (B, n, inner + 2 * grouped), (B, n, kind.n_heads))
        xbc = convolution(t, xbc, kind.d_conv, bias=kind.conv_bias)
        a, skip, shift = (t.weight(name, (kind.n_heads,), f"{name}: heads") for name in ("A_log", "D", "dt_bias"))
        y = scan(t, "chunk_scan", [xbc, dt, a, skip, shift], (B, n, inner))
        y = op.multiply(t, y, op.pointwise(t, "silu", z))
        y = norm(t, RMS, y, "norm") if kind.gated_norm else y
        return linear(t, y, d, "out_proj", bias=kind.bias)
