"""Layers that predict further tokens (multi-token prediction, MTP), as in DeepSeek-V3 (arXiv:2412.19437, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from planner.spec.records import MultiTokenPrediction
from planner.trace import blocks
from planner.trace import primitives as op
from planner.trace.layers import decoder_layer, recomputed
from planner.trace.positions import PositionTables
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def predict(
    t: Tape,
    kind: MultiTokenPrediction,
    positions: PositionTables,
    x: Tensor,
    tokens: tuple[Tensor, Tensor],
    loss: Tensor,
    embed: Callable[[Tensor], Tensor],
    score: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Add the loss of one more token per prediction layer: layer(eh_proj [enorm(embedding); hnorm(x)]), a norm, the shared LM head.

    Each layer has the structure of the model's last one. It reads the hidden states x [B, n, d_model] of the model or of the previous
    prediction layer, and token ids shifted by one more token. Sequences keep their length, as in Megatron-LM. Names are those of the
    released checkpoint.
    """
    layer = t.model.runs[-1].layers[-1]
    for number in range(kind.count):
        with t.at("model.layers.mtp" if kind.count == 1 else f"model.layers.mtp.{number}", "other"):
            ids, targets = tokens = (rolled(t, tokens[0]), rolled(t, tokens[1]))
            both = [blocks.norm(t, t.model.norm, y, name) for y, name in ((embed(ids), "enorm"), (x, "hnorm"))]
            joined = blocks.linear(t, op.cat(t, *both), t.model.d_model, "eh_proj", bias=False)
            x = recomputed(t, partial(decoder_layer, t, layer, positions), joined, *positions.of(t, layer))
            loss = op.add(t, loss, op.mul_scalar(t, score(blocks.norm(t, t.model.norm, x, "shared_head.norm"), targets)))
    op.keep_alive_until_step_end(loss)
    t.note("measurements of prediction layers: their memory is derived from their operators only")
    return loss


def rolled(t: Tape, ids: Tensor) -> Tensor:
    """Return ids [B, n] shifted by one token, a copy."""
    with t.at("", "inputs"):
        return t.record("roll", [ids], [t.tensor(ids.shape, "int64", needs_grad=False)], by=rolled)[0]
