"""Products by packed weights, which unpack them: bitsandbytes 0.50.2, nn/modules.py (Linear4bit), autograd/_functions.py (MatMul4Bit)."""

from __future__ import annotations

from planner.spec.precision import BYTES, DTYPES, RECIPES, Dtype
from planner.trace import primitives as op
from planner.trace import trained
from planner.trace.packing import Packing
from planner.trace.sizes import maximum, minimum, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

ROWS = 512  # rows up to which the kernel multiplies packed weights; it unpacks them for more


def packing_of(t: Tape) -> Packing | None:
    """Return how linears are stored at the current path: packed in layers, if the frozen weights are."""
    base = t.training.base
    return Packing(base.format, base.double_quant) if base and base.format != "none" and trained.in_layer(t.path) else None


def unpacked(t: Tape, w: Tensor, packing: Packing) -> Tensor:
    """Return a packed weight [o, i] in the dtype that it had before (dequantize_4bit in functional.py)."""
    made = t.tensor(w.shape, w.dtype, needs_grad=False)
    return t.record("dequantize_4bit", [w], [made], temporary=packing.scales(product(w.shape)), by=unpacked)[0]


def dtype_before(t: Tape) -> Dtype:
    """Return the dtype that packed weights had before, to which the backward pass unpacks them; ``base.prepare`` casts only others."""
    base = t.training.base
    return DTYPES[base.dtype] if base and base.dtype else RECIPES[t.training.precision].weights


def compute_dtype(t: Tape) -> Dtype:
    """Return the dtype in which packed weights multiply."""
    return DTYPES[t.training.base.compute_dtype] if t.training.base else t.precision.compute


def linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None, packing: Packing) -> Tensor:
    """Multiply x [.., i] by a packed weight [o, i], in the dtype of computation, and return x's. Saves nothing: the weight is frozen.

    The forward pass unpacks the weight to that dtype, with the scales of nested ones twice. The backward pass unpacks it to the one that it
    had before, with the scales once, and then casts it, before it makes the gradient of x.
    """
    compute, elements = compute_dtype(t), product(w.shape)
    narrow, bias = op.cast(t, x, compute), b and op.cast(t, b, compute)
    made = t.tensor((*x.shape[:-1], w.shape[0]), compute)
    flops = op.products(narrow, w, 2 * product(x.shape) * w.shape[0], "2 · rows · in · out")
    many = minimum(product(x.shape[:-1]) // (ROWS + 1), 1)
    wide, scales = BYTES[compute] * elements, packing.scales(elements)
    before_gradient = w.bytes + (scales if compute == w.dtype else maximum(scales, wide))
    t.record(
        "matmul_4bit", [narrow, w, *([bias] if bias else [])], [made], [], flops, temporary=many * (wide + 2 * scales),
        backward_temporary=maximum(wide, before_gradient - narrow.bytes), by=linear,
    )  # fmt: skip
    back = op.cast(t, made, x.dtype)
    op.keep_alive(t, narrow)
    return back
