"""LFM2's gated short convolution (transformers 5.24, models/lfm2)."""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear
from planner.trace.mixers.operators import convolution, rows_of_channels
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def short_convolution(t: Tape, kind: records.ShortConvolution, x: Tensor) -> Tensor:
    """LFM2's mixer: B, C and u from one projection, C · convolution(B · u), out."""
    B, n, d = x.shape
    with t.at("conv", "ssm"):
        all_three = linear(t, x, 3 * kind.width, "in_proj", bias=kind.bias)
        b, c, u = op.split(t, all_three, *([(B, n, kind.width)] * 3))
        u = convolution(t, op.multiply(t, b, u), kind.d_conv, bias=kind.bias, activated=False)
        y = op.multiply(t, c, u)
        return linear(t, rows_of_channels(t, y) if t.implementation.plain_mixers else y, d, "out_proj", bias=kind.bias)
