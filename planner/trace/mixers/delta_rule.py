"""The gated delta rule in chunks of tokens, operator by operator in float32.

Read from transformers 5.24: torch_chunk_gated_delta_rule in models/qwen3_next/modeling_qwen3_next.py. Heads are
[B, H, chunks, tokens, width].
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from operator import lt

from planner.trace import primitives as op
from planner.trace.mixers.operators import cumsum, exp, of_each, padded, repeated_heads
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, ceil_div, choose, exceeds_one, maximum, minimum, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

CHUNK = 64  # tokens


def chunked_delta_rule(t: Tape, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Return the outputs [B, n, H, v], and in inference the last state [B, H, k, v].

    Queries and keys are [B, n, K, k], values [B, n, H, v], log decays and rates [B, n, H].
    """
    B, n, H, value = v.shape
    dtype, chunks = q.dtype, ceil_div(n, CHUNK)
    q, k = repeated_heads(t, q, H), repeated_heads(t, k, H)
    q, k, v, beta, decay = (op.cast(t, part, "float32") for part in (q, k, v, beta, decay))
    q, k = l2_norm(t, q), l2_norm(t, k)
    q = op.mul_scalar(t, q)
    q, k, v = (padded(t, part, (B, H, chunks, CHUNK, part.shape[-1])) for part in (q, k, v))
    beta, decay = (padded(t, part, (B, H, chunks, CHUNK)) for part in (beta, decay))
    by_token = beta.view(B, H, chunks, CHUNK, 1)
    v_beta, k_beta = op.multiply(t, v, by_token), op.multiply(t, k, by_token)
    summed = cumsum(t, decay)
    (mask,) = t.record("causal mask", [], [t.tensor((CHUNK, CHUNK), "bool", needs_grad=False)], by=chunked_delta_rule)
    pairs = op.add(t, summed.view(B, H, chunks, CHUNK, 1), summed.view(B, H, chunks, 1, CHUNK))
    pairs = exp(t, op.masked_fill(t, pairs, mask))
    # In float32, heads are still slices of tokens, unless they were padded. A product copies them.
    sliced = (1 - minimum(chunks * CHUNK - n, 1)) * exceeds_one(H) if dtype == "float32" else 0
    scores = partial(scores_of_pairs, t, k, pairs, sliced * exceeds_one(B * chunks))
    system, within = scores(k_beta), scores(q)
    decayed = op.multiply(t, k_beta, exp(t, summed).view(B, H, chunks, CHUNK, 1))
    values, keys = solve_triangular(t, system, v_beta), solve_triangular(t, system, decayed)
    q = op.multiply(t, q, exp(t, summed).view(B, H, chunks, CHUNK, 1))
    y, *state = chunk_by_chunk(t, (q, k, values, keys, within), summed, sliced * exceeds_one(B))
    y = op.cast(t, op.split(t, y, (B, n, H, value))[0], dtype)
    if dtype == "float32":
        y = op.contiguous(t, y, exceeds_one(n) * exceeds_one(H))
    op.keep_alive(t, v, beta, decay, v_beta, k_beta, summed, pairs, system, within, decayed, values, keys, mask)
    return y, *state


def l2_norm(t: Tape, x: Tensor) -> Tensor:
    """Divide the last dimension of x by its Euclidean norm."""
    return op.multiply(t, x, op.rsqrt(t, op.mean(t, op.multiply(t, x, x))))


def solve_triangular(t: Tape, system: Tensor, right: Tensor) -> Tensor:
    """Solve a triangular system [.., m, m] for [.., m, p], which no FLOPs convention counts. Saves the system and the solution.

    Backward, the gradient of the system is a product, of which there is a copy: 2 · batch · m · m · p FLOPs.
    """
    made = op.like(t, right)
    saved = [Saved(system, "triangular system"), Saved(made, "solution")]
    flops = Flops(backward=2 * product(system.shape) * right.shape[-1])
    return t.record("solve_triangular", [system, right], [made], saved, flops, backward_temporary=system.bytes, by=solve_triangular)[0]


