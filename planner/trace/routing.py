"""The operators that route tokens to experts and back: top-k, gathers by index, grouped matmuls.

S is the number of (token, expert) pairs: tokens · top_k without zero-computation experts. Indices are int64; operators that read with them
save them.
"""

from __future__ import annotations

from planner.trace.nodes import Saved
from planner.trace.primitives import cast_fp32, cast_lower_precision, clamp, divide, factors, like, products, promote
from planner.trace.sizes import Size, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def sigmoid(t: Tape, x: Tensor) -> Tensor:
    """Apply 1 / (1 + exp(-x)). Saves its output."""
    made = like(t, x)
    return t.record("sigmoid", [x], [made], [Saved(made, "output")], by=sigmoid)[0]


def topk(t: Tape, scores: Tensor, k: Size) -> tuple[Tensor, Tensor]:
    """Return the k largest of [tokens, E] and their indices, both [tokens, k]. Saves the indices."""
    shape = (scores.shape[0], k)
    values, indices = t.tensor(shape, scores.dtype), t.tensor(shape, "int64", needs_grad=False)
    t.record("topk", [scores], [values, indices], [Saved(indices, "chosen experts")], by=topk)
    return values, indices


def topk_indices(t: Tape, scores: Tensor, k: Size) -> Tensor:
    """Return only the top-k indices [tokens, k] (no gradient). Saves nothing."""
    return t.record("topk", [scores], [t.tensor((scores.shape[0], k), "int64", needs_grad=False)], by=topk_indices)[0]


def gather(t: Tape, scores: Tensor, indices: Tensor) -> Tensor:
    """Return scores [tokens, E] at indices [tokens, k]. Saves both."""
    saved = [Saved(scores, "scores"), Saved(indices, "chosen experts")]
    return t.record("gather", [scores, indices], [t.tensor(indices.shape, scores.dtype)], saved, by=gather)[0]


def normalize(t: Tape, scores: Tensor) -> Tensor:
    """Divide [tokens, k] in place by its sum over k, which autocast computes in float32. Saves a copy of the dividend, and the sums."""
    wide = cast_fp32(t, scores)
    sums = t.tensor((scores.shape[0], 1), wide.dtype)
    t.record("sum", [wide], [sums], by=normalize)
    dividend, made = t.tensor(scores.shape, scores.dtype), t.tensor(scores.shape, scores.dtype)
    saved = [Saved(dividend, "dividend"), Saved(sums, "divisor")]
    return t.record("div_", [scores, sums], [made, dividend], saved, by=normalize)[0]


def divide_by_sum(t: Tape, scores: Tensor, *, clamped: bool = False) -> Tensor:
    """Divide [tokens, k] by its sum over k, which autocast computes in float32. Saves both; and the sum if it is clamped."""
    wide = cast_fp32(t, scores)
    sums = t.tensor((scores.shape[0], 1), wide.dtype)
    t.record("sum", [wide], [sums], by=divide_by_sum)
    if clamped:
        sums = clamp(t, sums)
    return divide(t, scores, sums)


def sort_by_expert(t: Tape, indices: Tensor, S: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Sort S pairs by expert. Return each pair's token, the permutation, and each pair's expert, all [S]."""
    tokens, forth, owners = (t.tensor((S,), "int64", needs_grad=False) for _ in range(3))
    t.record("sort", [indices], [owners, forth, tokens], by=sort_by_expert)
    return tokens, forth, owners


def ends_of_experts(t: Tape, owners: Tensor, count: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Return the end of each expert's rows [E], the number of its rows [E], and each row's expert [S], all int32."""
    shapes = (count,), (count,), owners.shape
    ends, counts, narrow = (t.tensor(shape, "int32", needs_grad=False) for shape in shapes)
    t.record("histogram", [owners], [narrow, counts, ends], by=ends_of_experts)
    return ends, counts, narrow


def inverse(t: Tape, permutation: Tensor) -> Tensor:
    """Return the inverse of a permutation [S], filled by the indices from 0 on."""
    made = t.tensor(permutation.shape, "int64", needs_grad=False)
    return t.record("inverse", [permutation], [made], temporary=made.bytes, by=inverse)[0]


def index_select(t: Tape, x: Tensor, index: Tensor) -> Tensor:
    """Return x [tokens, ..] at index [S] -> [S, ..]. Saves the index."""
    made = t.tensor((*index.shape, *x.shape[1:]), x.dtype)
    return t.record("index", [x, index], [made], [Saved(index, "index")], by=index_select)[0]


def grouped_mm(t: Tape, x: Tensor, w: Tensor, ends: Tensor, outputs: Size) -> Tensor:
    """Multiply each expert's rows of x [S, i] by its matrix in w [E, o, i] -> [S, o]. 2·S·i·o FLOPs.

    Saves what linear does, and the ends. Autocast does not cast it (transformers 5.24, torch._grouped_mm): it runs in the dtype of x and w.
    """
    made = t.tensor((x.shape[0], outputs), promote(x, w))
    flops = products(x, w, 2 * x.shape[0] * x.shape[1] * outputs, "2 · rows · in · out")
    saved = [*factors((x, "input"), (w, "weight")), Saved(ends, "ends of experts' rows")]
    return t.record("grouped_mm", [x, w], [made], saved, flops, by=grouped_mm)[0]


def unpermute(t: Tape, x: Tensor, tokens: Size) -> Tensor:
    """Add the k results of each token: [S, d] -> [tokens, d]. Saves nothing."""
    return t.record("sum", [x], [t.tensor((tokens, x.shape[1]), x.dtype)], by=unpermute)[0]


def scattered(t: Tape, scores: Tensor, k: Size) -> Tensor:
    """Return scores [tokens, E] with negative infinity in place of all but the k largest of each row. Saves the indices of these."""
    values, indices = topk(t, scores, k)
    return t.record("scatter", [values, indices], [like(t, scores)], [Saved(indices, "chosen experts")], by=scattered)[0]


def bmm(t: Tape, x: Tensor, w: Tensor, *, of_model: Size) -> Tensor:
    """Multiply x [E, tokens, i] by w [E, i, o] -> [E, tokens, o]. 2·E·tokens·i·o FLOPs, of which the model's are ``of_model``.

    Saves what linear does.
    """
    x, w = cast_lower_precision(t, x), cast_lower_precision(t, w)
    flops = products(x, w, 2 * product(x.shape) * w.shape[-1], "2 · experts · tokens · in · out", (of_model, of_model))
    made = t.tensor((*x.shape[:-1], w.shape[-1]), x.dtype)
    return t.record("bmm", [x, w], [made], factors((x, "input"), (w, "weight")), flops, by=bmm)[0]


def sum_of_experts(t: Tape, x: Tensor) -> Tensor:
    """Add the results of all experts, to float32 with autocast: [E, tokens, d] -> [tokens, d]. Saves nothing; its gradient is a view."""
    made = t.tensor(x.shape[1:], "float32" if t.precision.autocast else x.dtype)
    return t.record("sum", [x], [made], passes_gradient=True, views_gradient=True, by=sum_of_experts)[0]
