"""Lightning attention (MiniMax 2025, arXiv:2501.08313).

Read from transformers 5.24: models/minimax/modeling_minimax.py.
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers.operators import of_each, scan
from planner.trace.nodes import Flops, Saved
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size, ceil_div, exceeds_one, maximum, minimum
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def lightning_attention(t: Tape, kind: records.LightningAttention, x: Tensor) -> Tensor:
    """Lightning attention: q, k and v in one projection, linear attention, norm, sigmoid output gate, out."""
    B, n, d = x.shape
    H, width = kind.n_heads, kind.n_heads * kind.head_dim
    with t.at("self_attn", "ssm"):
        qkv = op.pointwise(t, "silu", linear(t, x, 3 * width, "qkv_proj", bias=False))
        if t.implementation.plain_mixers:
            for name, shape in (("slope_rate", (H, 1, 1)), ("query_decay", (H, kind.block, 1)), ("key_decay", (H, kind.block, 1))):
                t.buffer(name, shape, t.precision.weights)
            t.buffer("diagonal_decay", (1, H, kind.block, kind.block), t.precision.weights)
            with t.inside_scan():
                y = block_by_block(t, kind, qkv)
            y = op.contiguous(t, y, exceeds_one(H) * exceeds_one(n))
        else:
            y = scan(t, "lightning_attention", [qkv], (B, n, width))
        y = norm(t, RMS, y, "norm")
        gate = sigmoid(t, linear(t, x, width, "output_gate", bias=False))
        return linear(t, op.multiply(t, gate, y), d, "out_proj", bias=False)


def block_by_block(t: Tape, kind: records.LightningAttention, qkv: Tensor) -> Tensor:
    """Return the outputs [B, n, H·h] of all blocks of tokens, one after the other: each reads the sum of keysᵀ · values of those before.

    A block's products forward: queries · keysᵀ, decayed scores · values, decayed queries · state, and decayed keysᵀ · values for the next
    state. Backward, the first state is constant, and the last one is not read. Saves the factors of these products; heads are slices of
    tokens, so each product copies them unless B is 1.
    """
    B, n, _ = qkv.shape
    H, h = kind.n_heads, kind.head_dim
    size, blocks = kind.block, ceil_div(n, kind.block)
    copied: Size = exceeds_one(B) * exceeds_one(H)
    rest = n - n // size * size
    pairs, ahead, first = n // size * size * size + rest * rest, (blocks - 1) * size, minimum(n, size)
    dtype, a_token = qkv.dtype, (B, H, h)
    saved = [
        of_each(t, copied * (3 * n + ahead), a_token, dtype, "queries, keys and values"),
        of_each(t, pairs, (B, H), dtype, "decayed scores"),
        of_each(t, n - first + ahead, a_token, dtype, "decayed queries and keys"),
        of_each(t, blocks, (B, H, h, h), dtype, "states"),
        of_each(t, maximum(blocks - 2, 0), (H,), t.precision.weights, "decay of a block"),
    ]
    part, whole = 2 * B * H * h * pairs, 2 * B * H * h * h
    forward = 2 * part + 2 * whole * n
    backward = 4 * part + whole * (2 * n - first) + 2 * whole * ahead
    flops = Flops(forward, forward, forward, backward, "4 products per block; backward 8, without those of the first and last state")
    made = t.tensor((B, n, H * h), dtype)
    as_views = Tensor(qkv.shape, dtype, tuple((storage, times * (1 - copied)) for storage, times in qkv.parts))
    saved.append(Saved(as_views, "queries, keys and values"))
    outputs = [made, *(one.tensor for one in saved[:-1])]
    return t.record("lightning attention", [qkv], outputs, saved, flops, by=block_by_block)[0]
