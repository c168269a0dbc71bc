"""The implementation ``torchtitan``: Llama 3's modules in torchtitan, without torch.compile.

Read from pytorch/torchtitan 0.2.2: models/llama3/model/model.py, models/attention.py, components/loss.py, train.py,
distributed/activation_checkpoint.py and models/llama3/infra/parallelize.py. Norms, feed-forward and residual stream are plain PyTorch.
On one device the trainer runs under autocast (``precision: bf16-autocast``); FSDP2 instead casts weights to bf16 and keeps those in
float32 (``precision: bf16-master``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.trace import primitives as op
from planner.trace.kernels import fused_sdpa
from planner.trace.losses import log_softmax, nll_loss
from planner.trace.nodes import Node, Operation, Saved
from planner.trace.pytorch import PYTORCH
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def rotary_tables(t: Tape, n: Size, rotary_dim: Size) -> tuple[Tensor, Tensor]:
    """Return n rows of the model's complex rotations [context_length, rotary_dim / 2], twice: as [n, rotary_dim] reals."""
    t.buffer("freqs_cis", (t.model.context_length, rotary_dim), "float32")
    table = op.constant(t, (n, rotary_dim), "float32")
    return table, table


def rotate_both(t: Tape, q: Tensor, k: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys in float32: pairs of neighboring channels are complex numbers. All four tensors live until both are cast."""
    wide_q, wide_k = op.cast(t, q, "float32"), op.cast(t, k, "float32")
    turned_q, turned_k = turned(t, wide_q, tables[0]), turned(t, wide_k, tables[0])
    made = op.cast(t, turned_q, q.dtype), op.cast(t, turned_k, k.dtype)
    op.keep_alive(t, wide_q, wide_k, turned_q, turned_k)
    return made


def rotate(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate one of them, where keys are an earlier layer's."""
    return op.cast(t, turned(t, op.cast(t, x, "float32"), tables[0]), x.dtype)


def turned(t: Tape, x: Tensor, table: Tensor) -> Tensor:
    """Multiply complex numbers by a constant of the model. Saves only that."""
    return t.record("rotate", [x, table], [op.like(t, x)], [Saved(table, "rotations")], by=turned)[0]


def cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the cross entropies of float32 logits, divided by the number of tokens, a tensor."""
    with t.at("", "loss"):
        tokens, made = t.tensor((), "float32", needs_grad=False), t.tensor((), "float32")
    t.record("number of tokens", [], [tokens], by=cross_entropy)
    wide = op.cast(t, logits.view(logits.shape[0] * logits.shape[1], logits.shape[2]), "float32")
    total = nll_loss(t, log_softmax(t, wide), targets)
    op.keep_alive(t, wide)
    t.record("divide", [total, tokens], [made], [Saved(tokens, "number of tokens")], by=cross_entropy)
    op.keep_alive(t, logits)
    return made


def saved_outputs(nodes: Sequence[Node]) -> tuple[Tensor, ...]:
    """Return the outputs of fused attention and of every other product of a matrix without bias, beginning with the first."""
    operators = [node for node in nodes if isinstance(node, Operation)]
    products = [node for node in operators if node.by is op.linear and node.added is None]
    chosen = {*map(id, products[::2]), *(id(node) for node in operators if node.by is fused_sdpa)}
    return tuple(tensor for node in operators if id(node) in chosen for tensor in node.outputs)


TORCHTITAN = replace(
    PYTORCH,
    rotate=rotate,
    rotate_both=rotate_both,
    rotate_latent=rotate_both,
    rotary_tables=rotary_tables,
    attention_kernels=("cudnn", "flash", "math"),
    default_loss=cross_entropy,
    loss_outside=True,
    stops_early=False,
    saved_outputs=saved_outputs,
    not_counted=(
        *PYTORCH.not_counted,
        "torch.compile, and without a layout the weights that FSDP gathers; modules other than Llama 3's are planned as plain PyTorch's",
        "measurements of torchtitan itself: its modules were built again from the source of 0.2.2 and measured on a fake GPU",
    ),
)
