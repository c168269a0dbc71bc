"""Learned prompts before each sequence, with segments and a learned bias of scores, as in CPM-Ant.

Read from transformers 5.24: models/cpmant/modeling_cpmant.py. Prompts have rows of their own in the token embedding, and all tokens of a
prompt attend, but none has a loss. The spec declares three tensors under ``extra``: prompts [types, length, d], segments and the bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.trace import primitives as op
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Prompts:
    """Rows of all prompts in the token embedding, and the tokens of one."""

    rows: Size = 0
    length: Size = 0


def prompts(t: Tape) -> Prompts:
    """Return the prompts that the spec declares, if the class reads them."""
    item = t.read("prompt_embedding", 2, 3) if t.modules.prompts else None
    if item is None:
        return Prompts()
    *rows, length, _ = item.shape
    if not rows:
        t.note("tokens of prompts, whose length the spec does not state")
        return Prompts(length)
    return Prompts(rows[0] * length, length)


def embedded(t: Tape, ids: Tensor, its: Prompts, embed: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return the embedded tokens [B, length + n, d] of prompts and ids [B, n], plus their segments', and what stays alive after."""
    B, n = ids.shape
    # Lengths, context, positions and spans stay alive, but no operator with a gradient reads them.
    shapes = *[(B, its.length + n)] * 5, (B,)
    with t.at("", "inputs"):
        tokens, segments, *others = (t.tensor(shape, "int32", needs_grad=False) for shape in shapes)
        t.record("prepend prompts", [ids], [tokens, segments, *others], by=embedded)
    x, table = embed(tokens), t.declared_weight("segment_embedding", 2)
    if table is None:
        return x, [segments, *others]
    of_segments = op.embedding(t, segments, table)
    return op.add(t, x, of_segments), [segments, *others, of_segments]


def learned_bias(t: Tape, x: Tensor) -> Tensor | None:
    """Return the bias [B, H, n, n] of x [B, n, d] that a spec declares, looked up by the bucket of each pair of tokens, if it does."""
    table, (B, n, _) = t.declared_weight("relative_attention_bias", 2), x.shape
    if table is None:
        return None
    H = table.shape[1]
    (buckets,) = t.record("buckets", [], [t.tensor((B, n, n), "int32", needs_grad=False)], by=learned_bias)
    made = op.contiguous(t, op.embedding(t, buckets, table), exceeds_one(H)).view(B, H, n, n)
    made.by_head = True
    return made


def without_prompts(t: Tape, x: Tensor, n: Size) -> Tensor:
    """Return the last hidden states [B, n, d] of all tokens but the prompt's, a view; the LM head copies it, which autocast's cast does."""
    B, _, d = x.shape
    (made,) = op.split(t, x, (B, n, d))
    return made if t.precision.autocast else op.contiguous(t, made, exceeds_one(B))
