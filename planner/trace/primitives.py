"""The operators: what each costs, what it keeps for its derivative, and what autocast does to its dtypes.

A product keeps the other factor of each factor that needs a gradient, a sum and a cast keep nothing, a linear keeps its input. Nothing else
about activation memory is stated anywhere: what a module keeps follows from the operators that it runs.

Shapes are written [B, n, d]. Sources: derivatives.yaml and autocast_mode.h of PyTorch 2.13.
"""

from __future__ import annotations

from planner.trace.sizes import Size, exceeds_one, product
from planner.trace.tape import Flops, Saved, Tape
from planner.trace.tensor import Dtype, Tensor

WIDER: dict[Dtype, int] = {"bool": 0, "uint8": 1, "int32": 2, "int64": 3, "bfloat16": 4, "float16": 4, "float32": 5}


def promote(*tensors: Tensor) -> Dtype:
    """Return the dtype in which PyTorch combines the tensors."""
    return max((tensor.dtype for tensor in tensors), key=lambda dtype: WIDER[dtype])


def cast(t: Tape, x: Tensor, dtype: Dtype) -> Tensor:
    """Cast. Keeps nothing. Autocast caches its cast of a weight; every reader of an activation makes its own."""
    if x.dtype == dtype:
        return x
    if x.leaf and x.cast_copy:
        return x.cast_copy
    made = t.tensor(x.shape, dtype, needs_grad=x.needs_grad)
    made.by_head = x.by_head
    if x.leaf:
        x.cast_copy = made
        made.parts[0][0].until_forward_ends = True
    t.record("cast", [x], [made], by=cast)
    return made


def lowered(t: Tape, x: Tensor) -> Tensor:
    """Return x as autocast hands it to a matrix product."""
    return cast(t, x, t.precision.autocast) if t.precision.autocast and x.dtype == "float32" else x


def raised(t: Tape, x: Tensor) -> Tensor:
    """Return x as autocast hands it to an operator that it runs in float32 (CUDA; on the CPU those stay in the input's dtype)."""
    return cast(t, x, "float32") if t.precision.autocast and t.device == "cuda" else x


def embedding(t: Tape, ids: Tensor, table: Tensor) -> Tensor:
    """Look ids [..] up in a table [V, d] -> [.., d]. Keeps the ids; the derivative makes a dense gradient of the table."""
    made = t.tensor((*ids.shape, table.shape[1]), table.dtype)
    t.record("embedding", [ids, table], [made], [Saved(ids, "ids")], by=embedding)
    return made


def linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Multiply x [.., i] by w [o, i] and add b [o] -> [.., o]. 2·rows·i·o FLOPs; keeps x, and w where it is a cast."""
    x, w = lowered(t, x), lowered(t, w)
    inputs = [x, w] if b is None else [x, w, lowered(t, b)]
    made = t.tensor((*x.shape[:-1], w.shape[0]), x.dtype)
    forward = 2 * product(x.shape) * w.shape[0]
    flops = Flops(forward, forward, 2 * forward if x.needs_grad else forward, "2 · rows · in · out")
    saved = [Saved(x, "input"), Saved(w, "weight" if w.leaf else "weight's copy in the compute dtype")]
    t.record("linear", inputs, [made], saved, flops, by=linear)
    return made


def add(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Add, broadcasting. Keeps nothing."""
    made = t.tensor(_broadcast(a, b), promote(a, b), needs_grad=a.needs_grad or b.needs_grad)
    t.record("add", [a, b], [made], passes_gradient=True, by=add)
    return made


