"""Layers that predict further tokens (multi-token prediction, MTP), as in DeepSeek-V3 (arXiv:2412.19437, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from planner.spec.records import MultiTokenPrediction
from planner.trace import blocks
from planner.trace import primitives as op
from planner.trace.layers import decoder_layer, recomputed
from planner.trace.positions import Places
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def predict(
    t: Tape,
    kind: MultiTokenPrediction,
    places: Places,
    x: Tensor,
    tokens: tuple[Tensor, Tensor],
    loss: Tensor,
    embed: Callable[[Tensor], Tensor],
    score: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Add to the loss that of one more token for each layer: layer(eh_proj [enorm(embedding); hnorm(x)]), a norm, the shared head.

    Each layer is like the model's last one. It reads the last hidden states x [B, n, d_model] of the model or of the prediction layer
    before, and token ids moved on by one, in whole sequences as in Megatron-LM. Names are those of the release's checkpoint.
    """
    layer = t.model.runs[-1].layers[-1]
    for number in range(kind.count):
        with t.at("model.layers.mtp" if kind.count == 1 else f"model.layers.mtp.{number}", "other"):
            ids, targets = tokens = (rolled(t, tokens[0]), rolled(t, tokens[1]))
            both = [blocks.norm(t, t.model.norm, y, name) for y, name in ((embed(ids), "enorm"), (x, "hnorm"))]
            joined = blocks.linear(t, op.cat(t, *both), t.model.d_model, "eh_proj", bias=False)
            x = recomputed(t, partial(decoder_layer, t, layer, places), joined, *places.of(layer))
            loss = op.add(t, loss, op.scale(t, score(blocks.norm(t, t.model.norm, x, "shared_head.norm"), targets)))
    op.hold_throughout(loss)
    t.note("measurements of prediction layers: their memory is derived from their operators only")
    return loss


def rolled(t: Tape, ids: Tensor) -> Tensor:
    """Return ids [B, n] moved on by one token, a copy."""
    with t.at("", "inputs"):
        made = t.tensor(ids.shape, "int64", needs_grad=False)
        t.record("roll", [ids], [made], by=rolled)
    return made
