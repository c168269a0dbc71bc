"""Routers of mixtures of experts: the weights and indices of each token's experts.

Read from transformers 5.24: models/*/modeling_*.py. ``planner.trace.classes`` lists how the classes differ.
"""

from __future__ import annotations

from contextlib import nullcontext

from planner.spec.precision import Dtype
from planner.spec.records import Experts
from planner.trace import primitives as op
from planner.trace import routing
from planner.trace.folded import of_router
from planner.trace.nodes import Saved
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

ROUNDS = 2  # of PhiMoE's choice, one expert each


def router(t: Tape, kind: Experts, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of all experts [tokens, E], and the weights and indices of each token's experts, both [tokens, k]."""
    count, its = kind.count + kind.empty, t.modules
    with t.at("gate", "router"):
        wide = kind.scoring == "sigmoid" if its.router == "by_scoring" else its.router in {"float32", "cast"}  # DeepSeek-V3's: float32
        w = t.weight("weight", (count, x.shape[1]), "router: experts · d", dtype="float32" if wide and its.router != "cast" else None)
        b = t.weight("bias", (count,), "bias: experts") if kind.router_bias else None
        w, alive = of_router(t, w)
        store_correction(t, kind, count, "float32" if wide or its.correction_in_float32 else w.dtype)
        with t.without_autocast() if its.router_without_autocast else nullcontext():
            logits = op.linear(t, op.cast(t, x, "float32"), op.cast(t, w, "float32"), b) if wide else op.linear(t, x, w, b)
            op.keep_alive(t, *alive)
            if its.sparse_mixer:
                return logits, *sparse_mixer(t, logits)
            if its.scores_chosen != "none":
                weights, indices = of_chosen(t, kind, logits)
                return logits, op.cast(t, weights, x.dtype) if "float32" in its.scores_chosen else weights, indices
            weights, indices = of_all(t, kind, logits)
        if kind.scores_dtype == "compute":
            weights = op.cast(t, weights, x.dtype if its.scores_like_input else logits.dtype)
        scales = kind.scoring == "sigmoid" if its.scales == "by_scoring" else its.scales == "weights"
        return logits, op.mul_scalar(t, weights) if scales else weights, indices


def store_correction(t: Tape, kind: Experts, count: Size, dtype: Dtype) -> None:
    """Store what corrects the scores when experts are chosen: a buffer, or a parameter without gradient."""
    name = "e_score_correction_bias"
    if kind.correction_bias == "parameter":
        t.weight(name, (count,), "correction of the scores: experts", dtype=dtype, trains=False)
    if kind.correction_bias == "buffer":
        t.buffer(name, (count,), dtype)


def of_all(t: Tape, kind: Experts, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and indices by the scores of all experts: softmax or sigmoid of their logits [tokens, E]."""
    sigmoid = kind.scoring == "sigmoid"
    casts = t.modules.router == "compute" if sigmoid else t.modules.router != "uncast"
    wide = op.cast(t, logits, "float32") if casts else logits
    scores = routing.sigmoid(t, wide) if sigmoid else op.softmax(t, wide)
    if sigmoid or t.modules.gathers_scores:
        indices = routing.topk_indices(t, scores, kind.top_k)
        weights = routing.gather(t, scores, indices)
    else:
        weights, indices = routing.topk(t, scores, kind.top_k)
    return normalized(t, weights) if kind.normalize else weights, indices


def of_chosen(t: Tape, kind: Experts, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and indices of the experts with the largest logits [tokens, E]: softmax or sigmoid of these logits alone."""
    when = t.modules.scores_chosen
    if when == "gathered":
        indices = routing.topk_indices(t, logits, kind.top_k)
        scores = routing.sigmoid(t, routing.gather(t, logits, indices))
        return op.mul_scalar(t, routing.divide_by_sum(t, scores) if kind.normalize else scores), indices
    chosen, indices = routing.topk(t, op.cast(t, logits, "float32") if when == "float32" else logits, kind.top_k)
    if kind.scoring == "sigmoid":
        scores = routing.sigmoid(t, chosen)
        return routing.divide_by_sum(t, scores) if kind.normalize else scores, indices
    with nullcontext() if when == "autocast" else t.without_autocast():
        return op.softmax(t, op.cast(t, chosen, "float32") if when == "chosen_in_float32" else chosen), indices


def normalized(t: Tape, weights: Tensor) -> Tensor:
    """Divide the weights [tokens, k] by their sums as the class does."""
    how = t.modules.normalization
    return routing.normalize(t, weights) if how == "in_place" else routing.divide_by_sum(t, weights, clamped=how == "clamped")


def sparse_mixer(t: Tape, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Choose one expert after the other: each by the softmax of logits whose others are masked (models/phimoe, sparsemixer).

    A function of its own derives the weights: no gradient reaches the softmax, whose graph stays alive.
    """
    tokens, _ = logits.shape
    scores, weights, chosen = logits, list[Tensor](), list[Tensor]()
    for _ in range(ROUNDS):
        (mask,) = t.record("gt", [], [t.tensor(logits.shape, "bool", needs_grad=False)], by=sparse_mixer)
        masked = op.masked_fill(t, scores, mask)
        (index,) = t.record("max", [masked], [t.tensor((tokens, 1), "int64", needs_grad=False)], by=sparse_mixer)
        gates = op.softmax(t, masked)
        gate = routing.gather(t, gates, index)
        saved = [Saved(gate, "gates of chosen experts"), Saved(index, "chosen experts"), Saved(gates, "gates")]
        weights += t.record("multiplier", [logits], [op.like(t, gate)], saved, by=sparse_mixer)
        chosen.append(index)
        (scores,) = t.record("scatter", [logits, index], [op.like(t, logits)], [Saved(index, "chosen experts")], by=sparse_mixer)
    return op.cat(t, *weights), op.cat(t, *chosen)