def scores_of_pairs(t: Tape, k: Tensor, pairs: Tensor, moved: Size, x: Tensor) -> Tensor:
    """Return the decayed products of x with the keys of its chunk."""
    turned = k.view(*k.shape[:3], k.shape[4], k.shape[3])
    product_of = op.matmul(t, op.contiguous(t, x, moved), op.contiguous(t, turned, moved), pairs=False)
    return op.multiply(t, product_of, pairs)


def chunk_by_chunk(t: Tape, inputs: tuple[Tensor, ...], summed: Tensor, sliced: Size) -> tuple[Tensor, ...]:
    """Return the outputs [B, n, H, v] of all chunks, one after the other: each reads the state [B, H, k, v] of the previous one.

    A chunk's products forward: keys · state for its new values, queries · state, scores · new values, and keysᵀ · new values for the next
    state. Backward, the first state is constant, and the last one is not read. Saves the factors of these products, the states, and their
    decays. ``sliced``: 1 if a product copies its chunk. Autocast casts the factors for each product, and saves the casts instead.
    """
    q, k, values, keys, within = inputs
    B, H, chunks, tokens, width = q.shape
    value = values.shape[-1]
    several = choose(lt, 1, chunks)
    with nullcontext() if several else t.without_gradients(trains=True):  # a single chunk's state is not read
        rest = exp(t, op.add(t, summed, summed.view(B, H, chunks, tokens)))
        decays = exp(t, op.split(t, summed, (B, H, chunks))[0])
        ahead = op.multiply(t, k, rest.view(B, H, chunks, tokens, 1))
    for tensor in (ahead, q) if several else ():  # copied for each product but the first or last
        tensor.storage.bytes = tensor.storage.bytes // chunks * (chunks - sliced)
    state, a_chunk, product_of = (B, H, width, value), (B, H, tokens, width), t.precision.autocast
    new = (B, H, tokens, value)
    made = t.tensor((B, H, chunks * tokens, value), "float32")
    saved = [Saved(decays, "decays of states")] if several else []
    if product_of is None:
        saved += [Saved(q, "queries"), Saved(ahead, "decayed keys")] if several else []
        saved += [Saved(keys, "keys"), Saved(within, "scores")]
        kept = [
            of_each(t, 1, state, "float32", "first state"),
            of_each(t, chunks - 1, state, "float32", "states"),
            of_each(t, chunks, new, "float32", "new values"),
        ]
    else:
        kept = [
            of_each(t, exceeds_one(chunks), state, "float32", "first state"),
            of_each(t, maximum(chunks - 2, 0), state, "float32", "states"),
            of_each(t, 2 * chunks, state, product_of, "states cast to compute dtype"),
            of_each(t, 3 * (chunks - 1), a_chunk, product_of, "queries and keys cast to compute dtype"),
            of_each(t, chunks, (B, H, tokens, tokens), product_of, "scores cast to compute dtype"),
            of_each(t, 2 * chunks - 1, new, product_of, "new values cast to compute dtype"),
        ]
    with_state, within_chunk = 2 * B * H * tokens * width * value, 2 * B * H * tokens * tokens * value
    forward = chunks * (3 * with_state + within_chunk)
    backward = 2 * with_state + (chunks - 1) * 6 * with_state + 2 * chunks * within_chunk
    flops = Flops(forward, forward, forward, backward, "4 products per chunk; backward 8, without those of the first and last state")
    last = [t.tensor(state, "float32")] if t.inference else []
    outputs = [made, *(last or [one.tensor for one in kept])]
    # A chunk's new values and what the state before it adds, and either the two other terms of its output, or of the next state.
    temporary = 4 * 2 * product(new) + maximum(4 * 2 * product(new), 4 * 3 * product(state)) if t.inference else 0
    inputs = q, keys, values, within, ahead, decays
    t.record("delta rule", inputs, outputs, [*saved, *kept], flops, temporary=temporary, by=chunk_by_chunk)
    op.keep_alive(t, rest, ahead, decays)
    return made, *last
