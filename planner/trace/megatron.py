"""The implementation ``megatron``: the fused stack whose activation memory Korthikanti et al. 2022 (arXiv:2205.05198) count.

In 16 bits, a layer saves 34·s·b·h + 5·a·s²·b bytes. With tensor parallelism of degree t it saves 10·s·b·h + 24·s·b·h / t + 5·a·s²·b / t,
and with sequence parallelism a t-th of all (table 2): a device's part of gathered sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.spec.records import Activation, Norm
from planner.trace import primitives as op
from planner.trace import pytorch
from planner.trace.implementation import Scores
from planner.trace.losses import fused_cross_entropy
from planner.trace.megatron_linear import enter
from planner.trace.megatron_parallel import leave
from planner.trace.nodes import Saved
from planner.trace.pytorch import PYTORCH, drop
from planner.trace.sizes import Size, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def norm(t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalize [.., d]: 2·s·b·h for the input (section 4.1, layer-norm)."""
    return fused_norm(t, x, kind.type, weight, bias)


def linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Multiply x [.., i] by w [o, i] and add b. Of a gathered sequence it saves the device's part, and gathers again (section 4.2.2)."""
    gathered = t.take_back(enter, x)
    if gathered is None:
        return op.linear(t, x, w, b)
    own = gathered.inputs[0]
    made = t.tensor((*x.shape[:-1], w.shape[0]), x.dtype)
    flops = op.products(own, w, 2 * product(x.shape) * w.shape[0], "2 · rows · in · out")
    return t.record(
        "linear", [own, w, b] if b else [own, w], [made], op.factors((own, "input"), (w, "weight")), flops, temporary=x.bytes,
        backward_temporary=2 * x.bytes, views_gradient=True, added=b, sends=gathered.sends, by=linear,
    )[0]  # fmt: skip


def activation(t: Tape, name: Activation, x: Tensor) -> Tensor:
    """Apply the feed-forward's function in one kernel, ``gelu_new`` too."""
    return pytorch.activation(t, "gelu_tanh" if name == "gelu_new" else name, x)


def gated(t: Tape, name: Activation, gate: Tensor, up: Callable[[], Tensor]) -> Tensor:
    """Return activation(gate) · up in one kernel."""
    return fused_gate(t, name, gate, up())


def positions(t: Tape, n: Size) -> Tensor:
    """Return the positions, a constant of the model."""
    return op.constant(t, (n,), "int64")


def attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, terms: Scores) -> Tensor:
    """Unfused attention: queries, keys and values 6·s·b·h, softmax 2·a·s²·b, its dropout 3·a·s²·b (section 4.1, self attention)."""
    pytorch.note_sinks(t, terms)
    B, _, n, h = q.shape
    scores = op.matmul(t, q, k.view(B, k.shape[1], h, n), pairs=True)
    scores = op.softcap(t, scores) if terms.softcap else scores
    scores = op.cast_lower_precision(t, op.add(t, scores, terms.bias) if terms.bias else scores)
    with t.without_autocast():  # Apex's softmax keeps the dtype of the products
        probabilities = op.softmax(t, scores)
    return op.matmul(t, drop(t, probabilities), v, pairs=True)


def cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy in float32: 4·s·b·v for the logits (section 4.3)."""
    return fused_cross_entropy(t, op.cast(t, logits, "float32"), targets)


def fused_norm(t: Tape, x: Tensor, name: str, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Fused norm (Apex). Saves x; its statistics are not counted. Autocast casts all of its inputs to 16 bits."""
    x, *vectors = [op.cast_lower_precision(t, tensor) for tensor in (x, weight, bias) if tensor]
    return t.record(name, [x, *vectors], [op.like(t, x)], [Saved(x, "input")], by=fused_norm)[0]


def fused_gate(t: Tape, name: str, gate: Tensor, up: Tensor) -> Tensor:
    """Return activation(gate) · up in one kernel. Saves gate and up."""
    saved = [Saved(gate, "gate"), Saved(up, "up")]
    return t.record(f"{name} gate", [gate, up], [t.tensor(gate.shape, gate.dtype)], saved, by=fused_gate)[0]


MEGATRON = replace(
    PYTORCH,
    norm=norm,
    linear=linear,
    enter=enter,
    leave=leave,
    activation=activation,
    gated=gated,
    positions=positions,
    attention=attention,
    cross_entropy=cross_entropy,
    default_loss=cross_entropy,
    recomputes_whole=True,
    not_counted=(
        *PYTORCH.not_counted,
        "statistics of norms and RNG states, which the paper omits as small",
        "measurements of this stack: its saved bytes follow the paper, and its peaks are derived from its operators only",
    ),
)
