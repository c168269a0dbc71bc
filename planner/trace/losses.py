"""The loss of logits and targets: the implementation's own, or the one that the training asks for."""

from __future__ import annotations

from typing import assert_never

from planner.trace import primitives as op
from planner.trace.sizes import exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def loss(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of logits [B, n, V]; variables of the training loop name it, and the logits if they are kept."""
    if t.model.logit_softcap:
        logits = op.capped(t, logits)
    made = of_kind(t, logits, targets)
    op.hold_throughout(made)
    if t.training.keep_logits:
        op.hold_throughout(logits)
    return made


def of_kind(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss that the training asks for. A loss in chunks never has logits."""
    match t.training.loss:
        case "default":
            return t.implementation.own_loss(t, logits, targets)
        case "cross_entropy" | "linear_cross_entropy" | "linear_cross_entropy_chunked":
            return t.implementation.cross_entropy(t, logits, targets)  # torch's linear one, without options, is the two in a row
        case "cross_entropy_shifted":
            return shifted(t, logits, targets)
        case kind:
            assert_never(kind)


def cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return F.cross_entropy.

    Under autocast on CUDA the log-softmax stays in 16 bits (the operator passes its dtype) and the sum is made in float32, of a copy.
    """
    rows = logits.view(logits.shape[0] * logits.shape[1], logits.shape[2])
    wide = op.cast(t, rows, "float32") if t.precision.autocast and t.device == "cpu" else rows
    made = op.nll_loss(t, op.raised(t, op.log_softmax(t, wide)), targets)
    op.hold(t, logits, wide)
    return made


def shifted(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return F.cross_entropy of logits[:, :-1] with targets[:, 1:], both copied into rows unless B is 1."""
    B, n, V = logits.shape
    rows = op.contiguous(t, op.split(t, logits, (B, n - 1, V))[0], exceeds_one(B))
    with t.at("", "inputs"):
        ahead = op.contiguous(t, targets.view(B, n - 1), exceeds_one(B))
    made = t.implementation.cross_entropy(t, rows, ahead)
    op.hold(t, logits)
    return made
