"""The operators that send tokens to experts and back: top-k, gathers by index, grouped matrix products.

S is the number of (token, expert) pairs, tokens · top_k where all experts are real. Indices are int64 and are kept by what reads with them.
"""

from __future__ import annotations

from planner.trace.primitives import factors, like, products, promote, raised
from planner.trace.sizes import Size
from planner.trace.tape import Saved, Tape
from planner.trace.tensor import Tensor


def sigmoid(t: Tape, x: Tensor) -> Tensor:
    """Apply 1 / (1 + exp(-x)). Keeps its output."""
    made = like(t, x)
    t.record("sigmoid", [x], [made], [Saved(made, "output")], by=sigmoid)
    return made


def top_k(t: Tape, scores: Tensor, k: Size) -> tuple[Tensor, Tensor]:
    """Return the k largest of [tokens, E] and their places, both [tokens, k]. Keeps the places."""
    shape = (scores.shape[0], k)
    values, places = t.tensor(shape, scores.dtype), t.tensor(shape, "int64", needs_grad=False)
    t.record("topk", [scores], [values, places], [Saved(places, "chosen experts")], by=top_k)
    return values, places


def places_of_top_k(t: Tape, scores: Tensor, k: Size) -> Tensor:
    """Return only the places of the k largest: no gradient runs through the choice."""
    places = t.tensor((scores.shape[0], k), "int64", needs_grad=False)
    t.record("topk", [scores], [places], by=places_of_top_k)
    return places


def gather(t: Tape, scores: Tensor, places: Tensor) -> Tensor:
    """Return scores [tokens, E] at places [tokens, k]. Keeps both."""
    made = t.tensor(places.shape, scores.dtype)
    t.record("gather", [scores, places], [made], [Saved(scores, "scores"), Saved(places, "chosen experts")], by=gather)
    return made


def normalize(t: Tape, scores: Tensor) -> Tensor:
    """Divide [tokens, k] in place by its sum over k, which autocast makes in float32. Keeps a copy of the dividend, and the sums."""
    wide = raised(t, scores)
    sums = t.tensor((scores.shape[0], 1), wide.dtype)
    t.record("sum", [wide], [sums], by=normalize)
    dividend, made = t.tensor(scores.shape, scores.dtype), t.tensor(scores.shape, scores.dtype)
    t.record("div_", [scores, sums], [made, dividend], [Saved(dividend, "dividend"), Saved(sums, "divisor")], by=normalize)
    return made


def order(t: Tape, places: Tensor, S: Size, count: Size) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sort S pairs by expert: the token of each pair, the order, its inverse, all [S], and the end of each expert's rows [E]."""
    tokens, forth, back = (t.tensor((S,), "int64", needs_grad=False) for _ in range(3))
    ends = t.tensor((count,), "int32", needs_grad=False)
    t.record("sort", [places], [tokens, forth, back, ends], by=order)
    return tokens, forth, back, ends


def rows(t: Tape, x: Tensor, index: Tensor) -> Tensor:
    """Return x [tokens, ..] at index [S] -> [S, ..]. Keeps the index."""
    made = t.tensor((*index.shape, *x.shape[1:]), x.dtype)
    t.record("index", [x, index], [made], [Saved(index, "index")], by=rows)
    return made


def grouped_linear(t: Tape, x: Tensor, w: Tensor, ends: Tensor, outputs: Size) -> Tensor:
    """Multiply each expert's rows of x [S, i] by its matrix in w [E, o, i] -> [S, o]. 2·S·i·o FLOPs; keeps as a linear does, and the ends.

    Autocast does not lower it (transformers 5.24, torch._grouped_mm): it runs in the dtype of x and w.
    """
    made = t.tensor((x.shape[0], outputs), promote(x, w))
    flops = products(x, w, 2 * x.shape[0] * x.shape[1] * outputs, "2 · rows · in · out")
    saved = [*factors((x, "input"), (w, "weight")), Saved(ends, "ends of experts' rows")]
    t.record("grouped_mm", [x, w], [made], saved, flops, by=grouped_linear)
    return made


def sum_over_choices(t: Tape, x: Tensor, tokens: Size) -> Tensor:
    """Add the k results of each token: [S, d] -> [tokens, d]. Keeps nothing."""
    made = t.tensor((tokens, x.shape[1]), x.dtype)
    t.record("sum", [x], [made], by=sum_over_choices)
    return made
