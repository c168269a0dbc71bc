"""TODO"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers.operators import scan
from planner.trace.routing import sigmoid
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def lightning_attention(t: Tape, kind: records.LightningAttention, x: Tensor) -> Tensor:
    """Lightning attention: q, k and v in one projection, linear attention, norm, sigmoid output gate, out."""
    B, n, d = x.shape
    width = kind.n_heads * kind.head_dim
    with t.at("self_attn", "ssm"):
        qkv = op.pointwise(t, "silu", linear(t, x, 3 * width, "qkv_proj", bias=False))
        y = norm(t, RMS, scan(t, "lightning_attention", [qkv], (B, n, width)), "norm")
        gate = sigmoid(t, linear(t, x, width, "output_gate", bias=False))
        return linear(t, op.multiply(t, gate, y), d, "out_proj", bias=False)
