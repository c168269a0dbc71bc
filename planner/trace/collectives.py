"""Collectives of tensor and sequence parallelism as operators of one device, with PyTorch's DTensor.

A tensor-parallel device has a part of the heads, of the hidden width and of the vocabulary. Activations enter such a stretch whole, and
leave it as partial sums, which are reduced. With sequence parallelism they are divided along the sequence between the stretches: then a
stretch begins with an all-gather and ends with a reduce-scatter. Megatron-LM's f, g and their kin (Shoeybi et al. 2019, arXiv:1909.08053;
Korthikanti et al. 2022, arXiv:2205.05198). Read from PyTorch 2.13: torch/distributed/tensor (_collective_utils.py, _redistribute.py,
parallel/style.py), torch/distributed/_functional_collectives.py.

On one device, and without tensor parallelism, all of them return what they are given.
"""

from __future__ import annotations

from planner.spec.precision import BYTES
from planner.trace.nodes import Saved, Sent
from planner.trace.sizes import Size, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def enter(t: Tape, x: Tensor, readers: int = 1) -> Tensor:
    """Enter a tensor-parallel stretch: gather the sequence of x [B, n / tp, d], whose gradient is reduce-scattered.

    Without sequence parallelism x is whole, and its gradient is summed over devices: once per linear that reads it, since each is a DTensor
    of its own. Gathering along a dimension that is not the first copies from the buffer.
    """
    if not t.tensor_parallel:
        return x
    if t.implementation.enter:
        return t.implementation.enter(t, x)
    if not t.sequence_parallel:
        t.record("all-reduce", [], [], sends=[Sent("all-reduce", x.bytes, "backward")] * readers, by=enter)
        return x
    made = t.tensor((x.shape[0], x.shape[1] * t.degree, *x.shape[2:]), x.dtype)
    sends = [Sent("all-gather", made.bytes, "forward"), Sent("reduce-scatter", made.bytes, "backward")]
    return t.record("all-gather", [x], [made], temporary=made.bytes, backward_temporary=made.bytes, sends=sends, by=enter)[0]


def leave(t: Tape, x: Tensor) -> Tensor:
    """Leave a tensor-parallel stretch: sum x over devices, with sequence parallelism scattered along the sequence."""
    if not t.tensor_parallel:
        return x
    if t.implementation.leave:
        return t.implementation.leave(t, x)
    if not t.sequence_parallel:
        t.record("all-reduce", [], [], sends=[Sent("all-reduce", x.bytes, "forward")], by=leave)
        return x
    made = t.tensor((x.shape[0], x.shape[1] // t.degree, *x.shape[2:]), x.dtype)
    sends = [Sent("reduce-scatter", x.bytes, "forward"), Sent("all-gather", x.bytes, "backward")]
    return t.record("reduce-scatter", [x], [made], temporary=x.bytes, backward_temporary=x.bytes, sends=sends, by=leave)[0]


def gather_heads(t: Tape, x: Tensor) -> Tensor:
    """Gather the parts [B, n, c / tp] of queries, keys and values of all heads, of which several devices have the same KV heads.

    Megatron-Core (core/transformer/attention.py, SelfAttention.get_query_key_value_tensors): gathering along the last dimension copies.
    """
    made = t.tensor((*x.shape[:-1], x.shape[-1] * t.degree), x.dtype)
    sends = [Sent("all-gather", made.bytes, "forward"), Sent("reduce-scatter", made.bytes, "backward")]
    return t.record("all-gather", [x], [made], temporary=made.bytes, backward_temporary=made.bytes, sends=sends, by=gather_heads)[0]


def partial_gradient(t: Tape, *weights: Tensor | None, of_heads: bool) -> None:
    """Note weights that see a part of the sequence, or of the heads: their gradients are summed over devices once per step."""
    if t.sequence_parallel or (of_heads and t.tensor_parallel):
        sends = [Sent("all-reduce", product(weight.shape) * BYTES[weight.dtype], "step") for weight in weights if weight]
        t.record("all-reduce", [], [], sends=sends, by=partial_gradient)


def whole_table(t: Tape, table: Tensor) -> Tensor:
    """Return a part [V / tp, d] of the token embedding as the lookup sees it: its gradient is made for the whole table [V, d].

    That of the part is a view of it. If the head reads the part, too, its gradient and a copy of that view are added to a new one.
    """
    if t.vocabulary_parallel or not t.tensor_parallel:
        return table
    rows, width = table.shape[0] * t.degree, table.shape[1]
    if not t.model.tied_head:
        return table.view(rows, width)
    whole = t.tensor((rows, width), table.dtype)
    whole.storage.bytes = 0
    return t.record("redistribute", [table], [whole], backward_temporary=table.bytes, by=whole_table)[0]


def gather_vocabulary(t: Tape, logits: Tensor) -> Tensor:
    """Gather logits [.., V / tp]. Their gradient is a slice of that of the whole ones."""
    if not t.tensor_parallel:
        return logits
    made = t.tensor((*logits.shape[:-1], logits.shape[-1] * t.degree), logits.dtype)
    sends = [Sent("all-gather", made.bytes, "forward")]
    return t.record("all-gather", [logits], [made], temporary=made.bytes, passes_gradient=True, sends=sends, by=gather_vocabulary)[0]


def own_part(t: Tape, x: Tensor) -> Tensor:
    """Return the device's part of the sequence of x [n, d], a view."""
    if not t.sequence_parallel:
        return x
    part: tuple[Size, ...] = (x.shape[0] // t.degree, *x.shape[1:])
    return t.record("slice", [x], [Tensor(part, x.dtype, x.parts, needs_grad=x.needs_grad)], by=own_part)[0]


def log_softmax(t: Tape, logits: Tensor, made: Tensor) -> Tensor:
    """Return log-probabilities of parts of the vocabulary [rows, V / tp]: the largest logit and the sum of exponentials are reduced.

    Backward does nothing, since that of ``nll_loss`` computes both gradients (torch/distributed/tensor/parallel/loss.py).
    """
    row = product(logits.shape[:-1]) * BYTES[logits.dtype]
    sends = [Sent("all-reduce", row, "forward")] * 2
    saved = [Saved(made, "log-probabilities")]
    temporary = made.bytes + 3 * row  # shifted logits; the largest, the sum of exponentials and its logarithm
    return t.record("log_softmax", [logits], [made], saved, temporary=temporary, passes_gradient=True, sends=sends, by=log_softmax)[0]


def nll_temporary(t: Tape, log_probabilities: Tensor) -> Size:
    """Return the bytes that the backward pass of the loss of parts of the vocabulary needs meanwhile, 0 for the whole one.

    It makes zeros, exponentials and their sum; per row there are indices, a mask and updates of 33 bytes.
    """
    rows = product(log_probabilities.shape[:-1])
    return 2 * log_probabilities.bytes + 33 * rows if t.loss_parallel else 0


def nll_sends(t: Tape, log_probabilities: Tensor) -> list[Sent]:
    """Return what the loss of parts of the vocabulary communicates: the log-probability of each target."""
    row = product(log_probabilities.shape[:-1]) * BYTES[log_probabilities.dtype]
    return [Sent("all-reduce", row, "forward")] if t.loss_parallel else []
