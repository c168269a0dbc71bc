"""Mixtures of experts: routed experts as grouped matmuls, and shared experts.

Read from transformers 5.24: integrations/moe.py (grouped experts), and the classes named below.
"""

from __future__ import annotations

from functools import partial

from planner.spec.records import Experts, FeedForward, Norm
from planner.trace import blocks, expert_parallel, folded, routing
from planner.trace import primitives as op
from planner.trace.routers import router
from planner.trace.sizes import Size, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def experts(t: Tape, kind: Experts, x: Tensor) -> Tensor:
    """Route each token of x [B, n, d] to ``top_k`` experts; return their weighted sum plus the shared experts' output."""
    if t.modules.runs_all_experts:
        return all_of_them(t, kind, x)
    B, n, d = x.shape
    made = [shared(t, kind, kind.shared_d_ff, x)] if t.modules.shared_first and kind.shared_d_ff is not None else []
    with t.at("mlp", "experts"):
        flat = x.view(B * n, d)
        logits, weights, indices = router(t, kind, flat)
        inner = flat if kind.latent_dim is None else latent(t, flat, kind.latent_dim, "latent_down")
        run = expert_parallel.batched if t.batched_experts else t.implementation.experts or grouped
        routed = run(t, kind, inner, weights, indices)
        if kind.latent_dim is not None:
            routed = latent(t, routed, d, "latent_up")
        routed = op.mul_scalar(t, routed) if t.modules.scales == "output" else routed
        routed = routed.view(B, n, d)
    if kind.shared_d_ff is not None and not made:
        made = [shared(t, kind, kind.shared_d_ff, x)]
    summed = op.add(t, routed, gated(t, kind, x, made[0])) if made else routed
    op.keep_alive(t, x, weights, indices, *([] if t.batched_experts else [logits]))  # which modules of transformers return
    with t.at("mlp"):
        return blocks.norm(t, Norm("rmsnorm", bias=False), summed, "post_mlp_layernorm") if kind.output_norm else summed


def all_of_them(t: Tape, kind: Experts, x: Tensor) -> Tensor:
    """Run every expert on every token, times the sigmoid of its score, which is 0 unless chosen; add to the shared experts' output.

    Llama 4 (models/llama4/modeling_llama4.py). The model's own FLOPs are those of the chosen experts.
    """
    B, n, d = x.shape
    tokens, every = B * n, kind.count
    with t.at("mlp", "experts"):
        flat = x.view(tokens, d)
        with t.at("gate", "router"):
            logits = op.linear(t, flat, t.weight("weight", (every, d), "router: experts · d"))
            scores = routing.scattered(t, logits, kind.top_k)
            scores = op.cast(t, routing.sigmoid(t, op.cast(t, scores, "float32")), logits.dtype)
        with t.at("experts"):
            repeated = op.expand(t, flat, (every * tokens, d), 1)
            scored = op.multiply(t, repeated, op.contiguous(t, scores, 1).view(every * tokens, 1))
            hidden = batched(t, kind, scored.view(every, tokens, d), "gate_up_proj", 2 * kind.d_ff)
            gate, up = op.split(t, hidden, *[(every, tokens, kind.d_ff)] * 2)
            hidden = op.multiply(t, up, t.implementation.activation(t, kind.activation, gate))
            routed = batched(t, kind, hidden, "down_proj", d)
    made = gated(t, kind, x, shared(t, kind, kind.shared_d_ff, x)) if kind.shared_d_ff is not None else None
    with t.at("mlp", "experts"):
        summed = routing.sum_of_experts(t, routed).view(B, n, d)
        op.keep_alive(t, logits, scores, scored, routed)
        return op.add_in_place(t, made, summed) if made else summed


def batched(t: Tape, kind: Experts, x: Tensor, name: str, outputs: Size) -> Tensor:
    """Project the rows of every expert, x [experts, tokens, i], with its matrix."""
    every, tokens, width = x.shape
    shape = (every, outputs, width)
    w = t.weight(name, shape, "experts · out · in", active=active_share(kind, product(shape)))
    return routing.bmm(t, x, w.view(every, width, outputs), of_model=2 * routed_rows(kind, tokens) * width * outputs)


def latent(t: Tape, x: Tensor, outputs: Size, name: str) -> Tensor:
    """Project to or from the width of the experts, with one matrix for all of them."""
    with t.at("", "other"):
        return blocks.linear(t, x, outputs, name, bias=False)


