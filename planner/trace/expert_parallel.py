"""Experts that devices share: tokens are sent to the devices of their experts, and the results back, by all-to-alls.

Every device computes the router and all else for its own tokens. Each token is copied to the rows of its experts in a buffer with equally
many rows per expert; every expert multiplies its rows, of all devices, in one batched product; the results are gathered, weighted and
summed (the dispatch of GShard, Lepikhin et al. 2020, arXiv:2006.16668, by indices). The all-to-alls are autograd functions around
torch.distributed.all_to_all_single, whose backward pass is one too.

On one device, nothing is sent, and ``experts_kernel: batched`` runs the rest.
"""

from __future__ import annotations

from functools import partial

from planner.spec.records import Experts
from planner.trace import primitives as op
from planner.trace import routing
from planner.trace.nodes import Saved, Sent
from planner.trace.sizes import Size, ceil_div, product, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError


def batched(t: Tape, kind: Experts, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
    """Return the weighted sum of experts' outputs for x [tokens, d]; ``weights`` and ``indices`` [tokens, k] of each token's experts."""
    for what, is_set in {"experts.bias": kind.bias, "experts.empty": kind.empty, "experts.latent_dim": kind.latent_dim}.items():
        if is_set:
            raise UnsupportedError(f"{what} with batched experts is not modeled yet")
    tokens, k = indices.shape
    pairs, factor, local = tokens * k, kind.capacity_factor, kind.count // t.expert_degree
    each = ceil_div(pairs * factor.numerator, kind.count * factor.denominator)  # rows of an expert
    with t.at("experts"):
        slots, owners = rows_of_pairs(t, indices, pairs)
        sent = filled(t, routing.index_select(t, x, owners), slots, kind.count * each)
        rows = exchanged(t, sent, local * fullest(t, each * t.expert_degree))
        rows = regrouped(t, rows, local)
        made = computed(t, kind, rows, local)
        op.keep_alive(t, rows)
        made = exchanged(t, regrouped(t, made, None), kind.count * each)
        weighted = op.multiply(t, routing.index_select(t, made, slots), weights.view(pairs, 1))
        summed = added(t, weighted, owners, tokens)
        made = op.cast(t, summed, x.dtype)
        op.keep_alive(t, indices, weights, slots, sent, weighted, summed)
        return made


def fullest(t: Tape, rows: Size) -> Size:
    """Return how many rows the device with the most gets, where devices get ``rows`` on average."""
    ratio = t.training.layout.imbalance if t.training.layout else 1
    return ceil_div(rows * ratio.numerator, ratio.denominator)


def rows_of_pairs(t: Tape, indices: Tensor, pairs: Size) -> tuple[Tensor, Tensor]:
    """Return each pair's row in the buffer, by sorting its expert, and its token, both [pairs]."""
    slots, owners = (t.tensor((pairs,), "int64", needs_grad=False) for _ in range(2))
    t.record("slots", [indices], [slots, owners], temporary=slots.bytes, by=rows_of_pairs)
    return slots, owners


def filled(t: Tape, x: Tensor, slots: Tensor, rows: Size) -> Tensor:
    """Copy x [pairs, d] to rows of zeros. Saves x, of which backward needs the shape alone, and the rows' indices."""
    saved = [Saved(slots, "index"), Saved(x, "source")]
    return t.record("index_copy_", [x, slots], [t.tensor((rows, x.shape[1]), x.dtype)], saved, by=filled)[0]


def exchanged(t: Tape, x: Tensor, rows: Size) -> Tensor:
    """Send rows of x to the devices of their experts, or back, and receive others. Saves nothing; backward sends the gradients back."""
    if structure(t.expert_degree) == 1:
        return x
    made = t.tensor((rows, *x.shape[1:]), x.dtype)
    sends = [Sent("all-to-all", x.bytes, "forward", "experts"), Sent("all-to-all", made.bytes, "backward", "experts")]
    return t.record("all-to-all", [x], [made], sends=sends, by=exchanged)[0]


def regrouped(t: Tape, x: Tensor, experts: Size | None) -> Tensor:
    """Order received rows by expert, [experts, rows, d], or back by device, [rows, d]: a copy if there are several devices."""
    d = x.shape[-1]
    rows = product(x.shape[:-1])
    shape: tuple[Size, ...] = (rows, d) if experts is None else (experts, rows // experts, d)
    return x.view(*shape) if structure(t.expert_degree) == 1 else t.record("clone", [x], [t.tensor(shape, x.dtype)], by=regrouped)[0]


def computed(t: Tape, kind: Experts, x: Tensor, experts: Size) -> Tensor:
    """Return the outputs of the device's experts for their rows x [experts, rows, d]."""

    def product_of(x: Tensor, name: str, outputs: Size) -> Tensor:
        shape = experts, x.shape[-1], outputs
        w = t.weight(name, shape, "experts · in · out", active=product(shape) * kind.top_k // kind.count)
        return routing.bmm(t, x, w, of_model=2 * product(x.shape) * outputs)

    if not kind.gated:
        hidden = t.implementation.activation(t, kind.activation, product_of(x, "up_proj", kind.d_ff))
    else:
        gate = product_of(x, "gate_proj", kind.d_ff)
        hidden = t.implementation.gated(t, kind.activation, gate, partial(product_of, x, "up_proj", kind.d_ff))
    return product_of(hidden, "down_proj", x.shape[-1])


def added(t: Tape, x: Tensor, owners: Tensor, tokens: Size) -> Tensor:
    """Add the rows x [pairs, d] of each token to zeros -> [tokens, d]. Saves the tokens."""
    (zeros,) = t.record("zeros", [], [t.tensor((tokens, x.shape[1]), x.dtype)], by=added)
    made = Tensor(zeros.shape, zeros.dtype, zeros.parts)
    return t.record("index_put_", [x, zeros, owners], [made], [Saved(owners, "index")], by=added)[0]
