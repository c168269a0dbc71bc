"""Routed experts of Megatron-Core 0.20 on one device: core/transformer/moe: experts.py (TEGroupedMLP), moe_utils.py, token_dispatcher.py.

Experts are grouped products of Transformer Engine's GroupedLinear; the permutation is not fused, and no auxiliary loss is counted.
"""

from __future__ import annotations

from planner.spec.records import Experts
from planner.trace import primitives as op
from planner.trace import routing
from planner.trace.experts import active_share, routed_rows
from planner.trace.megatron_linear import accumulates, keep_dummy
from planner.trace.nodes import Saved
from planner.trace.sizes import Size, product
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
        hidden = grouped_linear(
            t, kind, routing.index_select(t, x, sources), "gate_up_proj" if kind.gated else "up_proj", kind.d_ff * (1 + kind.gated)
        )

        def down(hidden: Tensor, share: Tensor) -> Tensor:
            return grouped_linear(t, kind, weighted(t, kind, hidden, share), "down_proj", x.shape[1])

        again = t.recomputes("moe_act") and not t.recomputes("moe")  # of the activation alone, for the product that saves it
        out = t.checkpoint(down, hidden, share, whole=False) if again else down(hidden, share)
        made = t.tensor(x.shape, out.dtype)
        return t.record("scatter_add", [out, sources], [made], [Saved(sources, "tokens")], by=experts)[0]


def weighted(t: Tape, kind: Experts, hidden: Tensor, share: Tensor) -> Tensor:
    """Return the activation of the hidden rows times each row's weight, in one kernel (WeightedSwiGLUFunction). Saves both."""
    name = f"weighted {kind.activation}{' gate' if kind.gated else ''}"
    saved = [Saved(hidden, "gate and up" if kind.gated else "input"), Saved(share, "weights of tokens")]
    return t.record(name, [hidden, share], [t.tensor((hidden.shape[0], kind.d_ff), hidden.dtype)], saved, by=weighted)[0]


def grouped_linear(t: Tape, kind: Experts, x: Tensor, name: str, outputs: Size) -> Tensor:
    """Multiply each expert's rows of x [S, i] by its matrix [o, i], and add its bias. 2·S·i·o FLOPs; saves what linear does."""

    def weight(name: str, shape: tuple[Size, ...], why: str) -> Tensor:
        return t.weight(name, shape, why, active=active_share(kind, product(shape)))

    w = weight(name, (kind.count, outputs, x.shape[1]), "experts · out · in")
    b = weight(f"{name}_bias", (kind.count, outputs), "bias: experts · out") if kind.bias else None
    keep_dummy(t, (outputs, x.shape[1]))
    x, w = op.cast_lower_precision(t, x), op.cast_lower_precision(t, w)
    made = t.tensor((x.shape[0], outputs), x.dtype)
    flops = op.products(x, w, 2 * x.shape[0] * x.shape[1] * outputs, "2 · rows · in · out")
    saved = op.factors((x, "input"), (w, "weight"))
    inputs = [x, w, b] if b else [x, w]
    return t.record("grouped_linear", inputs, [made], saved, flops, accumulated=accumulates(t, w), by=grouped_linear)[0]
