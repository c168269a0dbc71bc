"""The operators: their FLOPs, the tensors that they save for backward, and what autocast does to their dtypes.

A product saves the other factor of each factor that needs a gradient; sums and casts save nothing. An operator without an input that needs
a gradient saves nothing and has no backward FLOPs (``Tape.record``). These rules alone determine what a module saves.

Shapes are written [B, n, d]. Sources: derivatives.yaml and autocast_mode.h of PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from planner.spec.precision import Dtype
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, minimum, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

WIDER: dict[Dtype, int] = {"bool": 0, "uint8": 1, "int32": 2, "int64": 3, "bfloat16": 4, "float16": 4, "float32": 5}

LINEAR = "linear: out · in"  # the shape of a weight by which the model multiplies


def promote(*tensors: Tensor) -> Dtype:
    """Return the dtype to which PyTorch promotes the tensors."""
    return max((tensor.dtype for tensor in tensors), key=lambda dtype: WIDER[dtype])


def like(t: Tape, x: Tensor, dtype: Dtype | None = None) -> Tensor:
    """Return a new tensor of x's shape and layout."""
    made = t.tensor(x.shape, dtype or x.dtype)
    made.by_head = x.by_head
    return made


def factors(*pair: tuple[Tensor, str]) -> list[Saved]:
    """Return what a product saves: each factor whose other factor needs a gradient."""
    (a, _), (b, _) = pair
    return [Saved(tensor, what) for (tensor, what), other in zip(pair, (b, a), strict=True) if other.needs_grad]


def products(a: Tensor, b: Tensor, forward: Size, why: str, pairs: tuple[Size, Size] | None = None) -> Flops:
    """Return the FLOPs of a matrix product, the same backward per factor that needs a gradient. ``pairs``: its full and causal FLOPs."""
    full, causal = pairs or (forward, forward)
    return Flops(forward, full, causal, forward * (a.needs_grad + b.needs_grad), why)


def cast(t: Tape, x: Tensor, dtype: Dtype) -> Tensor:
    """Cast. Saves nothing."""
    return x if x.dtype == dtype else t.record("cast", [x], [like(t, x, dtype)], by=cast)[0]


def cast_lower_precision(t: Tape, x: Tensor) -> Tensor:
    """Return x as autocast passes it to a matrix product; casts of trainable weights are cached (cached_cast, autocast_mode.cpp)."""
    if not t.precision.autocast or x.dtype != "float32":
        return x
    made = x.cast_copy or cast(t, x, t.precision.autocast)
    if x.leaf and x.needs_grad:
        x.cast_copy = made
        made.storage.until_forward_ends = True
    return made


def cast_fp32(t: Tape, x: Tensor) -> Tensor:
    """Return x as autocast passes it to an operator that runs in float32. On the CPU those keep the input's dtype."""
    return cast(t, x, "float32") if t.precision.autocast and t.device == "cuda" else x


def embedding(t: Tape, ids: Tensor, table: Tensor) -> Tensor:
    """Look up ids [..] in a table [V, d] -> [.., d]. Saves the ids; backward makes a dense gradient of the table."""
    made = t.tensor((*ids.shape, table.shape[1]), table.dtype)
    return t.record("embedding", [ids, table], [made], [Saved(ids, "ids")], by=embedding)[0]


def linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Multiply x [.., i] by w [o, i] and add b [o] -> [.., o]. 2·rows·i·o FLOPs; saves x if w trains, and w if x needs a gradient."""
    b = b and cast_lower_precision(t, b)
    w = cast_lower_precision(t, w)
    x = cast_lower_precision(t, x)  # autocast casts arguments from the last to the first
    inputs = [x, w, b] if b else [x, w]
    made = t.tensor((*x.shape[:-1], w.shape[0]), x.dtype)
    flops = products(x, w, 2 * product(x.shape) * w.shape[0], "2 · rows · in · out")
    saved = factors((x, "input"), (w, "weight" if w.leaf else "weight cast to compute dtype"))
    return t.record("linear", inputs, [made], saved, flops, views_gradient=True, added=b, by=linear)[0]


def add(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Add with broadcasting. Saves nothing."""
    return t.record("add", [a, b], [_broadcast(t, a, b)], passes_gradient=True, elementwise=True, by=add)[0]


