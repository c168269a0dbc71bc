"""Lightning attention (MiniMax 2025, arXiv:2501.08313).

Read from transformers 5.24: models/minimax/modeling_minimax.py.
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers.operators import decodes, of_each, scan
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
                y, *variables = (next_state if decodes(t) else block_by_block)(t, kind, qkv)
            y = op.contiguous(t, y, exceeds_one(H) * exceeds_one(n))
        else:
            y, variables = scan(t, "lightning_attention", [qkv], (B, n, width)), []
        y = norm(t, RMS, y, "norm")
        gate = sigmoid(t, linear(t, x, width, "output_gate", bias=False))
        made = linear(t, op.multiply(t, gate, y), d, "out_proj", bias=False)
        op.keep_alive(t, x, qkv, *variables)
        return made


def without_gradients(t: Tape, kind: records.LightningAttention, qkv: Tensor, flops: Flops) -> tuple[Tensor, ...]:
    """Return the outputs of ``block_by_block``, and variables of its last block: scores, two terms and their sum, a term of the state.

    The outputs are a tensor per block until they are joined. The last state is the cache's.
    """
    B, n, _ = qkv.shape
    H, h = kind.n_heads, kind.head_dim
    last = n - (ceil_div(n, kind.block) - 1) * kind.block
    shapes: tuple[tuple[Size, ...], ...] = ((B, H, last, last), *[(B, H, last, h)] * 3, (B, H, h, h))
    state, each, *variables = (t.tensor(shape, qkv.dtype) for shape in ((B, H, h, h), (B, n, H * h), *shapes))
    state.storage.until_forward_ends = True
    each.storage.bytes = (n - last) * (each.storage.bytes // n)  # the last block's is a variable
    t.record("lightning attention", [qkv], [each, state, *variables], flops=flops, temporary=variables[0].bytes, by=without_gradients)
    return *t.record("cat", [each], [t.tensor(each.shape, qkv.dtype)], by=without_gradients), *variables


def next_state(t: Tape, kind: records.LightningAttention, qkv: Tensor) -> tuple[Tensor, ...]:
    """Return the output of one token after others [B, 1, H·h]: its queries · the new state, which replaces the old one in the cache."""
    B, n, _ = qkv.shape
    H, h = kind.n_heads, kind.head_dim
    q, k, v = op.split(t, qkv, (B, H, n, h), (B, H, h, n), (B, H, n, h))
    old = t.tensor((B, H, h, h), qkv.dtype)
    added = op.matmul(t, k, v, pairs=False)
    new = op.add(t, op.multiply(t, old, op.constant(t, (H, 1, 1), t.precision.weights)), added)
    new.storage.until_forward_ends = True
    made = op.matmul(t, q, new, pairs=False)
    joined = op.contiguous(t, made, 1)
    t.record("free", [old], [], stored_in="cache", by=next_state)
    return joined.view(B, n, H * h), added, made


def block_by_block(t: Tape, kind: records.LightningAttention, qkv: Tensor) -> tuple[Tensor, ...]:
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
    if t.inference:
        return without_gradients(t, kind, qkv, flops)
    as_views = Tensor(qkv.shape, dtype, tuple((storage, times * (1 - copied)) for storage, times in qkv.parts))
    saved.append(Saved(as_views, "queries, keys and values"))
    outputs = [made, *(one.tensor for one in saved[:-1])]
    return t.record("lightning attention", [qkv], outputs, saved, flops, by=block_by_block)[:1]
