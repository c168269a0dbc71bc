"""TODO"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, time_mix
from planner.trace.mixers.operators import scan
from planner.trace.routing import sigmoid
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def rwkv(t: Tape, kind: records.Rwkv, x: Tensor) -> Tensor:
    """RWKV-4's time mixing: three interpolations with the previous token, receptance, key and value, the recurrence, out."""
    B, n, d = x.shape
    with t.at("attention", "ssm"):
        decay, first = (t.weight(name, (kind.width,), f"{name}: width") for name in ("time_decay", "time_first"))
        names = ("key", "value", "receptance")
        key, value, receptance = [linear(t, time_mix(t, x, name), kind.width, name, bias=False) for name in names]
        y = scan(t, "rwkv_linear_attention", [key, value, decay, first], (B, n, kind.width))
        return linear(t, op.multiply(t, sigmoid(t, receptance), y), d, "output", bias=False)
