"""The mLSTM layer of xLSTM-7B (transformers 5.24, models/xlstm). Its plain path is not modeled."""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers.operators import scan
from planner.trace.routing import sigmoid
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def mlstm(t: Tape, kind: records.Mlstm, x: Tensor) -> Tensor:
    """mLSTM: q, k, v, input and forget gates per head, matrix memory, norm over heads, sigmoid output gate, out."""
    B, n, d = x.shape
    with t.at("mlstm_layer", "ssm"):
        q, k = (linear(t, x, kind.qk_dim, name, bias=False) for name in ("q", "k"))
        v = linear(t, x, kind.v_dim, "v", bias=False)
        gates = [linear(t, x, kind.n_heads, name, bias=True) for name in ("igate_preact", "fgate_preact")]
        y = norm(t, RMS, scan(t, "mlstm_chunkwise", [q, k, v, *gates], (B, n, kind.v_dim)), "multihead_norm")
        out = sigmoid(t, linear(t, x, kind.v_dim, "ogate_preact", bias=False))
        return linear(t, op.multiply(t, out, y), d, "out_proj", bias=False)