def add_in_place(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Add b to a in place. Saves nothing."""
    return t.record("add_", [a, b], [Tensor(a.shape, a.dtype, a.parts)], passes_gradient=True, elementwise=True, by=add_in_place)[0]


def multiply(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Multiply element by element with broadcasting. Saves each factor whose other factor needs a gradient."""
    saved = factors((b, "factor"), (a, "factor"))
    return t.record("multiply", [a, b], [_broadcast(t, a, b)], saved, elementwise=True, by=multiply)[0]


def scaled(t: Tape, x: Tensor, factor: Tensor) -> Tensor:
    """Multiply x by a tensor without dimensions, which keeps x's dtype. Saves each factor whose other factor needs a gradient."""
    return t.record("multiply", [x, factor], [like(t, x)], factors((x, "factor"), (factor, "factor")), elementwise=True, by=scaled)[0]


def divide(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Divide element by element with broadcasting. Saves the divisor, and the dividend if the divisor needs a gradient."""
    saved = [*([Saved(a, "dividend")] if b.needs_grad else []), Saved(b, "divisor")]
    return t.record("div", [a, b], [_broadcast(t, a, b)], saved, elementwise=True, by=divide)[0]


def clamp(t: Tape, x: Tensor) -> Tensor:
    """Clamp to constants. Saves its input."""
    return t.record("clamp", [x], [like(t, x)], [Saved(x, "input")], by=clamp)[0]


def mul_scalar(t: Tape, x: Tensor) -> Tensor:
    """Multiply by a constant. Saves nothing."""
    return t.record("scale", [x], [like(t, x)], by=mul_scalar)[0]


def scale_in_place(t: Tape, x: Tensor) -> Tensor:
    """Multiply by a constant in place. Saves nothing."""
    return t.record("mul_", [x], [Tensor(x.shape, x.dtype, x.parts, needs_grad=x.needs_grad)], by=scale_in_place)[0]


def pointwise(t: Tape, name: str, x: Tensor) -> Tensor:
    """Apply a function whose derivative needs its input (gelu, silu). Saves its input."""
    return t.record(name, [x], [like(t, x)], [Saved(x, "input")], by=pointwise)[0]


def relu(t: Tape, x: Tensor) -> Tensor:
    """Apply max(x, 0). Saves its output."""
    made = like(t, x)
    return t.record("relu", [x], [made], [Saved(made, "output")], by=relu)[0]


def power(t: Tape, x: Tensor) -> Tensor:
    """Raise to a constant power. Saves its input, of which backward makes two temporary copies; autocast runs powers in float32."""
    x = cast_fp32(t, x)
    return t.record("pow", [x], [like(t, x)], [Saved(x, "input")], backward_temporary=2 * x.bytes, by=power)[0]


def dropout(t: Tape, x: Tensor) -> Tensor:
    """Dropout. Saves a mask of one byte per element. The CPU multiplies by scaled noise in x's dtype and saves that instead."""
    if t.device == "cpu":
        noise = t.tensor(x.shape, x.dtype, needs_grad=False)
        t.record("noise", [], [noise], by=dropout)
        return multiply(t, x, noise)
    mask = t.tensor(x.shape, "bool", needs_grad=False)
    return t.record("dropout", [x], [like(t, x), mask], [Saved(mask, "mask")], by=dropout)[0]


def layer_norm(t: Tape, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """LayerNorm over the last dimension in one kernel. Saves x, weight and bias, and mean and rstd per row.

    In float32 under autocast on CUDA. The CPU saves the statistics in the wider dtype of input and weight.
    """
    x, weight, bias = cast_fp32(t, x), weight and cast_fp32(t, weight), bias and cast_fp32(t, bias)
    precise = "float32" if t.device == "cuda" else promote(x, weight) if weight else x.dtype
    statistics = t.tensor((2, *x.shape[:-1]), precise, needs_grad=False)
    inputs = [tensor for tensor in (x, weight, bias) if tensor]
    saved = [Saved(x, "input"), Saved(statistics, "mean and rstd")]
    saved += [Saved(vector, what) for vector, what in ((weight, "weight"), (bias, "bias")) if vector]
    return t.record("layer_norm", inputs, [like(t, x), statistics], saved, by=layer_norm)[0]


def rms_norm(t: Tape, x: Tensor, weight: Tensor | None) -> Tensor:
    """RMSNorm in one kernel; float32 under autocast on CUDA. Saves x, the weight, and the reciprocal RMS per row."""
    x, weight = cast_fp32(t, x), weight and cast_fp32(t, weight)
    root = t.tensor((*x.shape[:-1], 1), "float32", needs_grad=False)
    vectors = [weight] if weight else []
    saved = [Saved(x, "input"), Saved(root, "reciprocal RMS"), *(Saved(vector, "weight") for vector in vectors)]
    return t.record("rms_norm", [x, *vectors], [like(t, x), root], saved, by=rms_norm)[0]


def constant(t: Tape, shape: tuple[Size, ...], dtype: Dtype) -> Tensor:
    """Return a tensor that belongs to the model, such as a table of cosines. It never counts as saved."""
    made = t.tensor(shape, dtype, needs_grad=False)
    made.storage.leaf = True
    return made


def softmax(t: Tape, x: Tensor) -> Tensor:
    """Softmax over the last dimension. Saves its output.

    In float32 under autocast on CUDA, where the kernel reads float16 without a cast (Softmax.cpp, half_to_float).
    """
    reads_half = t.precision.autocast and t.device == "cuda" and x.dtype == "float16"
    x = x if reads_half else cast_fp32(t, x)
    made = like(t, x, "float32" if reads_half else x.dtype)
    return t.record("softmax", [x], [made], [Saved(made, "probabilities")], by=softmax)[0]


def split(t: Tape, x: Tensor, *shapes: tuple[Size, ...]) -> tuple[Tensor, ...]:
    """Split x into views. Saves nothing; backward concatenates the views' gradients into a new tensor."""
    return t.record("split", [x], [Tensor(shape, x.dtype, x.parts, needs_grad=x.needs_grad) for shape in shapes], by=split)


def narrow(t: Tape, x: Tensor, width: Size) -> Tensor:
    """Slice the last dimension of x to a width (a view). Saves nothing; backward copies into zeros of x's shape."""
    made = Tensor((*x.shape[:-1], width), x.dtype, x.parts, needs_grad=x.needs_grad)
    made.by_head = x.by_head
    return t.record("slice", [x], [made], by=narrow)[0]


def cat(t: Tape, *pieces: Tensor) -> Tensor:
    """Concatenate along the last dimension. Saves nothing; backward splits the gradient into views.

    On the CPU, autocast casts the pieces to one dtype; the CUDA kernel reads each in its own.
    """
    dtype = promote(*pieces)
    if t.precision.autocast and t.device == "cpu":
        pieces = tuple(cast(t, piece, dtype) for piece in pieces)
    shape = (*pieces[0].shape[:-1], sum(piece.shape[-1] for piece in pieces))
    return t.record("cat", pieces, [t.tensor(shape, dtype)], passes_gradient=True, views_gradient=True, by=cat)[0]


def neg(t: Tape, x: Tensor) -> Tensor:
    """Return -x. Saves nothing."""
    return t.record("neg", [x], [like(t, x)], by=neg)[0]


def masked_fill(t: Tape, x: Tensor, mask: Tensor, what: str = "mask") -> Tensor:
    """Replace elements of x by a constant. Saves the mask."""
    return t.record("masked_fill", [x, mask], [like(t, x)], [Saved(mask, what)], by=masked_fill)[0]


def contiguous(t: Tape, x: Tensor, moved: Size | None) -> Tensor:
    """Return x contiguous: a copy if ``moved`` is 1, else x itself. None: never a copy."""
    if moved is None:
        return x
    return t.record("clone", [x], [clone(t, x, x.shape, moved)], passes_gradient=True, by=contiguous)[0]


def expand(t: Tape, x: Tensor, shape: tuple[Size, ...], moved: Size) -> Tensor:
    """Return x repeated to the given shape: a copy if ``moved`` is 1, else a view. Backward sums."""
    copy = clone(t, x, shape, moved)
    return t.record("expand", [x], [Tensor(shape, x.dtype, copy.parts, needs_grad=x.needs_grad)], by=expand)[0]


def clone(t: Tape, x: Tensor, shape: tuple[Size, ...], moved: Size) -> Tensor:
    """Return x in a new storage of the given shape if ``moved`` is 1, else x itself."""
    copy = t.tensor(shape, x.dtype, needs_grad=x.needs_grad)
    copy.storage.bytes = copy.bytes * moved
    return Tensor(x.shape, x.dtype, (*copy.parts, *((storage, times * (1 - moved)) for storage, times in x.parts)), needs_grad=x.needs_grad)


def matmul(t: Tape, a: Tensor, b: Tensor, *, pairs: bool) -> Tensor:
    """Multiply a [.., m, k] by b [.., k, p] -> [.., m, p]. Saves each factor whose other factor needs a gradient.

    ``pairs``: the product runs over pairs (query, key), half of which a causal mask allows.
    """
    b = cast_lower_precision(t, b)
    a = cast_lower_precision(t, a)
    made = t.tensor((*a.shape[:-1], b.shape[-1]), a.dtype)
    forward = 2 * product(a.shape) * b.shape[-1]
    flops = products(a, b, forward, "2 · batch · m · k · p", windowed(t, forward, made.shape[-2]) if pairs else None)
    return t.record("matmul", [a, b], [made], factors((a, "left factor"), (b, "right factor")), flops, by=matmul)[0]


def windowed(t: Tape, square: Size, n: Size) -> tuple[Size, Size]:
    """Return FLOPs by the conventions ``full`` and ``causal``, from the FLOPs of full n × n attention.

    A query sees ``window`` keys W, itself included: n·W - W²/2 pairs of n². With chunks of W it sees its own chunk: W²/2 pairs per chunk.
    Without a causal mask it sees as many later keys, and both conventions count all pairs.
    """
    if t.inference and t.inference.decodes:
        return square, square
    if t.window is None:
        return square, square // 2 if t.causal else square
    if t.chunked:
        rest = n - n // t.window * t.window
        pairs = n // t.window * t.window * t.window + rest * rest
    else:
        seen = minimum(n, t.window)
        pairs = 2 * n * seen - seen * seen
    full = square // (n * n) * pairs
    return full, full // 2 if t.causal else full


def keep_alive(t: Tape, *tensors: Tensor) -> None:
    """Keep the tensors alive until this point, as local variables do."""
    t.record("end of scope", tensors, [], by=keep_alive)


def keep_graph_alive(t: Tape, *tensors: Tensor) -> None:
    """Keep what a graph without a backward pass saves until this point, where its last variable ends."""
    t.record("end of graph", tensors, [], of_graph=True, by=keep_graph_alive)


def store(t: Tape, where: Literal["model", "module"], *tensors: Tensor, saved: Sequence[Saved] = ()) -> None:
    """Store the tensors in a variable of the model or a module, which outlives a recomputed layer."""
    if t.training.recompute == "full":
        t.record("store", tensors, [], saved, stored_in=where, by=store)


def keep_alive_until_step_end(x: Tensor) -> None:
    """Keep x alive until the step ends, as a variable of the training loop does."""
    for storage, _ in x.parts:
        storage.throughout = True


def _broadcast(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Return a new tensor of the shape and dtype in which a and b combine, in a's layout."""
    longer, shorter = (a.shape, b.shape) if len(a.shape) >= len(b.shape) else (b.shape, a.shape)
    padded = (1,) * (len(longer) - len(shorter)) + tuple(shorter)
    shape = tuple(other if isinstance(size, int) and size == 1 else size for size, other in zip(longer, padded, strict=True))
    made = t.tensor(shape, promote(a, b))
    made.by_head = a.by_head
    return made


def add_scalar(t: Tape, x: Tensor) -> Tensor:
    """Add a constant. Saves nothing."""
    return t.record("shift", [x], [like(t, x)], by=add_scalar)[0]


def mean(t: Tape, x: Tensor) -> Tensor:
    """Average over the last dimension. Saves nothing."""
    return t.record("mean", [x], [t.tensor((*x.shape[:-1], 1), x.dtype)], by=mean)[0]


def rsqrt(t: Tape, x: Tensor) -> Tensor:
    """Reciprocal square root. Saves its output; autocast runs it in float32."""
    x = cast_fp32(t, x)
    made = like(t, x)
    return t.record("rsqrt", [x], [made], [Saved(made, "output")], by=rsqrt)[0]


def softcap(t: Tape, x: Tensor) -> Tensor:
    """Logit soft-capping: cap · tanh(x / cap)."""
    return mul_scalar(t, tanh(t, mul_scalar(t, x)))


def tanh(t: Tape, x: Tensor) -> Tensor:
    """Hyperbolic tangent. Saves its output."""
    made = like(t, x)
    return t.record("tanh", [x], [made], [Saved(made, "output")], by=tanh)[0]


def fill(t: Tape, first: Tensor, second: Tensor, shape: tuple[Size, ...]) -> Tensor:
    """Copy both tensors into a new one of the first's dtype, the second for all heads. Saves nothing."""
    return t.record("copy_", [first, second], [t.tensor(shape, first.dtype)], by=fill)[0]


def block_linear(t: Tape, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Block-diagonal linear: multiply each slice of x [B, n, blocks·i] by its matrix of w [blocks, i, i], and add b.

    2·rows·blocks·i² FLOPs. Saves x if w trains, and w if x needs a gradient.
    """
    x, w = cast_lower_precision(t, x), cast_lower_precision(t, w)
    flops = products(x, w, 2 * product(x.shape) * w.shape[-1], "2 · rows · blocks · in · out")
    return t.record("baddbmm", [x, w, b], [like(t, x)], factors((x, "input"), (w, "weight")), flops, by=block_linear)[0]


def declared(t: Tape, x: Tensor, w: Tensor, uses: Size) -> None:
    """Multiply each token by a tensor declared under ``extra``, ``uses`` times. Its activations are not counted."""
    forward = 2 * (product(x.shape) // x.shape[-1]) * product(w.shape) * uses
    t.note("activations of tensors declared under extra")
    t.record("declared by the spec", [x, w], [], (), products(x, w, forward, "2 · tokens · elements · uses"), by=declared)