def grouped(t: Tape, kind: Experts, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
    """Permute tokens by expert, apply two grouped matmuls, and combine the results weighted."""
    tokens, k = indices.shape
    d = x.shape[1]
    with t.at("experts"):
        stacks = adapted_stacks(t, kind, d)
        S = routed_rows(kind, tokens)
        sources, forth, owners = routing.sort_by_expert(t, indices, S)
        chosen = routing.index_select(t, x, sources)
        share = routing.index_select(t, weights.view(tokens * k), forth)
        ends, *counts = routing.ends_of_experts(t, owners, kind.count)
        name, outputs = ("gate_up_proj", 2 * kind.d_ff) if kind.gated else ("up_proj", kind.d_ff)
        bias = biases(t, kind, owners, name, outputs)
        hidden = projected(t, kind, chosen, ends, name, outputs, bias, stacks)
        if kind.gated:
            gate, up = op.split(t, hidden, (S, kind.d_ff), (S, kind.d_ff))
            hidden = clamped(t, gate, up) if t.modules.clamps_gate else t.implementation.gated(t, kind.activation, gate, lambda: up)
        else:
            hidden = t.implementation.activation(t, kind.activation, hidden)
        of_first, bias = bias, biases(t, kind, owners, "down_proj", d)
        op.keep_alive(t, *([of_first] if of_first else []))
        out = projected(t, kind, hidden, ends, "down_proj", d, bias, stacks)
        weighted = op.multiply(t, out, share.view(S, 1))
        summed = routing.unpermute(t, routing.index_select(t, weighted, routing.inverse(t, forth)), tokens)
        op.keep_alive(t, *(part for one in stacks.values() for part in (one.left, one.right)))
        op.keep_alive(t, chosen, share, ends, out, owners, forth, *counts, *([bias] if bias else []))
        return op.cast(t, summed, x.dtype)


def routed_rows(kind: Experts, tokens: Size) -> Size:
    """Return the rows that all experts compute: top_k per token, less those of zero-computation experts, times the capacity factor.

    The load is assumed to be balanced over all experts.
    """
    factor = kind.capacity_factor
    pairs = tokens * kind.top_k * kind.count * factor.numerator
    return pairs // ((kind.count + kind.empty) * factor.denominator)


def active_share(kind: Experts, elements: Size) -> Size:
    """Return how many elements of all experts' weights one token uses."""
    return elements * kind.top_k // (kind.count + kind.empty)


def clamped(t: Tape, gate: Tensor, up: Tensor) -> Tensor:
    """Return (up + 1) · gate · sigmoid(alpha · gate) of clamped gate and up (models/gpt_oss)."""
    of_both, gate, up = gate, op.clamp(t, gate), op.clamp(t, up)
    glu = op.multiply(t, gate, routing.sigmoid(t, op.mul_scalar(t, gate)))
    made = op.multiply(t, op.add_scalar(t, up), glu)
    op.keep_alive(t, of_both, gate, up, glu)
    return made


def biases(t: Tape, kind: Experts, owners: Tensor, name: str, outputs: Size) -> Tensor | None:
    """Return the bias of each sorted row, if experts have one. ``owners``: each row's expert."""
    if not kind.bias:
        return None
    shape = kind.count, outputs
    w = t.weight(f"{name}_bias", shape, "bias: experts · out", active=active_share(kind, product(shape)))
    return routing.index_select(t, w, owners)


def stack(t: Tape, kind: Experts, name: str, outputs: Size, inputs: Size) -> Tensor:
    """Return the matrices [E, out, in] of all experts."""
    shape = kind.count, outputs, inputs
    return t.weight(name, shape, "experts · out · in", active=active_share(kind, product(shape)))


def adapted_stacks(t: Tape, kind: Experts, d: Size) -> dict[str, folded.Factors]:
    """Return the matrices that have adapters, by name, in the order in which peft wraps them; gate and up have an adapter each."""
    tuned = folded.of_experts(t)
    if tuned is None:
        return {}
    return {
        name: folded.factors(t, tuned, name, stack(t, kind, name, outputs, inputs), rank)
        for name, outputs, inputs, rank in (
            ("down_proj", d, kind.d_ff, tuned.rank),
            ("gate_up_proj", 2 * kind.d_ff, d, 2 * tuned.rank),
        )
    }


def projected(
    t: Tape, kind: Experts, x: Tensor, ends: Tensor, name: str, outputs: Size, bias: Tensor | None, stacks: dict[str, folded.Factors]
) -> Tensor:
    """Project the sorted rows with each expert's matrix, and add their biases. ``ends``: of each expert's rows."""
    w = folded.summed(t, stacks[name]) if name in stacks else stack(t, kind, name, outputs, x.shape[1])
    made = routing.grouped_mm(t, x, w, ends, outputs)
    if name in stacks:
        t.returned.append(w)
    return op.add_in_place(t, made, bias) if bias else made


def shared(t: Tape, kind: Experts, d_ff: int, x: Tensor) -> Tensor:
    """Return the output of the shared experts."""
    ff = FeedForward(d_ff, kind.gated, kind.activation, gate_bias=False, up_bias=False, down_bias=False)
    with t.at("mlp", "shared_experts"):
        own_dropout = not t.implementation.experts  # else on the sum with routed experts
        run = partial(blocks.feed_forward, t, ff, name="shared_experts", component="shared_experts", drops=own_dropout)
        again = t.recomputes("shared_experts") and not t.recomputes("moe")
        return t.checkpoint(run, x, whole=True) if again else run(x)


def gated(t: Tape, kind: Experts, x: Tensor, made: Tensor) -> Tensor:
    """Return the output of the shared experts, weighted by their gate if they have one."""
    if not kind.shared_gate:
        return made
    with t.at("mlp", "shared_experts"):
        with t.at("", "router"):
            gate = routing.sigmoid(t, blocks.linear(t, x, 1, "shared_expert_gate", bias=False))
        return op.multiply(t, gate, made)
