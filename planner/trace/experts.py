"""Mixtures of experts: a router, routed experts in grouped matrix products, and shared experts.

Read from transformers 5.24: models/mixtral, models/qwen3_moe and models/deepseek_v3 (routers), integrations/moe.py (grouped experts).
"""

from __future__ import annotations

from planner.spec.precision import Dtype
from planner.spec.records import Experts, FeedForward
from planner.trace import blocks, routing
from planner.trace import primitives as op
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def experts(t: Tape, kind: Experts, x: Tensor) -> Tensor:
    """Send each token of x [B, n, d] to ``top_k`` of the experts, and add their results, weighted, and the shared experts'."""
    B, n, d = x.shape
    with t.at("mlp", "experts"):
        flat = x.view(B * n, d)
        weights, places = router(t, kind, flat)
        inner = flat if kind.latent_dim is None else latent(t, flat, kind.latent_dim, "latent_down")
        routed = grouped(t, kind, inner, weights, places)
        if kind.latent_dim is not None:
            routed = latent(t, routed, d, "latent_up")
        routed = routed.view(B, n, d)
    return routed if kind.shared_d_ff is None else op.add(t, routed, shared(t, kind, kind.shared_d_ff, x))


def latent(t: Tape, x: Tensor, outputs: Size, name: str) -> Tensor:
    """Project to or from the width at which the experts work: one matrix for all of them."""
    with t.at("", "other"):
        return blocks.linear(t, x, outputs, name, bias=False)


def router(t: Tape, kind: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights and the places of each token's experts, both [tokens, k]."""
    count = kind.count + kind.empty
    with t.at("gate", "router"):
        dtype: Dtype | None = "float32" if kind.scoring == "sigmoid" else None  # DeepSeek-V3's router insists on it
        w = t.weight("weight", (count, x.shape[1]), "router: experts · d", dtype=dtype)
        b = t.weight("bias", (count,), "bias: experts") if kind.router_bias else None
        if kind.correction_bias == "parameter":
            t.weight("e_score_correction_bias", (count,), "correction of the scores: experts")
        if kind.correction_bias == "buffer":
            t.buffer("e_score_correction_bias", (count,), "float32")
        if kind.scoring == "sigmoid":
            scores = routing.sigmoid(t, op.linear(t, op.cast(t, x, "float32"), op.cast(t, w, "float32"), b))
            places = routing.places_of_top_k(t, scores, kind.top_k)
            weights = routing.gather(t, scores, places)
            weights = routing.normalize(t, weights) if kind.normalize else weights
            return op.scale(t, weights), places
        logits = op.linear(t, x, w, b)
        scores = op.softmax(t, op.cast(t, logits, "float32"))
        weights, places = routing.top_k(t, scores, kind.top_k)
        weights = routing.normalize(t, weights) if kind.normalize else weights
        return op.cast(t, weights, logits.dtype) if kind.scores_dtype == "compute" else weights, places


def grouped(t: Tape, kind: Experts, x: Tensor, weights: Tensor, places: Tensor) -> Tensor:
    """Return the weighted sum of each token's experts: rows sorted by expert, two grouped products, and back."""
    tokens, k = places.shape
    d = x.shape[1]
    with t.at("experts"):
        S = routed_rows(kind, tokens)
        sources, forth, back, ends = routing.order(t, places, S, kind.count)
        chosen = routing.rows(t, x, sources)
        share = routing.rows(t, weights.view(tokens * k), forth)
        hidden = projected(t, kind, chosen, ends, "gate_up_proj" if kind.gated else "up_proj", kind.d_ff * (2 if kind.gated else 1))
        if kind.gated:
            gate, up = op.split(t, hidden, (S, kind.d_ff), (S, kind.d_ff))
            hidden = t.implementation.gated(t, kind.activation, gate, lambda: up)
        else:
            hidden = t.implementation.activation(t, kind.activation, hidden)
        out = projected(t, kind, hidden, ends, "down_proj", d)
        weighted = op.multiply(t, out, share.view(S, 1))
        summed = routing.sum_over_choices(t, routing.rows(t, weighted, back), tokens)
        return op.cast(t, summed, x.dtype)


def routed_rows(kind: Experts, tokens: Size) -> Size:
    """Return the rows that all experts compute: top_k for each token, less those that go to empty experts, times the capacity factor.

    The load is taken as balanced over real and empty experts.
    """
    factor = kind.capacity_factor
    pairs = tokens * kind.top_k * kind.count * factor.numerator
    return pairs // ((kind.count + kind.empty) * factor.denominator)


def projected(t: Tape, kind: Experts, x: Tensor, ends: Tensor, name: str, outputs: Size) -> Tensor:
    """Project the sorted rows with each expert's matrix, and add its bias."""
    active = kind.count * outputs * x.shape[1] * kind.top_k // (kind.count + kind.empty)
    w = t.weight(name, (kind.count, outputs, x.shape[1]), "experts · out · in", active=active)
    made = routing.grouped_linear(t, x, w, ends, outputs)
    if kind.bias:
        b = t.weight(
            f"{name}_bias",
            (kind.count, outputs),
            "bias: experts · out",
            active=kind.count * outputs * kind.top_k // (kind.count + kind.empty),
        )
        made = op.add(t, made, routing.rows(t, b, ends).view(1, outputs))
    return made


def shared(t: Tape, kind: Experts, d_ff: int, x: Tensor) -> Tensor:
    """Return the feed-forward that every token takes, weighted by a gate of its own where it has one."""
    ff = FeedForward(d_ff, kind.gated, kind.activation, gate_bias=False, up_bias=False, down_bias=False)
    with t.at("mlp", "shared_experts"):
        made = blocks.feed_forward(t, ff, x, name="shared_experts", component="shared_experts")
        if kind.shared_gate:
            with t.at("", "router"):
                gate = routing.sigmoid(t, blocks.linear(t, x, 1, "shared_expert_gate", bias=False))
            made = op.multiply(t, gate, made)
        return made
