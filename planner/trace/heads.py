"""Attention of transformers' classes, read from transformers 5.24: integrations/sdpa_attention.py and models/*/modeling_*.py."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from planner.trace import cache, masks, pytorch, relative
from planner.trace import primitives as op
from planner.trace.by_head import matmul_by_head, merge_heads
from planner.trace.implementation import Scores
from planner.trace.nodes import Saved
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size, exceeds_one, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def split_kv(t: Tape, k: Tensor, v: Tensor, H: Size) -> tuple[Tensor, Tensor]:
    """Return keys and values [B, K, n, h]: views, or in Falcon copies selected by an index, and repeated to all heads unless K is 1."""
    K = k.shape[1]
    if not t.modules.indexed_kv or K == H:
        return k, v
    k, v = indexed(t, k), indexed(t, v)
    if K == 1:
        return k, v
    B, _, n, h = k.shape
    return op.expand(t, k, (B, H, n, h), exceeds_one(K)), op.expand(t, v, (B, H, n, h), exceeds_one(K))


def indexed(t: Tape, x: Tensor) -> Tensor:
    """Select one head of each group by a list of one index. Saves the index."""
    index = t.tensor((1,), "int64", needs_grad=False)
    return t.record("index", [x], [t.tensor(x.shape, x.dtype), index], [Saved(index, "index")], by=indexed)[0]


def one_operator(t: Tape, q: Tensor, k: Tensor, v: Tensor, terms: Scores) -> Tensor:
    """Attend in one kernel -> [B, H, n, h], if the class can."""
    kind = t.modules
    if not kind.fused_attention:
        return by_products(t, q, k, v, terms)
    terms = replace(terms, bias=masks.dynamic(t, v, terms.bias, q.shape[1])) if kind.dynamic_mask and terms.bias else terms
    terms = replace(terms, bias=relative.as_mask(t, terms.relative), relative=None) if terms.relative else terms
    if not terms.bias and cache.is_empty(t):
        k, v = cache.of_prompt(t, k, q.shape[2]), cache.of_prompt(t, v, q.shape[2])
    if kind.grouped_heads:
        if t.inference and (t.inference.decodes or cache.is_compiled(t)) and k.shape[1] != q.shape[1]:
            return one_query(t, q, k, v, terms)
        k, v = masks.heads_for_fused(t, q, k, v, terms.bias)
    return pytorch.one_operator(t, q, k, v, terms, grouped=kind.grouped_heads)


def one_query(t: Tape, q: Tensor, k: Tensor, v: Tensor, terms: Scores) -> Tensor:
    """Attend with one query per head: the queries of a group as if they were tokens of its key head, without repeating that (pack_gqa)."""
    B, H, _, h = q.shape
    K = k.shape[1]
    packed = q.view(B, K, H // K, h)
    made = pytorch.one_operator(t, packed, k, v, terms)
    return made.view(B, H, 1, v.shape[-1])


def by_products(t: Tape, q: Tensor, k: Tensor, v: Tensor, terms: Scores) -> Tensor:
    """Unfused attention -> [B, H, n, h]. The module also returns the probabilities, which keeps them alive."""
    kind = t.modules
    H, wide = q.shape[1], kind.softmax_in_float32
    terms = replace(terms, bias=masks.dynamic(t, v, terms.bias, H)) if kind.dynamic_mask and terms.bias else terms
    dtype = q.dtype if wide and not kind.scores_in_float32 else v.dtype
    k = pytorch.expand_kv(t, k, H)
    v = pytorch.expand_kv(t, v, H) if kind.grouped_heads else v
    if kind.scores_in_float32:
        q, k = op.cast(t, q, "float32"), op.cast(t, k, "float32")
    with t.without_autocast() if kind.scores_without_autocast else nullcontext():
        scores = op.mul_scalar(t, matmul_by_head(t, q, k, transposed=True))
    scores = op.softcap(t, scores) if terms.softcap else scores
    scores = op.add(t, scores, terms.relative) if terms.relative else scores
    if terms.bias:
        bias = seen(t, terms.bias, scores)
        scores = multiplied(t, scores, bias) if kind.multiplies_mask else op.add(t, scores, bias)
    scores = floored(t, scores) if kind.floors_scores else scores
    if terms.mask:
        scores = op.add(t, scores, terms.mask) if terms.mask.dtype == scores.dtype else masked(t, scores, terms.mask)
    share = share_without_sinks(t, scores, terms.sinks) if kind.scales_by_sinks and terms.sinks else None
    if kind.appends_sinks:
        own, scores = scores, scores_with_sinks(t, scores, terms.sinks)
        probabilities = op.cast(t, softmax_without_sinks(t, scores, dropped=terms.sinks is not None), dtype)
        op.keep_alive(t, *([scores] if kind.subtracts_largest else []), *([own] if kind.keeps_scores else []))
    else:
        if not kind.scales_by_sinks:
            pytorch.note_sinks(t, terms)
        probabilities = op.softmax(t, op.cast(t, scores, "float32") if wide else scores)
        if kind.fills_probabilities and terms.mask:
            probabilities = masked(t, probabilities, terms.mask)
        probabilities = op.cast(t, probabilities, dtype)
    if wide:
        op.keep_alive(t, scores)
    probabilities = pytorch.drop(t, probabilities)
    v = v if kind.grouped_heads else pytorch.expand_kv(t, v, H)  # the product broadcasts one head
    made = matmul_by_head(t, probabilities, v)
    made = op.multiply(t, made, op.cast(t, share, made.dtype)) if share else made
    joined = merge_heads(t, made).view(*made.shape)  # while keys and values of all heads are alive
    op.keep_alive(t, k, v)
    t.returned.append(probabilities)
    return joined


def seen(t: Tape, bias: Tensor, scores: Tensor) -> Tensor:
    """Return the bias of the keys that there are: a slice of ALiBi's row for the whole context."""
    return op.split(t, bias, (*bias.shape[:-1], scores.shape[-1]))[0]


