"""Linears of layers that multiply in float8, and what they save.

- torchao 0.19 (float8/float8_linear.py, without torch.compile) casts input, weight and gradient for each product, with a scale per tensor
  or row, and saves the input and the weight as they were, so that autocast does not cast the weight.
- Transformer Engine 2.20 (pytorch/module/linear.py, layernorm_linear.py, base.py; delayed or current scaling on Hopper) saves the input in
  8 bits, transposed, and caches the weight in 8 bits in both layouts. See ``planner.trace.megatron_linear``.

Both convert linears whose sizes are multiples of 16, and neither the LM head. Compiled casts make no other temporary tensors.
"""

from __future__ import annotations

from planner.trace import primitives as op
from planner.trace.sizes import product, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

MULTIPLE = 16  # of sizes, which the kernels require


def converted(t: Tape, w: Tensor) -> bool:
    """Return whether a linear with this weight multiplies in float8."""
    return t.training.float8 and t.component != "head" and not any(structure(size) % MULTIPLE for size in w.shape)


def linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Multiply x [.., i] by w [o, i] and add b, in float8 if the linear is converted: the bias is then added by another operator."""
    if not converted(t, w):
        return op.linear(t, x, w, b)
    x = op.cast_lower_precision(t, x)
    made = t.tensor((*x.shape[:-1], w.shape[0]), x.dtype)
    flops = op.products(x, w, 2 * product(x.shape) * w.shape[0], "2 · rows · in · out")
    casts = product(x.shape) + product(w.shape)
    saved = op.factors((x, "input"), (w, "weight"))
    backward = casts + product(made.shape)
    t.record("float8 linear", [x, w], [made], saved, flops, temporary=casts, backward_temporary=backward, views_gradient=True, by=linear)
    return op.add(t, made, op.cast(t, b, made.dtype)) if b else made
