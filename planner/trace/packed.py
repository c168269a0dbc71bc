"""Products by packed weights, which unpack them: bitsandbytes 0.50.2, nn/modules.py (Linear4bit), autograd/_functions.py (MatMul4Bit)."""

from __future__ import annotations

from planner.spec.precision import DTYPES, Dtype
from planner.trace import primitives as op
from planner.trace import trained
from planner.trace.packing import Packing
from planner.trace.sizes import minimum, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

ROWS = 512  # rows up to which the kernel multiplies packed weights; it unpacks them for more


def packing_of(t: Tape) -> Packing | None:
    """Return how linears are stored at the current path: packed in layers, if the frozen weights are."""
    base = t.training.base
    return Packing(base.format, base.double_quant) if base and base.format != "none" and trained.in_layer(t.path) else None


def unpacked(t: Tape, w: Tensor, packing: Packing) -> Tensor:
    """Return a packed weight [o, i] in the dtype that it had before (dequantize_4bit in functional.py)."""
    elements = product(w.shape)
    scales = packing.unpacking(elements) - 2 * elements
    made = t.tensor(w.shape, w.dtype, needs_grad=False)
    return t.record("dequantize_4bit", [w], [made], temporary=scales, by=unpacked)[0]


def compute_dtype(t: Tape) -> Dtype:
    """Return the dtype in which packed weights multiply."""
    return DTYPES[t.training.base.compute_dtype] if t.training.base else t.precision.compute


def linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None, packing: Packing) -> Tensor:
    """Multiply x [.., i] by a packed weight [o, i], in the dtype of computation, and return x's. Saves nothing: the weight is frozen."""
    compute = compute_dtype(t)
    narrow, elements = op.cast(t, x, compute), product(w.shape)
    inputs = [narrow, w, *([op.cast(t, b, compute)] if b else [])]
    made = t.tensor((*x.shape[:-1], w.shape[0]), compute)
    flops = op.products(narrow, w, 2 * product(x.shape) * w.shape[0], "2 · rows · in · out")
    unpacking, many = packing.unpacking(elements), minimum(product(x.shape[:-1]) // (ROWS + 1), 1)
    t.record("matmul_4bit", inputs, [made], [], flops, temporary=many * unpacking, backward_temporary=unpacking, by=linear)
    return op.cast(t, made, x.dtype)
