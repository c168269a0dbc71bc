"""Operators of mixers: convolutions, elementwise functions, and loops over the sequence that one kernel or one record runs.

FLOPs count matrix products and convolutions, also those inside a loop. Products element by element and triangular solves do not count,
as in PyTorch's counter (torch/utils/flop_counter.py).
"""

from __future__ import annotations

from dataclasses import replace
from operator import lt

from planner.spec.precision import Dtype
from planner.trace import primitives as op
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, choose, exceeds_one, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def scan(t: Tape, name: str, inputs: list[Tensor], shape: tuple[Size, ...]) -> Tensor:
    """Run a recurrence over the sequence in one kernel -> ``shape``. Saves its inputs; recomputes states from them."""
    t.note(f"FLOPs and temporary memory inside the {name} kernel, and what it saves besides its inputs")
    saved = [Saved(tensor, f"input {number}") for number, tensor in enumerate(inputs)]
    return t.record(name, inputs, [t.tensor(shape, inputs[0].dtype)], saved, by=scan)[0]


def convolution(
    t: Tape, x: Tensor, width: Size, *, bias: bool, activated: bool = True, widened: bool = True, fused: bool | None = None
) -> Tensor:
    """Convolve each channel of x [B, n, c] with its own ``width`` weights, and apply SiLU -> [B, n, c].

    transformers' plain path casts x to the weight's dtype first if ``widened``, and the result to x's. ``fused``: whether it is one kernel,
    by default if mixers run the kernels of their authors.
    """
    with t.at("conv1d"):
        w = t.weight("weight", (x.shape[-1], 1, width), "depthwise convolution: channels · width")
        b = t.weight("bias", (x.shape[-1],), "bias: channels") if bias else None
        if t.fused_mixers if fused is None else fused:
            return fused_convolution(t, x, w, b, activated=activated)
        given, n = x, x.shape[1]
        x = with_state(t, x, width) if t.inference else x
        made = plain_convolution(t, op.cast(t, x, w.dtype) if widened else x, w, b, n)
        made = op.pointwise(t, "silu", made) if activated else made
        made = op.cast(t, made, given.dtype) if widened else made
        op.keep_alive(t, given, x)
        return made


def fused_convolution(t: Tape, x: Tensor, w: Tensor, b: Tensor | None, *, activated: bool) -> Tensor:
    """Depthwise causal convolution and SiLU in one kernel. Saves x and the weights.

    2·B·n·c·width FLOPs forward, and twice that backward (input and weight).
    """
    inputs, saved = [x, w.view(*w.shape), *([b] if b else [])], [Saved(x, "input"), Saved(w, "weight")]
    name = "causal_conv1d" + (" silu" if activated else "")
    return t.record(name, inputs, [t.tensor(x.shape, x.dtype)], saved, convolved(x, w, x.shape[1]), by=fused_convolution)[0]


def plain_convolution(t: Tape, x: Tensor, w: Tensor, b: Tensor | None, kept: Size) -> Tensor:
    """Pad x [B, n, c] by width - 1 on both sides, convolve each channel (nn.Conv1d), and return a view of ``kept`` outputs.

    A pass over one token after others reads these instead of padding.

    2·B·(n + width - 1)·c·width FLOPs forward, and twice that backward (input and weight). PyTorch's counter, which ignores groups in the
    backward pass, multiplies the latter by c (torch/utils/flop_counter.py, conv_backward_flop), so ``hardware`` does not follow it there.
    Saves x and the weight. The weight is a view, so autocast does not cache its cast.
    """
    B, n, c = x.shape
    lowered = t.precision.autocast if t.precision.autocast and x.dtype == "float32" else x.dtype
    b = b and op.cast_lower_precision(t, b)
    kernel = op.cast(t, w.view(*w.shape), t.precision.autocast or w.dtype)
    x = op.cast(t, x, lowered)
    length = n - w.shape[-1] + 1 if decodes(t) else n + w.shape[-1] - 1
    saved = op.factors((x, "input"), (kernel, "weight"))
    model = convolved(x, w, kept).full  # without the outputs that are dropped
    (made,) = t.record(
        "conv1d",
        [x, kernel, *([b] if b else [])],
        [t.tensor((B, length, c), x.dtype)],
        saved,
        replace(convolved(x, w, length), full=model, causal=model),
        by=plain_convolution,
    )
    return op.split(t, made, (B, kept, c))[0]