def multiply(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Multiply element by element, broadcasting. Keeps each factor whose other factor needs a gradient."""
    made = t.tensor(_broadcast(a, b), promote(a, b), needs_grad=a.needs_grad or b.needs_grad)
    saved = [Saved(kept, "factor") for kept, other in ((b, a), (a, b)) if other.needs_grad]
    t.record("multiply", [a, b], [made], saved, by=multiply)
    return made


def scale(t: Tape, x: Tensor) -> Tensor:
    """Multiply by a constant. Keeps nothing."""
    made = t.tensor(x.shape, x.dtype, needs_grad=x.needs_grad)
    t.record("scale", [x], [made], by=scale)
    return made


def pointwise(t: Tape, name: str, x: Tensor) -> Tensor:
    """Apply a function whose derivative needs its input (gelu, silu)."""
    made = t.tensor(x.shape, x.dtype)
    t.record(name, [x], [made], [Saved(x, "input")], by=pointwise)
    return made


def relu(t: Tape, x: Tensor) -> Tensor:
    """Apply max(x, 0). Keeps its output."""
    made = t.tensor(x.shape, x.dtype)
    t.record("relu", [x], [made], [Saved(made, "output")], by=relu)
    return made


def square(t: Tape, x: Tensor) -> Tensor:
    """Square. Keeps its input; autocast runs powers in float32."""
    x = raised(t, x)
    made = t.tensor(x.shape, x.dtype)
    t.record("pow", [x], [made], [Saved(x, "input")], by=square)
    return made


def dropout(t: Tape, x: Tensor) -> Tensor:
    """Zero elements at random. Keeps a mask of one byte an element; the CPU keeps the scaled noise in x's dtype instead."""
    made = t.tensor(x.shape, x.dtype)
    mask = t.tensor(x.shape, "bool" if t.device == "cuda" else x.dtype, needs_grad=False)
    t.record("dropout", [x], [made, mask], [Saved(mask, "mask" if t.device == "cuda" else "noise")], by=dropout)
    return made


def layer_norm(t: Tape, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalise over the last dimension, one kernel. Keeps x and, per row, mean and reciprocal deviation.

    In float32 under autocast on CUDA. The CPU keeps the statistics in the input's dtype.
    """
    x = raised(t, x)
    made = t.tensor(x.shape, x.dtype)
    statistics = t.tensor((2, *x.shape[:-1]), "float32" if t.device == "cuda" else x.dtype, needs_grad=False)
    inputs = [tensor for tensor in (x, weight, bias) if tensor]
    saved = [Saved(x, "input"), Saved(statistics, "mean and reciprocal standard deviation")]
    t.record("layer_norm", inputs, [made, statistics], [*saved, *([Saved(weight, "weight")] if weight else [])], by=layer_norm)
    return made


def rms_norm(t: Tape, x: Tensor, weight: Tensor | None) -> Tensor:
    """Divide by the root of the mean square over the last dimension, one kernel. Keeps x and, per row, the reciprocal root."""
    made = t.tensor(x.shape, promote(x, weight) if weight else x.dtype)
    root = t.tensor((*x.shape[:-1], 1), "float32", needs_grad=False)
    saved = [Saved(x, "input"), Saved(root, "reciprocal root mean square"), *([Saved(weight, "weight")] if weight else [])]
    t.record("rms_norm", [x, *([weight] if weight else [])], [made, root], saved, by=rms_norm)
    return made


def fused_norm(t: Tape, x: Tensor, name: str, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalise in one kernel whose statistics are left out of account. Keeps x."""
    made = t.tensor(x.shape, x.dtype)
    t.record(name, [tensor for tensor in (x, weight, bias) if tensor], [made], [Saved(x, "input")], by=fused_norm)
    return made


def fused_gate(t: Tape, name: str, gate: Tensor, up: Tensor) -> Tensor:
    """Return activation(gate) · up in one kernel. Keeps gate and up."""
    made = t.tensor(gate.shape, gate.dtype)
    t.record(f"{name} gate", [gate, up], [made], [Saved(gate, "gate"), Saved(up, "up")], by=fused_gate)
    return made


def fused_cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy in one kernel, in place of the logits. Keeps what it made of them, and the targets."""
    made = t.tensor((), logits.dtype)
    t.record(
        "cross_entropy", [logits, targets], [made], [Saved(logits, "probabilities"), Saved(targets, "targets")], by=fused_cross_entropy
    )
    return made


def constant(t: Tape, shape: tuple[Size, ...], dtype: Dtype) -> Tensor:
    """Return a tensor that belongs to the model, such as a table of cosines: no operator is charged for keeping it."""
    made = t.tensor(shape, dtype, needs_grad=False)
    made.parts[0][0].leaf = True
    return made


def softmax(t: Tape, x: Tensor) -> Tensor:
    """Normalise exponentials over the last dimension. Keeps its output; in float32 under autocast on CUDA."""
    x = raised(t, x)
    made = t.tensor(x.shape, x.dtype)
    t.record("softmax", [x], [made], [Saved(made, "probabilities")], by=softmax)
    return made


def contiguous(t: Tape, x: Tensor, moved: Size) -> Tensor:
    """Return x in row-major order: a copy where ``moved`` is 1, x itself where it is 0."""
    copy = t.tensor(x.shape, x.dtype, needs_grad=x.needs_grad)
    copy.parts[0][0].bytes = copy.bytes * moved
    copy.parts = (*copy.parts, *((storage, times * (1 - moved)) for storage, times in x.parts))
    t.record("clone", [x], [copy], by=contiguous)
    return copy


def heads_apart(B: Size, n: Size, heads: Size) -> Size:
    """Return 1 where [B, heads, n, h] seen from [B, n, heads, h] cannot be read as [B·heads, n, h] without a copy, else 0."""
    return exceeds_one(B) * exceeds_one(n) * exceeds_one(heads)


def matmul(t: Tape, a: Tensor, b: Tensor, *, pairs: bool) -> Tensor:
    """Multiply a [.., m, k] by b [.., k, p] -> [.., m, p]. Keeps both.

    ``pairs``: the product runs over pairs (query, key), of which a causal mask needs half.
    """
    a, b = lowered(t, a), lowered(t, b)
    made = t.tensor((*a.shape[:-1], b.shape[-1]), a.dtype)
    forward = 2 * product(a.shape) * b.shape[-1]
    flops = Flops(forward, forward // 2 if pairs else forward, 2 * forward, "2 · batch · m · k · p")
    t.record("matmul", [a, b], [made], [Saved(a, "left factor"), Saved(b, "right factor")], flops, by=matmul)
    return made


def log_softmax(t: Tape, logits: Tensor) -> Tensor:
    """Return log-probabilities [rows, V]. Keeps its output."""
    made = t.tensor(logits.shape, logits.dtype)
    t.record("log_softmax", [logits], [made], [Saved(made, "log-probabilities")], by=log_softmax)
    return made


def nll_loss(t: Tape, log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """Average the targets' negative log-probabilities. Keeps its inputs and the total weight."""
    with t.at("", "loss"):
        made, weight = t.tensor((), log_probabilities.dtype), t.tensor((), log_probabilities.dtype, needs_grad=False)
    saved = [Saved(log_probabilities, "log-probabilities"), Saved(targets, "targets"), Saved(weight, "total weight")]
    t.record("nll_loss", [log_probabilities, targets], [made, weight], saved, by=nll_loss)
    return made


def hold(t: Tape, x: Tensor) -> None:
    """Say that a variable still names x here: it lives until now, whoever else has let go of it."""
    t.record("end of scope", [x], [], by=hold)


def hold_throughout(x: Tensor) -> None:
    """Say that a variable of the training loop names x until the step ends."""
    for storage, _ in x.parts:
        storage.throughout = True


def _broadcast(a: Tensor, b: Tensor) -> tuple[Size, ...]:
    longer, shorter = (a.shape, b.shape) if len(a.shape) >= len(b.shape) else (b.shape, a.shape)
    padded = (1,) * (len(longer) - len(shorter)) + tuple(shorter)
    return tuple(other if isinstance(size, int) and size == 1 else size for size, other in zip(longer, padded, strict=True))


def rotate_half(t: Tape, x: Tensor) -> Tensor:
    """Return the second half of the last dimension, negated, before the first. Keeps nothing."""
    made = t.tensor(x.shape, x.dtype)
    t.record("rotate_half", [x], [made], by=rotate_half)
    return made


def cat(t: Tape, turned: Tensor, x: Tensor) -> Tensor:
    """Return x with its first channels replaced by ``turned``. Keeps nothing."""
    made = t.tensor(x.shape, promote(turned, x))
    t.record("cat", [turned, x], [made], by=cat)
    return made


def shift(t: Tape, x: Tensor) -> Tensor:
    """Add a constant. Keeps nothing."""
    made = t.tensor(x.shape, x.dtype, needs_grad=x.needs_grad)
    t.record("shift", [x], [made], by=shift)
    return made


def mean(t: Tape, x: Tensor) -> Tensor:
    """Average over the last dimension. Keeps nothing."""
    made = t.tensor((*x.shape[:-1], 1), x.dtype)
    t.record("mean", [x], [made], by=mean)
    return made


def rsqrt(t: Tape, x: Tensor) -> Tensor:
    """Take the reciprocal square root. Keeps its output; autocast runs it in float32."""
    x = raised(t, x)
    made = t.tensor(x.shape, x.dtype)
    t.record("rsqrt", [x], [made], [Saved(made, "output")], by=rsqrt)
    return made


def tanh(t: Tape, x: Tensor) -> Tensor:
    """Take the hyperbolic tangent. Keeps its output."""
    made = t.tensor(x.shape, x.dtype)
    t.record("tanh", [x], [made], [Saved(made, "output")], by=tanh)
    return made