def multiplied(t: Tape, scores: Tensor, mask: Tensor) -> Tensor:
    """Return scores · mask - 10⁴ · (1 - mask)."""
    return op.add(t, op.multiply(t, scores, mask), op.mul_scalar(t, op.add_scalar(t, mask)))


def floored(t: Tape, scores: Tensor) -> Tensor:
    """Return the maximum of scores and a float32 tensor without dimensions. Saves both.

    Backward halves the gradient, compares the two twice, and selects.
    """
    least = t.tensor((), "float32", needs_grad=False)
    t.record("full", [], [least], by=floored)
    saved, temporary = [Saved(scores, "scores"), Saved(least, "least")], scores.bytes + 2 * product(scores.shape)
    return t.record("maximum", [scores, least], [op.like(t, scores)], saved, backward_temporary=temporary, by=floored)[0]


def masked(t: Tape, scores: Tensor, mask: Tensor) -> Tensor:
    """Fill scores by a mask, which is Boolean or hides where it is zero. Saves the Boolean one."""
    return op.masked_fill(t, scores, hidden(t, mask), "causal mask")


def hidden(t: Tape, mask: Tensor) -> Tensor:
    """Return a Boolean mask itself, or where another one is zero."""
    return mask if mask.dtype == "bool" else t.record("eq", [mask], [t.tensor(mask.shape, "bool", needs_grad=False)], by=hidden)[0]


def scores_with_sinks(t: Tape, scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Return scores [B, H, n, n], less their maximum in some classes, with a column for each head's sink."""
    B, H, n, _ = scores.shape
    if sinks:
        scores = op.cat(t, scores, op.expand(t, sinks.view(1, H, 1, 1), (B, H, n, 1), 0))
    return op.add(t, scores, largest(t, scores)) if t.modules.subtracts_largest else scores


def softmax_without_sinks(t: Tape, scores: Tensor, *, dropped: bool) -> Tensor:
    """Softmax of scores [B, H, n, n]; ``dropped``: without the last column, that of the sinks."""
    probabilities = op.softmax(t, scores)
    if dropped:
        (probabilities,) = op.split(t, probabilities, (*scores.shape[:-1], scores.shape[-1] - 1))
        probabilities.interleaved = True  # rows are slices of wider ones, heads stay adjacent
    probabilities.by_head = True
    return probabilities


def share_without_sinks(t: Tape, scores: Tensor, sinks: Tensor) -> Tensor:
    """Return the share [B, H, n, 1] of each row's softmax that its sink leaves (Granite)."""
    B, H, n, _ = scores.shape
    made = t.tensor((B, H, n, 1), scores.dtype)
    saved = [Saved(scores, "scores"), Saved(made, "logsumexp")]
    twice = 2 * scores.bytes  # grad · exp(scores - logsumexp)
    (made,) = t.record("logsumexp", [scores], [made], saved, backward_temporary=twice, by=share_without_sinks)
    return sigmoid(t, op.cast(t, op.add(t, made, sinks.view(1, H, 1, 1)), "float32"))


def largest(t: Tape, x: Tensor) -> Tensor:
    """Return the maximum of each row. Saves its index."""
    made, index = (t.tensor((*x.shape[:-1], 1), dtype) for dtype in (x.dtype, "int64"))
    return t.record("max", [x], [made, index], [Saved(index, "index")], by=largest)[0]
