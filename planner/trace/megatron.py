"""The fused stack whose activation memory Korthikanti et al. 2022 (arXiv:2205.05198) count: the implementation ``megatron``.

In 16 bits a layer keeps 34·s·b·h + 5·a·s²·b bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.spec.records import Activation, Norm
from planner.trace import primitives as op
from planner.trace import pytorch
from planner.trace.losses import fused_cross_entropy
from planner.trace.pytorch import PYTORCH, drop
from planner.trace.sizes import Size
from planner.trace.tape import Saved, Tape
from planner.trace.tensor import Tensor


def norm(t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalize [.., d]: 2·s·b·h for the input (section 4.1, layer-norm)."""
    return fused_norm(t, x, kind.type, weight, bias)


def activation(t: Tape, name: Activation, x: Tensor) -> Tensor:
    """Apply the feed-forward's function, in one kernel also what others write out."""
    return pytorch.activation(t, "gelu_tanh" if name == "gelu_new" else name, x)


def gated(t: Tape, name: Activation, gate: Tensor, up: Callable[[], Tensor]) -> Tensor:
    """Return activation(gate) · up in one kernel, which keeps gate and up."""
    return fused_gate(t, name, gate, up())


def positions(t: Tape, n: Size) -> Tensor:
    """Return the positions, a constant of the model."""
    return op.constant(t, (n,), "int64")


def attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, softcap: bool) -> Tensor:
    """Attend by products: queries, keys and values 6·s·b·h, softmax 2·a·s²·b, its dropout 3·a·s²·b (section 4.1, self attention)."""
    B, _, n, h = q.shape
    scores = op.matmul(t, q, k.view(B, k.shape[1], h, n), pairs=True)
    scores = op.capped(t, scores) if softcap else scores
    scores = op.lowered(t, op.add(t, scores, bias) if bias else scores)
    with t.without_autocast():  # Apex's softmax stays in the dtype of the products
        probabilities = op.softmax(t, scores)
    return op.matmul(t, drop(t, probabilities), v, pairs=True)


def cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy in float32: 4·s·b·v for the logits (section 4.3)."""
    return fused_cross_entropy(t, op.cast(t, logits, "float32"), targets)


def fused_norm(t: Tape, x: Tensor, name: str, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalize in one kernel whose statistics are left out of account. Keeps x; autocast lowers all of its inputs (Apex)."""
    x, *vectors = [op.lowered(t, tensor) for tensor in (x, weight, bias) if tensor]
    made = op.like(t, x)
    t.record(name, [x, *vectors], [made], [Saved(x, "input")], by=fused_norm)
    return made


def fused_gate(t: Tape, name: str, gate: Tensor, up: Tensor) -> Tensor:
    """Return activation(gate) · up in one kernel. Keeps gate and up."""
    made = t.tensor(gate.shape, gate.dtype)
    t.record(f"{name} gate", [gate, up], [made], [Saved(gate, "gate"), Saved(up, "up")], by=fused_gate)
    return made


MEGATRON = replace(
    PYTORCH,
    norm=norm,
    activation=activation,
    gated=gated,
    positions=positions,
    attention=attention,
    cross_entropy=cross_entropy,
    own_loss=cross_entropy,
    recomputes_whole=True,
    not_counted=(*PYTORCH.not_counted, "statistics of norms and random states, which the paper leaves out as small"),
)
