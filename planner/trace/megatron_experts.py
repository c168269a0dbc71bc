"""Routed experts of Megatron-Core 0.20: core/transformer/moe: experts.py (TEGroupedMLP), moe_utils.py, moe_layer.py, token_dispatcher.py.

Experts are grouped products of Transformer Engine's GroupedLinear; the permutation is not fused, and no auxiliary loss is counted. If
several devices have a layer's experts, or parts of their matrices, tokens are sent to them (MoEAlltoAllTokenDispatcher), balanced.
"""

from __future__ import annotations

from dataclasses import replace

from planner.spec.records import Experts
from planner.trace import primitives as op
from planner.trace import routing
from planner.trace.expert_parallel import exchanged, fullest
from planner.trace.experts import active_share, routed_rows
from planner.trace.megatron_linear import accumulates, keep_dummy
from planner.trace.nodes import Saved, Sent
from planner.trace.sizes import Size, product, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError


def experts(t: Tape, kind: Experts, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
    """Sort the tokens of x [tokens, d] by expert, project them twice, and add each token's results, weighted inside the activation."""
    if t.training.float8:
        raise UnsupportedError("experts in float8 are not modeled under megatron-core; write float8: false")
    tokens = indices.shape[0]
    with t.at("experts"):
        S = routed_rows(kind, tokens)
        shape = (tokens, kind.count + kind.empty)
        (scattered,) = t.record(
            "scatter", [weights, indices], [t.tensor(shape, weights.dtype)], [Saved(indices, "chosen experts")], by=experts
        )
        order, sources = t.record("sort", [indices], [t.tensor((S,), "int64", needs_grad=False) for _ in range(2)], by=experts)
        share = routing.index_select(t, scattered.view(product(shape)), order)
        permuted = routing.index_select(t, x, sources)
        sent = exchanged(t, permuted, fullest(t, S))
        rows, share = gathered(t, kind, sent), gathered(t, kind, exchanged(t, share, fullest(t, S)))
        mine = replace(kind, d_ff=kind.d_ff // t.expert_tensor_degree)
        hidden = grouped_linear(t, mine, rows, "gate_up_proj" if kind.gated else "up_proj", mine.d_ff * (1 + kind.gated))

        def down(hidden: Tensor, share: Tensor) -> Tensor:
            return grouped_linear(t, mine, weighted(t, mine, hidden, share), "down_proj", x.shape[1])

        again = t.recomputes("moe_act") and not t.recomputes("moe")  # of the activation alone, for the product that saves it
        out = combined(t, kind, t.checkpoint(down, hidden, share, whole=False) if again else down(hidden, share), S)
        op.keep_alive(t, permuted, sent)  # variables of the layer
        made = t.tensor(x.shape, out.dtype)
        return t.record("scatter_add", [out, sources], [made], [Saved(sources, "tokens")], by=experts)[0]


def gathered(t: Tape, kind: Experts, x: Tensor) -> Tensor:
    """Gather rows x [S, ..], which have been exchanged, on the devices that share the matrices of an expert, and sort them by expert."""
    if (degree := t.expert_tensor_degree) > 1:
        made = t.tensor((x.shape[0] * degree, *x.shape[1:]), x.dtype)
        sends = [Sent("all-gather", made.bytes, "forward", "experts"), Sent("reduce-scatter", made.bytes, "backward", "experts")]
        (x,) = t.record("all-gather", [x], [made], sends=sends, by=gathered)
    return by_expert(t, kind, x)


def combined(t: Tape, kind: Experts, x: Tensor, rows: Size) -> Tensor:
    """Sort rows x by device again, reduce them on devices that share matrices, and exchange them back for the device's own ``rows``."""
    x = by_expert(t, kind, x)
    if (degree := t.expert_tensor_degree) > 1:
        made = t.tensor((x.shape[0] // degree, *x.shape[1:]), x.dtype)
        sends = [Sent("reduce-scatter", x.bytes, "forward", "experts"), Sent("all-gather", x.bytes, "backward", "experts")]
        (x,) = t.record("reduce-scatter", [x], [made], sends=sends, by=combined)
    return exchanged(t, x, rows)


def by_expert(t: Tape, kind: Experts, x: Tensor) -> Tensor:
    """Sort chunks of rows, which arrived by device, by expert, or back: a copy, if devices share experts and have several."""
    if structure(t.expert_degree) * t.expert_tensor_degree == 1 or structure(kind.count // t.expert_degree) == 1:
        return x
    return t.record("sort_chunks", [x], [op.like(t, x)], by=by_expert)[0]


def weighted(t: Tape, kind: Experts, hidden: Tensor, share: Tensor) -> Tensor:
    """Return the activation of the hidden rows times each row's weight, in one kernel (WeightedSwiGLUFunction). Saves both."""
    name = f"weighted {kind.activation}{' gate' if kind.gated else ''}"
    saved = [Saved(hidden, "gate and up" if kind.gated else "input"), Saved(share, "weights of tokens")]
    return t.record(name, [hidden, share], [t.tensor((hidden.shape[0], kind.d_ff), hidden.dtype)], saved, by=weighted)[0]


def grouped_linear(t: Tape, kind: Experts, x: Tensor, name: str, outputs: Size) -> Tensor:
    """Multiply each expert's rows of x [S, i] by its matrix [o, i], and add its bias. 2·S·i·o FLOPs; saves what linear does."""

    def weight(name: str, shape: tuple[Size, ...], why: str) -> Tensor:
        return t.weight(name, shape, why, active=active_share(kind, product(shape)))

    count = kind.count // t.expert_degree
    w = weight(name, (count, outputs, x.shape[1]), "experts · out · in")
    b = weight(f"{name}_bias", (count, outputs), "bias: experts · out") if kind.bias else None
    keep_dummy(t, (outputs, x.shape[1]))
    x, w = op.cast_lower_precision(t, x), op.cast_lower_precision(t, w)
    made = t.tensor((x.shape[0], outputs), x.dtype)
    flops = op.products(x, w, 2 * x.shape[0] * x.shape[1] * outputs, "2 · rows · in · out")
    saved = op.factors((x, "input"), (w, "weight"))
    inputs = [x, w, b] if b else [x, w]
    return t.record("grouped_linear", inputs, [made], saved, flops, accumulated=accumulates(t, w), by=grouped_linear)[0]
