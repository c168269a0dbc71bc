"""The state-space dual scan in chunks of tokens, operator by operator in float32 (Dao and Gu 2024, arXiv:2405.21060).

Read from transformers 5.24: mamba2_chunk_scan in models/bamba/modeling_bamba.py. torch.einsum permutes each factor to
[batch · chunks · heads, rows, columns] for a batched product, which copies it unless it can be viewed (sumproduct_pair, Linear.cpp).
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.mixers.operators import cumsum, exp, padded, softplus, state_of
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
    if t.inference:
        state_of(t, (b_size, H, P, N), "float32")
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
    before, passing = passed_on(t, states.view(b_size, chunks, H, N * P), summed)
    entering = op.contiguous(t, before.view(heads, N, P), exceeds_one(H) * exceeds_one(chunks))
    read = op.matmul(t, rows(c), entering, pairs=False)
    since = exp(t, summed)
    ahead = op.multiply(t, read.view(b_size, chunks, tokens, H, P), since.view(b_size, chunks, tokens, H, 1))
    made = op.contiguous(t, op.add(t, own.view(b_size, chunks, tokens, H, P), ahead), moved)
    op.keep_alive(t, pairs, scores, masked, own, left, decayed, before, read, since, ahead, *passing)
    return made


def passed_on(t: Tape, states: Tensor, summed: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the state before each chunk, a product of the decays between chunks and all their states, and variables of the scan.

    The last state is only of use to a cache.
    """
    b_size, chunks, H, width = states.shape
    (first,) = t.record("zeros", [], [t.tensor((b_size, 1, H, width), states.dtype, needs_grad=False)], by=passed_on)
    (joined,) = t.record("cat", [first, states], [t.tensor((b_size, chunks + 1, H, width), states.dtype)], by=passed_on)
    decays = segments(t, padded(t, op.split(t, summed, (b_size, H, chunks))[0], (b_size, H, chunks + 1)))
    joined = op.contiguous(t, joined.view(b_size * H, chunks + 1, width), exceeds_one(H) * exceeds_one(b_size))
    made = op.matmul(t, decays.view(b_size * H, chunks + 1, chunks + 1), joined, pairs=False)
    op.keep_alive(t, joined)
    return op.split(t, made, (b_size, chunks, H, width))[0], [first, decays]


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


def next_state(t: Tape, kind: records.Mamba2, xbc: Tensor, dt: Tensor, weights: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return the output of one token after others [B, 1, inner], and replace their state [B, H, P, N] (mamba2_selective_state_update)."""
    rate, skip, shift = weights
    b_size, n, _ = xbc.shape
    H, N, P = kind.n_heads, kind.d_state, kind.d_inner // kind.n_heads
    x, b, c = op.split(t, xbc, (b_size, H, P), (b_size, kind.n_groups, N), (b_size, kind.n_groups, N))
    dt = softplus(t, op.add(t, Tensor(x.shape, dt.dtype, dt.parts, needs_grad=False), op.cast(t, shift, dt.dtype).view(H, 1)))
    by_channel = (b_size, H, P, 1)
    decay = exp(t, op.multiply(t, op.cast(t, dt, "float32").view(*by_channel), Tensor((H, 1, N), rate.dtype, rate.parts, needs_grad=False)))
    b = of_heads(t, b, H)
    rates = op.multiply(t, dt.view(*by_channel), b.view(b_size, H, 1, N))
    taken = op.multiply(t, rates, x.view(*by_channel))
    new = op.add(t, op.multiply(t, state_of(t, (b_size, H, P, N), "float32"), decay), taken)
    c = of_heads(t, c, H)
    new = op.cast(t, new, c.dtype)
    y = op.matmul(t, new.view(b_size * H, P, N), c.view(b_size * H, N, 1), pairs=False).view(b_size, H, P)
    y = op.add(t, y, op.multiply(t, x, skip.view(H, 1)))
    op.keep_alive(t, dt, decay, b, rates, taken, c, new)
    return y.view(b_size, n, kind.d_inner)


def of_heads(t: Tape, x: Tensor, heads: Size) -> Tensor:
    """Return x [B, groups, N] for all heads: a copy, but a view of one sequence with as many groups."""
    B, groups, N = x.shape
    return op.expand(t, x, (B, heads, N), exceeds_one(heads // groups * B))
