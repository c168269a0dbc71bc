"""The delta rule with a decay per channel, in chunks of tokens, operator by operator in float32 (Kimi Team 2025, arXiv:2510.26692).

Read from transformers 5.24: chunk_kimi_delta_attention in models/kimi_linear/modeling_kimi_linear.py. Heads are
[B, H, chunks, tokens, width].
"""

from __future__ import annotations

from operator import lt

from planner.spec.precision import Dtype
from planner.trace import primitives as op
from planner.trace.mixers.operators import cumsum, exp, of_each, padded
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, ceil_div, choose, exceeds_one, maximum
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

CHUNK = 64  # tokens


def channel_delta_rule(t: Tape, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Return the outputs [B, n, H, h], and in inference the last state [B, H, h, h].

    Queries, keys, values and log decays are [B, n, H, h], rates [B, n, H].
    """
    B, n, H, h = v.shape
    dtype, chunks = v.dtype, ceil_div(n, CHUNK)
    moved = exceeds_one(n) * exceeds_one(H)
    q, k, v, beta, decay = (op.cast(t, op.contiguous(t, part, moved), "float32") for part in (q, k, v, beta, decay))
    q, k = divided_by_norm(t, q), divided_by_norm(t, k)
    q, k, v, decay = (padded(t, part, (B, H, chunks, CHUNK, h)) for part in (q, k, v, decay))
    q = op.mul_scalar(t, q)
    by_token = padded(t, beta, (B, H, chunks, CHUNK, 1))
    v_beta, k_beta = op.multiply(t, v, by_token), op.multiply(t, k, by_token)
    summed = cumsum(t, decay)
    as_row, as_column = (B, H, chunks, CHUNK, 1, h), (B, H, chunks, 1, CHUNK, h)
    pairs = exp(t, op.masked_fill(t, op.add(t, summed.view(*as_row), summed.view(*as_column)), mask(t)))
    scores = total(t, op.multiply(t, op.multiply(t, k_beta.view(*as_row), k.view(*as_column)), pairs))
    system = substituted(t, op.neg(t, op.masked_fill(t, scores, mask(t))))
    values = op.matmul(t, system, v_beta, pairs=False)
    keys = op.matmul(t, system, decayed(t, k_beta, summed), pairs=False)
    first = None if t.inference or choose(lt, 1, chunks) else read_first_state(t, decayed(t, q, summed))
    within = op.masked_fill(t, scores_by_chunk(t, q, k, pairs), mask(t))
    if first:
        y, *last = chunk_by_chunk(t, (first[0], values, keys, within), first[1])
    else:
        y, *last = chunk_by_chunk(t, (decayed(t, q, summed), values, keys, within, k, summed), None)
    y = op.cast(t, op.contiguous(t, op.split(t, y, (B, n, H, h))[0], 1), dtype)
    op.keep_alive(t, v, beta, decay, v_beta, k_beta, summed, pairs, system, within, values, keys)
    return y, *last


def decayed(t: Tape, x: Tensor, summed: Tensor) -> Tensor:
    """Return x, decayed from the start of its chunk."""
    return op.multiply(t, x, exp(t, summed))


def divided_by_norm(t: Tape, x: Tensor) -> Tensor:
    """Divide the last dimension of x by its Euclidean norm. Saves x and the norm."""
    (root,) = t.record("norm", [x], [t.tensor((*x.shape[:-1], 1), x.dtype)], by=divided_by_norm)
    return t.record("div", [x, root], [op.like(t, x)], [Saved(x, "dividend"), Saved(root, "divisor")], by=divided_by_norm)[0]


def scores_by_chunk(t: Tape, q: Tensor, k: Tensor, pairs: Tensor) -> Tensor:
    """Return the sums over channels of queries · keys · decays of each two tokens of a chunk, one chunk after the other.

    Saves all factors, of which the products of queries and keys are new. Backward, each chunk's part of the gradient of the decays is first
    a tensor for all chunks; then the gradients of queries and keys are two of the chunk, before they are summed, one after the other.
    """
    chunks = pairs.shape[2]
    products = op.like(t, pairs)
    made = t.tensor(pairs.shape[:-1], pairs.dtype)
    saved = [Saved(q, "queries"), Saved(k, "keys"), Saved(pairs, "decays"), Saved(products, "products")]
    temporary = maximum(pairs.bytes, (2 * pairs.bytes - made.bytes) // chunks - (1 - exceeds_one(chunks)) * k.bytes)
    outputs, of_chunk = ([made], 2 * pairs.bytes // chunks) if t.inference else ([made, products], 0)
    inputs = [q, k, pairs]
    return t.record("scores", inputs, outputs, saved, temporary=of_chunk, backward_temporary=temporary, by=scores_by_chunk)[0]


def mask(t: Tape) -> Tensor:
    """Return a triangular Boolean mask of a chunk."""
    return t.record("causal mask", [], [t.tensor((CHUNK, CHUNK), "bool", needs_grad=False)], by=mask)[0]


def total(t: Tape, x: Tensor) -> Tensor:
    """Sum the last dimension. Saves nothing."""
    return t.record("sum", [x], [t.tensor(x.shape[:-1], x.dtype)], by=total)[0]


def substituted(t: Tape, system: Tensor) -> Tensor:
    """Invert a triangular system [.., m, m] row by row, in place, and add one to its diagonal.

    Saves copies of the first i elements of row i, and of the i rows above, for i from 1 to m - 1.
    """
    m = CHUNK - 1
    rows = m * (m + 1) // 2 + m * (m + 1) * (2 * m + 1) // 6
    saved = of_each(t, rows, system.shape[:-2], system.dtype, "rows, and rows above")
    made = op.like(t, system)
    outputs, temporary = ([made], made.bytes) if t.inference else ([made, saved.tensor], 0)
    return t.record("forward substitution", [system], outputs, [saved], temporary=temporary, by=substituted)[0]


def read_first_state(t: Tape, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the product of a single chunk's queries and the first state, before the chunk's scores, and that state, which it saves."""
    B, H, *_, h = q.shape
    dtype: Dtype = t.precision.autocast or "float32"
    q = op.cast(t, q, dtype)
    saved = of_each(t, 1, (B, H, h, h), dtype, "first state")
    made, state = t.record("read state", [q], [op.like(t, q), saved.tensor], [saved], by=read_first_state)
    return made, state


def chunk_by_chunk(t: Tape, inputs: tuple[Tensor, ...], state: Tensor | None) -> tuple[Tensor, ...]:
    """Return the outputs [B, H, chunks, tokens, h] of all chunks, one after the other: each reads the previous one's state [B, H, h, h].

    A chunk's products forward: queries · state, keys · state, scores · new values, and keysᵀ · new values for the next state. Backward,
    the first state is constant, and the last one is not read. Autocast casts the factors for each product, and saves the casts instead.
    ``state``: the first one, if a single chunk's queries were already multiplied by it.
    """
    _, values, keys, within, *_ = inputs
    B, H, chunks, tokens, h = values.shape
    more, further, states = exceeds_one(chunks), chunks - 1, h * h
    product_of: Dtype = t.precision.autocast or "float32"

    def each(count: Size, dtype: Dtype, what: str) -> Saved:
        return of_each(t, count, (B, H), dtype, what)

    saved = [Saved(within, "scores")] if not t.precision.autocast else [each(chunks * tokens * tokens, product_of, "scores")]
    saved += [
        each(chunks * tokens * h, product_of, "new values"),
        Saved(state, "first state") if state else each(states, product_of, "first state"),
        each(further * 2 * tokens * h, product_of, "queries and keys"),
        each(further * (tokens + 1) * h, "float32", "decays"),
    ]
    if t.precision.autocast:
        saved += [each(maximum(chunks - 2, 0) * states, "float32", "states"), each(2 * further * states, product_of, "states")]
    else:
        saved.append(each(further * states, product_of, "states"))
    keys_read = Tensor(keys.shape, keys.dtype, tuple((storage, more * times) for storage, times in keys.parts))
    made = t.tensor(values.shape, values.dtype)
    with_state, inside = 2 * B * H * tokens * states, 2 * B * H * tokens * tokens * h
    forward = chunks * (3 * with_state + inside)
    backward = 2 * chunks * inside + 2 * with_state + further * 6 * with_state
    flops = Flops(forward, forward, forward, backward, "4 products per chunk; backward 8, without those of the first and last state")
    kept = [t.tensor((B, H, h, h), "float32")] if t.inference else [one.tensor for one in saved if one.tensor not in {within, state}]
    saved.append(Saved(keys_read, "keys"))
    t.record("delta rule", inputs, [made, *kept], saved, flops, by=chunk_by_chunk)
    return made, *(kept if t.inference else ())
