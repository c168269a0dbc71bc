"""Collectives of tensor and sequence parallelism in Megatron-Core: core/tensor_parallel/layers.py, Transformer Engine's module/linear.py.

Read from Megatron-Core 0.14 to 0.20, which agree in what they allocate. ``enter`` of megatron_linear.py is the counterpart of ``leave``.
"""

from __future__ import annotations

from planner.trace import primitives as op
from planner.trace.megatron_linear import linear
from planner.trace.nodes import Saved, Sent
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def leave(t: Tape, x: Tensor) -> Tensor:
    """Leave a tensor-parallel stretch, of a linear or of the token embedding: sum x [B, n, d] over devices.

    With sequence parallelism the sum is scattered along the sequence: the whole x exists meanwhile, and so does its gradient.
    """
    if lookup := t.take_back(op.embedding, x):
        return embedding(t, lookup.inputs[0], lookup.inputs[1], x)
    if not t.sequence_parallel:
        t.record("all-reduce", [], [], sends=[Sent("all-reduce", x.bytes, "forward")], by=leave)
        return x
    product = t.take_back(linear, x)
    if product is None:  # of the stack of 2022
        sends = [Sent("reduce-scatter", x.bytes, "forward"), Sent("all-gather", x.bytes, "backward")]
        return t.record("reduce-scatter", [x], [part_of_sequence(t, x)], sends=sends, by=leave)[0]
    return t.record(
        f"{product.name} and reduce-scatter", product.inputs, [part_of_sequence(t, x)], product.saved, product.flops, temporary=x.bytes,
        backward_temporary=x.bytes, views_gradient=True, added=product.added, accumulated=product.accumulated, by=leave,
        sends=[Sent("reduce-scatter", x.bytes, "forward"), Sent("all-gather", x.bytes, "backward")],
    )[0]  # fmt: skip


def embedding(t: Tape, ids: Tensor, table: Tensor, x: Tensor) -> Tensor:
    """Look up ids in a part of the vocabulary, zeros for all others, and sum over devices (VocabParallelEmbedding) -> x [B, n, d].

    Saves the ids in the part and the mask of the others. With sequence parallelism the sum is scattered: at once, but after learned
    positions are added, as a copy. Those are added to each part here, which saves the same.
    """
    own, others = t.tensor(ids.shape, "int64", needs_grad=False), t.tensor(ids.shape, "bool", needs_grad=False)
    scattered = t.sequence_parallel and t.model.positions.type != "learned"
    sends = [Sent("reduce-scatter" if scattered else "all-reduce", x.bytes, "forward")]
    sends += [Sent("all-gather", x.bytes, "backward")] * t.sequence_parallel
    made = part_of_sequence(t, x) if t.sequence_parallel else op.like(t, x)
    return t.record(
        "embedding", [ids, table], [made, own, others], [Saved(own, "ids"), Saved(others, "mask of ids")], temporary=x.bytes,
        backward_temporary=x.bytes, sends=sends, by=embedding,
    )[0]  # fmt: skip


def part_of_sequence(t: Tape, x: Tensor) -> Tensor:
    """Return a new tensor like a device's part of the sequence of x [B, n, d]."""
    return t.tensor((x.shape[0], x.shape[1] // t.degree, *x.shape[2:]), x.dtype)