def with_state(t: Tape, x: Tensor, width: Size) -> Tensor:
    """Return x [B, n, c] with the tokens before it that its convolution reads; the last ``width`` tokens are kept for the next pass."""
    B, n, c = x.shape
    state = state_of(t, (B, width, c), x.dtype)
    if decodes(t):
        return t.record("cat", [state, x], [t.tensor((B, width + n, c), x.dtype)], by=with_state)[0]
    return padded(t, x, (B, width, c)) if choose(lt, n, width) else x


def state_of(t: Tape, shape: tuple[Size, ...], dtype: Dtype) -> Tensor:
    """Return a layer's state in the cache: the pass over the prompt allocates it, each further pass writes it in place.

    transformers 5.24: LinearAttentionLayer in cache_utils.py.
    """
    made = t.tensor(shape, dtype)
    if not decodes(t):
        made.storage.until_forward_ends = True
        t.record("zeros_like", [], [made], by=state_of)
    return made


def decodes(t: Tape) -> bool:
    """Whether the pass is over one token after others, whose states it reads."""
    return t.inference is not None and t.inference.decodes


def convolved(x: Tensor, w: Tensor, length: Size) -> Flops:
    """Return the FLOPs of a depthwise convolution with ``length`` outputs per channel."""
    forward = 2 * x.shape[0] * length * product(w.shape)
    return op.products(x, w, forward, "2 · batch · outputs · channels · width")


def exp(t: Tape, x: Tensor) -> Tensor:
    """Exponential, which autocast runs in float32. Saves its output."""
    x = op.cast_fp32(t, x)
    made = op.like(t, x)
    return t.record("exp", [x], [made], [Saved(made, "output")], by=exp)[0]


def softplus(t: Tape, x: Tensor) -> Tensor:
    """Return log(1 + exp(x)), which autocast runs in float32. Saves its input."""
    return op.pointwise(t, "softplus", op.cast_fp32(t, x))


def rows_of_channels(t: Tape, x: Tensor) -> Tensor:
    """Return x [B, n, c], stored as [B, c, n], as the input of a linear: a copy, unless B or n is 1."""
    return op.contiguous(t, x, exceeds_one(x.shape[0]) * exceeds_one(x.shape[1]))


def repeated_heads(t: Tape, x: Tensor, heads: Size) -> Tensor:
    """Repeat the heads of x [B, n, K, h] to as many as given: a copy, unless they are."""
    B, n, K, h = x.shape
    return x if heads == K else t.record("repeat_interleave", [x], [t.tensor((B, n, heads, h), x.dtype)], by=repeated_heads)[0]


def cumsum(t: Tape, x: Tensor) -> Tensor:
    """Sum up to each element of a dimension, which autocast runs in float32. Saves nothing."""
    x = op.cast_fp32(t, x)
    return t.record("cumsum", [x], [op.like(t, x)], by=cumsum)[0]


def padded(t: Tape, x: Tensor, shape: tuple[Size, ...]) -> Tensor:
    """Pad x, and view it in the given shape. It is a copy even without padding. Saves nothing."""
    return t.record("pad", [x], [t.tensor(shape, x.dtype)], by=padded)[0]


def of_each(t: Tape, count: Size, shape: tuple[Size, ...], dtype: Dtype, what: str) -> Saved:
    """Return ``count`` tensors of one shape, e.g. one per step of a loop, saved for backward."""
    return Saved(t.tensor((count, *shape), dtype, needs_grad=False), what)
