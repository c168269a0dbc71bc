"""The lightning indexer of sparse attention (DeepSeek-AI 2025, arXiv:2512.02556, section 2.1).

Several small query heads, projected from the compressed queries, score one key head, projected from x. Read from transformers 5.24:
models/deepseek_v32, models/glm_moe_dsa. They run it without gradients, so that its weights have no optimizer state; elsewhere its inputs
are detached from the model, and it has its own loss.
"""

from __future__ import annotations

from functools import partial

from planner.spec.records import Indexer, Norm
from planner.trace import blocks, pytorch
from planner.trace import primitives as op
from planner.trace.cache import cached_alone
from planner.trace.nodes import Flops
from planner.trace.sizes import exceeds_one, minimum, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def indexer(t: Tape, kind: Indexer, x: Tensor, source: Tensor, tables: tuple[Tensor, Tensor] | None, mask: Tensor | None) -> Tensor:
    """Return the indices [B, n, k] of the visible keys with the highest scores per query.

    ``source`` has the compressed queries, ``mask`` the causal mask [B, 1, n, n], if there is one.
    """
    B, n, _ = x.shape
    plain = t.implementation.plain_mixers
    with t.at("indexer"), t.without_gradients(trains=not plain):
        q = blocks.linear(t, source, kind.n_heads * kind.head_dim, "wq_b", bias=False).view(B, n, kind.n_heads, kind.head_dim)
        k = blocks.norm(t, Norm(), blocks.linear(t, x, kind.head_dim, "wk", bias=False), "k_norm").view(B, n, 1, kind.head_dim)
        if plain:
            turned = [rotated(t, part, tables) for part in (q, k)] if tables else []
            rest = [op.narrow(t, part, kind.head_dim - one.shape[-1]) for one, part in zip(turned, (q, k), strict=False)]
            queries, keys = map(partial(op.cat, t), turned, rest) if tables else (q, k)
            keys = cached_alone(t, keys)
            made = plain_choice(t, kind, queries, keys, x, mask)
            op.keep_alive(t, q, k, *turned)
            return made
        weights = blocks.linear(t, x, kind.n_heads, "weights_proj", bias=False)
        t.note("memory of the indexer of sparse attention while it scores, and the FLOPs and memory of the loss that trains it")
        return choose(t, kind, q, k, weights)


def choose(t: Tape, kind: Indexer, q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """Return the indices of the keys with the largest sums over heads of weight · relu(q · k), at most ``top_k`` per query.

    2·B·heads·n²·head_dim FLOPs for q [B, n, heads, h] and k [B, n, 1, h], over pairs (query, key). The sum over heads is not a matrix
    product in the authors' kernel (deepseek-ai/DeepSeek-V3.2-Exp, inference/model.py: fp8_index).
    """
    B, n = k.shape[:2]
    indices = t.tensor((B, n, minimum(n, kind.top_k)), "int32", needs_grad=False)
    square = 2 * product(q.shape) * n
    flops = Flops(square, square, square // 2, 2 * square, "2 · B · heads · n² · head_dim")
    return t.record("index scores", [q, k, weights], [indices], flops=flops, by=choose)[0]


def rotated(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Return the first channels of x [B, n, heads, h], as many as the tables have, rotated."""
    rotary_dim = tables[0].shape[-1]
    cos, sin = (table.view(x.shape[1], 1, rotary_dim // 2) for table in tables)
    even, odd = op.narrow(t, x, rotary_dim // 2), op.narrow(t, x, rotary_dim // 2)
    return pytorch.rotate_halves(t, even, odd, (cos, sin))


def plain_choice(t: Tape, kind: Indexer, q: Tensor, k: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
    """Choose as ``choose`` does, operator by operator, in float32; the sum over heads is a matrix product."""
    B, n, heads, h = q.shape
    m = k.shape[1]
    wide = op.cast(t, q, "float32")
    keys = op.cast(t, k, "float32")
    every = op.expand(t, op.cast_lower_precision(t, keys), (B, n, h, m), exceeds_one(B) * exceeds_one(n))  # the keys of each query
    scores = op.matmul(t, wide, every, pairs=True)
    op.keep_alive(t, keys, every)
    scores = op.relu(t, op.mul_scalar(t, scores))
    weights = op.cast(t, blocks.linear(t, x, kind.n_heads, "weights_proj", bias=False), "float32")
    with t.inside_scan():
        summed = op.matmul(t, op.mul_scalar(t, weights).view(B, n, 1, heads), scores, pairs=False).view(B, n, m)
    if mask:
        hidden = inverted(t, mask) if mask.dtype == "bool" else mask
        summed = op.add(t, summed, hidden.view(B, n, m))
    largest, indices = (t.tensor((B, n, minimum(m, kind.top_k)), dtype, needs_grad=False) for dtype in (summed.dtype, "int64"))
    t.record("topk", [summed], [largest, indices], by=plain_choice)
    op.keep_alive(t, q, k, scores, weights, summed)
    return op.cast(t, indices, "int32")


def inverted(t: Tape, mask: Tensor) -> Tensor:
    """Return the opposite of a Boolean mask."""
    return t.record("not", [mask], [t.tensor(mask.shape, "bool", needs_grad=False)], by=inverted)[0]


def limited_to_chosen(t: Tape, mask: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return which keys are not chosen, and the mask [B, 1, n, m] that hides these, too: Boolean, or one that is added to the scores."""
    B, _, n, m = mask.shape
    (every,) = t.record("new_ones", [], [t.tensor((B, 1, n, m), "bool", needs_grad=False)], by=limited_to_chosen)
    wide = op.cast(t, indices, "int64")
    (others,) = t.record("scatter", [every, wide], [t.tensor((B, 1, n, m), "bool", needs_grad=False)], by=limited_to_chosen)
    other = inverted(t, others) if mask.dtype == "bool" else others
    (made,) = t.record("masked_fill", [mask, other], [t.tensor((B, 1, n, m), mask.dtype, needs_grad=False)], by=limited_to_chosen)
    op.keep_alive(t, others)
    return others, made
