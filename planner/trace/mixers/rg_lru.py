"""TODO"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear
from planner.trace.mixers.operators import convolution, scan
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def rg_lru(t: Tape, kind: records.RgLru, x: Tensor) -> Tensor:
    """Griffin's recurrent block: a GELU branch, and a branch of convolution and gated linear recurrence with block-diagonal gates."""
    B, n, d = x.shape
    width, block = kind.width, kind.width // kind.n_blocks
    with t.at("temporal_block", "ssm"):
        y = op.pointwise(t, "gelu_tanh", linear(t, x, width, "linear_y", bias=True))
        u = convolution(t, linear(t, x, width, "linear_x", bias=True), kind.d_conv, bias=True, activated=False)
        with t.at("rg_lru"):
            decay = t.weight("recurrent_param", (width,), "decay: width")
            gates = [sigmoid(t, block_diagonal(t, u, kind.n_blocks, block, name)) for name in ("input_gate", "recurrent_gate")]
            u = scan(t, "rg_lru", [u, *gates, decay], (B, n, width))
        return linear(t, op.multiply(t, u, y), d, "linear_out", bias=True)


def block_diagonal(t: Tape, x: Tensor, blocks: Size, width: Size, name: str) -> Tensor:
    """Multiply each of ``blocks`` slices of x by its own square matrix, and add a bias."""
    w = t.weight(f"{name}_weight", (blocks, width, width), "blocks · width · width")
    b = t.weight(f"{name}_bias", (blocks, width), "bias: blocks · width")
    return op.block_linear(t, x, w, b)
