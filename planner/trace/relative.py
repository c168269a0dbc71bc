"""T5's bias on the scores: a table with a row per range of distances between a query and a key, and a column per head.

Read from transformers 5.24: models/t5/modeling_t5.py, and create_position_bias_mask in integrations/sdpa_attention.py. The first layer of a
stack looks the bias up, and all layers share it; fused attention gets a copy of it per layer, with the causal mask.
"""

from __future__ import annotations

from planner.trace import primitives as op
from planner.trace.nodes import Saved
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def bias(t: Tape, n: Size, heads: Size, buckets: Size) -> Tensor:
    """Return the bias [1, H, n, n] of a stack."""
    with t.at("relative_attention_bias"):
        table = t.weight("weight", (buckets, heads), "bias of distances: buckets · heads")
        (places,) = t.record("buckets", [], [t.tensor((n, n), "int64", needs_grad=False)], by=bias)
        return op.embedding(t, places, table).view(1, heads, n, n)


def of_cross_attention(t: Tape, n: Size, m: Size, heads: Size) -> Tensor:
    """Return zeros [1, H, n, m], which cross-attention adds in place of such a bias."""
    return t.record("zeros", [], [t.tensor((1, heads, n, m), t.precision.compute, needs_grad=False)], by=of_cross_attention)[0]


def as_mask(t: Tape, shared: Tensor) -> Tensor:
    """Return the bias [1, H, n, n] as fused attention gets it: contiguous, and with the causal mask if attention is causal."""
    made = t.tensor(shared.shape, shared.dtype)
    if not t.causal:
        return t.record("clone", [shared], [made], passes_gradient=True, by=as_mask)[0]
    (seen,) = t.record("causal mask", [], [t.tensor((1, 1, *shared.shape[2:]), "bool", needs_grad=False)], by=as_mask)
    (made,) = t.record("where", [shared, seen], [made], [Saved(seen, "causal mask")], by=as_mask)
    op.keep_alive(t, seen)
    return made
