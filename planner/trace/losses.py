"""The loss of logits and targets: the implementation's own, or the one that the training asks for."""

from __future__ import annotations

from typing import assert_never

from planner.trace import primitives as op
from planner.trace.sizes import exceeds_one, product
from planner.trace.tape import Flops, Saved, Tape
from planner.trace.tensor import Tensor


def loss(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of logits [B, n, V]; variables of the training loop name it, and the logits if they are kept."""
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
    made = nll_loss(t, op.raised(t, log_softmax(t, wide)), targets)
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


def fused_cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy in one kernel, in place of the logits. Keeps what it made of them, and the targets."""
    made = t.tensor((), logits.dtype)
    t.record(
        "cross_entropy", [logits, targets], [made], [Saved(logits, "probabilities"), Saved(targets, "targets")], by=fused_cross_entropy
    )
    return made


def log_softmax(t: Tape, logits: Tensor) -> Tensor:
    """Return log-probabilities [rows, V]. Keeps its output."""
    made = t.tensor(logits.shape, logits.dtype)
    t.record("log_softmax", [logits], [made], [Saved(made, "log-probabilities")], by=log_softmax)
    return made


def nll_loss(t: Tape, log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """Average the targets' negative log-probabilities. Keeps its inputs and the total weight."""
    with t.at("", "loss"):
        made, weight = t.tensor((), log_probabilities.dtype), t.tensor((), log_probabilities.dtype, needs_grad=False)
    saved = [Saved(log_probabilities, "log-probabilities"), Saved(targets, "targets"), Saved(weight, "total weight")]
    t.record("nll_loss", [log_probabilities, targets], [made, weight], saved, by=nll_loss)
    return made


def chunked_cross_entropy(t: Tape, x: Tensor, w: Tensor, b: Tensor | None, targets: Tensor) -> Tensor:
    """Project x [B, n, d] by the head and take the cross entropy, chunk by chunk (torch.nn.functional.linear_cross_entropy, with options).

    The forward pass makes the gradients of x and of the head as well, in the weights' dtype, and holds them in place of the logits.
    2·rows·d·V FLOPs forward, twice that for the gradients; PyTorch's counter does not see them.
    """
    read = [x, w, *([b] if b else [])]
    with t.at("", "gradients"):
        gradients = [t.tensor(tensor.shape, w.dtype, needs_grad=False) for tensor in read if tensor.needs_grad]
    with t.at("", "loss"):
        made = t.tensor((), w.dtype)
    forward = 2 * product(x.shape) * w.shape[0]
    with t.at("", "head"):
        t.record("linear", [x, w], [], flops=Flops(0, forward, forward, 0, "2 · rows · d · V"), by=chunked_cross_entropy)
    saved = [Saved(gradient, "gradient made early") for gradient in gradients]
    t.note("among the activations, the gradients that a chunked loss makes in the forward pass: they are in the peak")
    t.record("linear_cross_entropy", [*read, targets], [made, *gradients], saved, by=chunked_cross_entropy)
    return made
