"""The state-space dual scan in chunks of tokens, operator by operator in float32 (Dao and Gu 2024, arXiv:2405.21060).

Read from transformers 5.24: mamba2_chunk_scan in models/bamba/modeling_bamba.py. torch.einsum permutes each factor to
[batch · chunks · heads, rows, columns] for a batched product, which copies it unless it can be viewed (sumproduct_pair, Linear.cpp).
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.mixers.operators import cumsum, exp, padded, softplus
from planner.trace.sizes import Size, ceil_div, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def chunk_scan(t: Tape, kind: records.Mamba2, xbc: Tensor, dt: Tensor, weights: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Scan x, B and C in one tensor [B, n, channels] with step sizes [B, n, H] -> [B, n, inner]."""
    rate, skip, shift = weights
    b_size, n, _ = xbc.shape
    H, N, P, tokens = kind.n_heads, kind.d_state, kind.d_inner // kind.n_heads, kind.chunk
    chunks = ceil_div(n, tokens)
    x, b, c = op.split(t, xbc, (b_size, n, H, P), (b_size, n, kind.n_groups, N), (b_size, n, kind.n_groups, N))
    stepped = softplus(t, op.add(t, dt, op.cast(t, shift, dt.dtype)))
    dt = op.pointwise(t, "clamp", stepped)
    x = op.cast(t, x, "float32")
    b, c = (repeated(t, op.cast(t, part, "float32"), (b_size, n, H, N)) for part in (b, c))
    residual = op.multiply(t, skip.view(1, 1, H, 1), padded(t, x, (b_size, chunks * tokens, H, P)))
    x = op.multiply(t, x, op.cast(t, dt, "float32").view(b_size, n, H, 1))
    decay = op.multiply(t, rate.view(1, 1, H), op.cast(t, dt, "float32"))
    x, b, c = (padded(t, part, (b_size, chunks, tokens, H, part.shape[-1])) for part in (x, b, c))
    decay = padded(t, decay, (b_size, H, chunks, tokens))
    summed = cumsum(t, decay)
    y = across_heads(t, (x, b, c), segments(t, decay), summed)
    made = op.add(t, y.view(b_size, chunks * tokens, H, P), residual)
    op.keep_alive(t, residual, x, b, c, decay, summed, y, dt)
    return op.split(t, made, (b_size, n, kind.d_inner))[0]


def across_heads(t: Tape, xbc: tuple[Tensor, Tensor, Tensor], pairs: Tensor, summed: Tensor) -> Tensor:
    """Return the outputs [B, chunks, tokens, H, P]: those of each chunk's own tokens, and those of the state before it."""
    x, b, c = xbc
    b_size, chunks, tokens, H, P = x.shape
    N = b.shape[-1]
    heads = b_size * chunks * H
    moved = exceeds_one(H) * exceeds_one(b_size * chunks)

    def values() -> Tensor:  # x is stored as [B, H, P, n]
        return op.contiguous(t, x.view(heads, tokens, P), exceeds_one(chunks))

    def rows(x: Tensor) -> Tensor:
        return op.contiguous(t, x.view(heads, tokens, x.shape[-1]), moved)

    def columns(x: Tensor) -> Tensor:
        return op.contiguous(t, x.view(heads, x.shape[-1], tokens), moved)

    scores = op.matmul(t, rows(c), columns(b), pairs=False)
    masked = op.multiply(t, scores, pairs.view(heads, tokens, tokens))
    own = op.matmul(t, masked, values(), pairs=False)
    left = exp(t, op.add(t, summed, summed))
    decayed = op.multiply(t, b, left.view(b_size, chunks, tokens, H, 1))
    states = op.matmul(t, columns(decayed), values(), pairs=False)
    before = passed_on(t, states.view(b_size, chunks, H, N * P), summed)
    entering = op.contiguous(t, before.view(heads, N, P), exceeds_one(H) * exceeds_one(chunks))
    read = op.matmul(t, rows(c), entering, pairs=False)
    read = op.multiply(t, read.view(b_size, chunks, tokens, H, P), exp(t, summed).view(b_size, chunks, tokens, H, 1))
    made = op.contiguous(t, op.add(t, own.view(b_size, chunks, tokens, H, P), read), moved)
    op.keep_alive(t, scores, masked, own, left, decayed, states, before, read)
    return made


def passed_on(t: Tape, states: Tensor, summed: Tensor) -> Tensor:
    """Return the state before each chunk, a product of the decays between chunks and all their states, of which the last is not used."""
    b_size, chunks, H, width = states.shape
    (first,) = t.record("zeros", [], [t.tensor((b_size, 1, H, width), states.dtype, needs_grad=False)], by=passed_on)
    (joined,) = t.record("cat", [first, states], [t.tensor((b_size, chunks + 1, H, width), states.dtype)], by=passed_on)
    decays = segments(t, padded(t, op.split(t, summed, (b_size, H, chunks))[0], (b_size, H, chunks + 1)))
    joined = op.contiguous(t, joined.view(b_size * H, chunks + 1, width), exceeds_one(H) * exceeds_one(b_size))
    made = op.matmul(t, decays.view(b_size * H, chunks + 1, chunks + 1), joined, pairs=False)
    op.keep_alive(t, first, joined)
    return op.split(t, made, (b_size, chunks, H, width))[0]


def segments(t: Tape, decay: Tensor) -> Tensor:
    """Return the exponential of sums of log decays [.., m] between each two places [.., m, m]."""
    m: Size = decay.shape[-1]
    shape = (*decay.shape, m)
    (columns,) = t.record("expand", [decay], [Tensor(shape, decay.dtype, decay.parts, needs_grad=decay.needs_grad)], by=segments)
    below = op.masked_fill(t, columns, mask(t, m))
    return exp(t, op.masked_fill(t, cumsum(t, below), mask(t, m)))


def mask(t: Tape, m: Size) -> Tensor:
    """Return a triangular Boolean mask [m, m]."""
    return t.record("not", [], [t.tensor((m, m), "bool", needs_grad=False)], by=mask)[0]


def repeated(t: Tape, x: Tensor, shape: tuple[Size, ...]) -> Tensor:
    """Repeat the groups of x for all heads: a copy even of equal numbers."""
    return t.record("repeat_interleave", [x], [t.tensor(shape, x.dtype)], by=repeated)[0]
