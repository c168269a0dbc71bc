"""The loss of logits and targets: the implementation's default, or the one that ``training.loss`` sets."""

from __future__ import annotations

from typing import assert_never

from planner.trace import collectives
from planner.trace import primitives as op
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import exceeds_one, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

EARLY_GRADIENTS_NOTE = "gradients that a chunked loss computes in the forward pass: in the peak, but not in the activations"


def finished(t: Tape, computed: Tensor, *output: Tensor) -> Tensor:
    """Return the loss that the training loop holds until the step ends.

    Programs divide that of one of several accumulated passes by their number, while the model's output (the logits) exists.
    """
    made, output = computed, (*output, *t.outputs)
    if t.outputs:
        op.keep_alive(t, *t.outputs)
    if t.piped and not t.megatron:  # the schedule divides the gradients instead; a stage holds its output
        for tensor in output:
            op.keep_alive_until_step_end(tensor)
    elif t.training.gradient_accumulation > 1:
        made = op.mul_scalar(t, computed)
        op.keep_alive(t, *output)
    op.keep_alive_until_step_end(made)
    if t.training.keep_logits:
        of_transformers = t.training.loss == "default" and t.training.implementation.startswith("transformers")
        for tensor in (*output, *([computed] if of_transformers else [])):  # the output of transformers has the loss as well
            op.keep_alive_until_step_end(tensor)
    return made


def loss(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of logits [B, n, V], of the kind that ``training.loss`` sets. A chunked loss never has logits."""
    match t.training.loss:
        case "default":
            return t.implementation.default_loss(t, logits, targets)
        case "cross_entropy" | "linear_cross_entropy" | "linear_cross_entropy_chunked":
            return t.implementation.cross_entropy(t, logits, targets)  # torch's linear one without options runs linear, then this
        case "cross_entropy_shifted":
            return shifted(t, logits, targets)
        case "cross_entropy_float32":
            wide = op.cast(t, logits, "float32")
            made = t.implementation.cross_entropy(t, wide, targets)
            op.keep_alive(t, logits)
            return made
        case kind:
            assert_never(kind)


def cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return F.cross_entropy.

    Under autocast on CUDA the log-softmax stays in 16 bits (the operator passes its dtype); the sum reads a float32 copy.
    """
    rows = logits.view(logits.shape[0] * logits.shape[1], logits.shape[2])
    wide = op.cast(t, rows, "float32") if t.precision.autocast and t.device == "cpu" else rows
    made = nll_loss(t, op.cast_fp32(t, log_softmax(t, wide)), targets)
    op.keep_alive(t, logits, wide)
    return made


def shifted(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return F.cross_entropy of logits[:, :-1] and targets[:, 1:], both copied unless B is 1."""
    B, n, V = logits.shape
    rows = op.contiguous(t, op.split(t, logits, (B, n - 1, V))[0], exceeds_one(B))
    with t.at("", "inputs"):
        ahead = op.contiguous(t, targets.view(B, n - 1), exceeds_one(B))
    made = t.implementation.cross_entropy(t, rows, ahead)
    op.keep_alive(t, logits)
    return made


def fused_cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Fused cross entropy: overwrites the logits with probabilities. Saves those and the targets."""
    saved = [Saved(logits, "probabilities"), Saved(targets, "targets")]
    return t.record("cross_entropy", [logits, targets], [t.tensor((), logits.dtype)], saved, by=fused_cross_entropy)[0]


def log_softmax(t: Tape, logits: Tensor) -> Tensor:
    """Return log-probabilities [rows, V]. Saves its output."""
    made = t.tensor(logits.shape, logits.dtype)
    if t.loss_parallel:
        return collectives.log_softmax(t, logits, made)
    return t.record("log_softmax", [logits], [made], [Saved(made, "log-probabilities")], by=log_softmax)[0]


def nll_loss(t: Tape, log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood loss. Saves its inputs and the total weight."""
    with t.at("", "loss"):
        made, weight = t.tensor((), log_probabilities.dtype), t.tensor((), log_probabilities.dtype, needs_grad=False)
    saved = [Saved(log_probabilities, "log-probabilities"), Saved(targets, "targets"), Saved(weight, "total weight")]
    temporary, sends = collectives.nll_temporary(t, log_probabilities), collectives.nll_sends(t, log_probabilities)
    inputs, outputs = [log_probabilities, targets], [made, weight]
    return t.record("nll_loss", inputs, outputs, saved, backward_temporary=temporary, sends=sends, by=nll_loss)[0]


def chunked_cross_entropy(t: Tape, x: Tensor, w: Tensor, b: Tensor | None, targets: Tensor) -> Tensor:
    """Apply the LM head to x [B, n, d] and take the cross entropy in chunks (torch.nn.functional.linear_cross_entropy, with options).

    The forward pass also computes the gradients of x and of the LM head, in the weights' dtype, and saves them instead of the logits.
    2·rows·d·V FLOPs forward, twice that for the gradients; PyTorch's counter omits them.
    """
    read = [x, w, *([b] if b else [])]
    with t.at("", "gradients"):
        gradients = [t.tensor(tensor.shape, w.dtype, needs_grad=False) for tensor in read if tensor.needs_grad]
    with t.at("", "loss"):
        made = t.tensor((), w.dtype)
    forward = 2 * product(x.shape) * w.shape[0]
    with t.at("", "head"):
        t.record("linear", [x, w], [], flops=Flops(0, forward, forward, 0, "2 · rows · d · V"), by=chunked_cross_entropy)
    saved = [Saved(gradient, "gradient computed early") for gradient in gradients]
    t.note(EARLY_GRADIENTS_NOTE)
    return t.record("linear_cross_entropy", [*read, targets], [made, *gradients], saved, by=chunked_cross_entropy)[0]
