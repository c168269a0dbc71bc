"""Norms and linears of Transformer Engine 2.20 in Megatron-Core: pytorch/module/layernorm_linear.py, base.py; pytorch/ops/basic.

The LM head is Megatron-Core's own linear (core/tensor_parallel/layers.py).
"""

from __future__ import annotations

from operator import eq

from planner.spec.records import Norm
from planner.trace import float8
from planner.trace import primitives as op
from planner.trace.nodes import Saved, Sent
from planner.trace.sizes import Size, choose, product
from planner.trace.tape import Buffer, Tape
from planner.trace.tensor import Tensor

_DUMMY = "dummy gradient of"


def norm(t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalize [.., d] in one kernel (TENorm). Saves x, of which strided heads are copied, and float32 statistics per row."""
    x = op.contiguous(t, op.cast_lower_precision(t, x), 1 if x.interleaved else None)
    numbers = 2 if kind.type == "layernorm" else 1
    statistics = t.tensor((numbers, *x.shape[:-1]), "float32", needs_grad=False)
    inputs = [x, *(vector for vector in (weight, bias) if vector)]
    saved = [Saved(x, "input"), Saved(statistics, "statistics")]
    return t.record(kind.type, inputs, [op.like(t, x), statistics], saved, by=norm)[0]


def enter(t: Tape, x: Tensor) -> Tensor:
    """Enter a tensor-parallel stretch: gather the sequence of x [B, n / tp, d] for a linear, which saves the device's part only.

    Without sequence parallelism, the gradient of x is summed over devices.
    """
    if not t.sequence_parallel:
        t.record("all-reduce", [], [], sends=[Sent("all-reduce", x.bytes, "backward")], by=enter)
        return x
    made = t.tensor((x.shape[0], x.shape[1] * t.degree, *x.shape[2:]), x.dtype)
    gathers = [Sent("all-gather", made.bytes, "forward"), Sent("all-gather", made.bytes, "backward")]
    return t.record("all-gather", [x], [made], sends=[*gathers, Sent("reduce-scatter", made.bytes, "backward")], by=enter)[0]


def linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Multiply x [.., i] by w [o, i] and add b. A norm that made x runs in the same function (_LayerNormLinear), which saves x too.

    A gathered sequence exists while a kernel reads it; in the backward pass the whole gradient does as well. The LM head gathers into a
    buffer, which stays allocated.
    """
    keep_dummy(t, w.shape)
    if float8.converted(t, w):
        return float8_linear(t, x, w, b)
    gathered, of_head = t.take_back(enter, x), t.component == "head"
    whole, x = x, gathered.inputs[0] if gathered else x
    normed = t.take_back(norm, x) if not of_head else None
    x = op.cast_lower_precision(t, x)
    w = op.cast_lower_precision(t, w)
    made = t.tensor((*whole.shape[:-1], w.shape[0]), x.dtype)
    flops = op.products(x, w, 2 * product(whole.shape) * w.shape[0], "2 · rows · in · out")
    saved = [*(normed.saved if normed else ()), *op.factors((x, "input"), (w, "weight"))]
    inputs, outputs = ((*normed.inputs, w), (made, *normed.outputs)) if normed else ((x, w), (made,))
    inputs = (*inputs, b) if b else inputs
    name = f"{normed.name} and linear" if normed else "linear"
    temporary = whole.bytes if gathered else 0
    if gathered and of_head:
        t.buffer("gathered sequence", whole.shape, whole.dtype)
    return t.record(
        name, inputs, outputs, saved, flops, temporary=0 if of_head else temporary, backward_temporary=temporary * (2 - of_head),
        views_gradient=True, added=b, accumulated=accumulates(t, w), by=linear, sends=gathered.sends if gathered else (),
    )[0]  # fmt: skip


def float8_linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Multiply in float8. Saves x transposed in 8 bits, which the norm's kernel makes if it is the norm's result, and caches w twice.

    Backward casts the gradient of the result, in both layouts.
    """
    t.buffer("float8_weight", (2, *w.shape), "uint8")
    alone = t.path.endswith(("qkv_proj", ".mlp.up_proj", ".mlp.gate_up_proj"))  # nothing else reads the norm's result
    normed = t.take_back(norm, x) if alone else None
    quantized = t.tensor(x.shape, "uint8", needs_grad=False)
    made = t.tensor((*x.shape[:-1], w.shape[0]), t.precision.compute)
    flops = op.products(x, w, 2 * product(x.shape) * w.shape[0], "2 · rows · in · out")
    saved = [*(normed.saved if normed else ()), Saved(quantized, "input in float8")]
    inputs = (*normed.inputs, w) if normed else (x, w)
    inputs = (*inputs, b) if b else inputs
    outputs = (made, quantized, *(normed.outputs[1:] if normed else ()))
    name = f"{normed.name} and float8 linear" if normed else "float8 linear"
    return t.record(
        name, inputs, outputs, saved, flops, temporary=product(x.shape), backward_temporary=2 * product(made.shape),
        views_gradient=True, added=b, accumulated=accumulates(t, w), by=float8_linear,
    )[0]  # fmt: skip


def accumulates(t: Tape, w: Tensor) -> Tensor | None:
    """Return the weight if its gradient is added to the preallocated one in the kernel that computes it."""
    return w if t.training.gradient_accumulation_fusion and w.leaf else None


def keep_dummy(t: Tape, shape: tuple[Size, ...]) -> None:
    """Store the gradient that fused accumulation returns in place of the added one: a dummy of each shape (get_dummy_wgrad)."""
    known = [buffer.shape for buffer in t.buffers if buffer.name.startswith(_DUMMY)]
    alike = any(all(a == b or choose(eq, a, b) for a, b in zip(shape, other, strict=True)) for other in known)
    if t.training.gradient_accumulation_fusion and not alike:
        t.buffers.append(Buffer(f"{_DUMMY} {' x '.join(map(str, shape))}", shape, t.precision.weights, 1, t.component))
