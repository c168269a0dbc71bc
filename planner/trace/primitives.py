"""The operators: what each costs, what it keeps for its derivative, and what autocast does to its dtypes.

A product keeps the other factor of each factor that needs a gradient, a sum and a cast keep nothing. An operator none of whose inputs needs
a gradient keeps nothing and costs nothing backward (``Tape.record``). Nothing else about activation memory is stated anywhere: what a
module keeps follows from the operators that it runs.

Shapes are written [B, n, d]. Sources: derivatives.yaml and autocast_mode.h of PyTorch 2.13.
"""

from __future__ import annotations

from planner.spec.precision import Dtype
from planner.trace.sizes import Size, exceeds_one, minimum, product
from planner.trace.tape import Flops, Saved, Tape
from planner.trace.tensor import Tensor

WIDER: dict[Dtype, int] = {"bool": 0, "uint8": 1, "int32": 2, "int64": 3, "bfloat16": 4, "float16": 4, "float32": 5}


def promote(*tensors: Tensor) -> Dtype:
    """Return the dtype in which PyTorch combines the tensors."""
    return max((tensor.dtype for tensor in tensors), key=lambda dtype: WIDER[dtype])


def like(t: Tape, x: Tensor, dtype: Dtype | None = None) -> Tensor:
    """Return a new tensor of x's shape and layout."""
    made = t.tensor(x.shape, dtype or x.dtype)
    made.by_head = x.by_head
    return made


def factors(*pair: tuple[Tensor, str]) -> list[Saved]:
    """Return what a product keeps of its two factors: each one whose other factor needs a gradient."""
    (a, _), (b, _) = pair
    return [Saved(tensor, what) for (tensor, what), other in zip(pair, (b, a), strict=True) if other.needs_grad]


def products(a: Tensor, b: Tensor, forward: Size, why: str, pairs: tuple[Size, Size] | None = None) -> Flops:
    """Return the FLOPs of a matrix product, as many backward for each factor that needs a gradient; ``pairs``: full and causal ones."""
    full, causal = pairs or (forward, forward)
    return Flops(forward, full, causal, forward * (a.needs_grad + b.needs_grad), why)


def cast(t: Tape, x: Tensor, dtype: Dtype) -> Tensor:
    """Cast. Keeps nothing."""
    if x.dtype == dtype:
        return x
    made = like(t, x, dtype)
    t.record("cast", [x], [made], by=cast)
    return made


def lowered(t: Tape, x: Tensor) -> Tensor:
    """Return x as autocast hands it to a matrix product: of a weight that trains it caches its copy (cached_cast, autocast_mode.cpp)."""
    if not t.precision.autocast or x.dtype != "float32":
        return x
    made = x.cast_copy or cast(t, x, t.precision.autocast)
    if x.leaf and x.needs_grad:
        x.cast_copy = made
        made.parts[0][0].until_forward_ends = True
    return made


def raised(t: Tape, x: Tensor) -> Tensor:
    """Return x as autocast hands it to an operator that it runs in float32 (CUDA; on the CPU those stay in the input's dtype)."""
    return cast(t, x, "float32") if t.precision.autocast and t.device == "cuda" else x


def embedding(t: Tape, ids: Tensor, table: Tensor) -> Tensor:
    """Look ids [..] up in a table [V, d] -> [.., d]. Keeps the ids; the derivative makes a dense gradient of the table."""
    made = t.tensor((*ids.shape, table.shape[1]), table.dtype)
    t.record("embedding", [ids, table], [made], [Saved(ids, "ids")], by=embedding)
    return made


def linear(t: Tape, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Multiply x [.., i] by w [o, i] and add b [o] -> [.., o]. 2·rows·i·o FLOPs; keeps x if w trains, w if x needs a gradient."""
    b = b and lowered(t, b)
    w = lowered(t, w)
    x = lowered(t, x)  # autocast takes arguments from the last to the first
    inputs = [x, w, b] if b else [x, w]
    made = t.tensor((*x.shape[:-1], w.shape[0]), x.dtype)
    flops = products(x, w, 2 * product(x.shape) * w.shape[0], "2 · rows · in · out")
    saved = factors((x, "input"), (w, "weight" if w.leaf else "weight's copy in the compute dtype"))
    t.record("linear", inputs, [made], saved, flops, views_gradient=True, added=b, by=linear)
    return made


def add(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Add, broadcasting. Keeps nothing."""
    made = t.tensor(_broadcast(a, b), promote(a, b))
    made.by_head = a.by_head
    t.record("add", [a, b], [made], passes_gradient=True, elementwise=True, by=add)
    return made


def multiply(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Multiply element by element, broadcasting. Keeps each factor whose other factor needs a gradient."""
    made = t.tensor(_broadcast(a, b), promote(a, b))
    made.by_head = a.by_head
    t.record("multiply", [a, b], [made], factors((b, "factor"), (a, "factor")), elementwise=True, by=multiply)
    return made


def scale(t: Tape, x: Tensor) -> Tensor:
    """Multiply by a constant. Keeps nothing."""
    made = like(t, x)
    t.record("scale", [x], [made], by=scale)
    return made


def pointwise(t: Tape, name: str, x: Tensor) -> Tensor:
    """Apply a function whose derivative needs its input (gelu, silu)."""
    made = like(t, x)
    t.record(name, [x], [made], [Saved(x, "input")], by=pointwise)
    return made


def relu(t: Tape, x: Tensor) -> Tensor:
    """Apply max(x, 0). Keeps its output."""
    made = like(t, x)
    t.record("relu", [x], [made], [Saved(made, "output")], by=relu)
    return made


def square(t: Tape, x: Tensor) -> Tensor:
    """Square. Keeps its input, of which the derivative makes two copies; autocast runs powers in float32."""
    x = raised(t, x)
    made = like(t, x)
    t.record("pow", [x], [made], [Saved(x, "input")], backward_temporary=2 * x.bytes, by=square)
    return made


def dropout(t: Tape, x: Tensor) -> Tensor:
    """Zero elements at random. Keeps a mask of one byte an element; the CPU multiplies by scaled noise in x's dtype, and keeps that."""
    if t.device == "cpu":
        noise = t.tensor(x.shape, x.dtype, needs_grad=False)
        t.record("noise", [], [noise], by=dropout)
        return multiply(t, x, noise)
    made = like(t, x)
    mask = t.tensor(x.shape, "bool", needs_grad=False)
    t.record("dropout", [x], [made, mask], [Saved(mask, "mask")], by=dropout)
    return made


def layer_norm(t: Tape, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalize over the last dimension, one kernel. Keeps x and, per row, mean and reciprocal deviation.

    In float32 under autocast on CUDA. The CPU keeps the statistics in the wider dtype of the input and the weight.
    """
    x = raised(t, x)
    made = like(t, x)
    precise = "float32" if t.device == "cuda" else promote(x, weight) if weight else x.dtype
    statistics = t.tensor((2, *x.shape[:-1]), precise, needs_grad=False)
    inputs = [tensor for tensor in (x, weight, bias) if tensor]
    saved = [Saved(x, "input"), Saved(statistics, "mean and reciprocal standard deviation")]
    saved += [Saved(vector, what) for vector, what in ((weight, "weight"), (bias, "bias")) if vector]
    t.record("layer_norm", inputs, [made, statistics], saved, by=layer_norm)
    return made


def rms_norm(t: Tape, x: Tensor, weight: Tensor | None) -> Tensor:
    """Divide by the root of the mean square over the last dimension, one kernel. Keeps x and, per row, the reciprocal root.

    In float32 under autocast on CUDA.
    """
    x = raised(t, x)
    made = like(t, x)
    root = t.tensor((*x.shape[:-1], 1), "float32", needs_grad=False)
    saved = [Saved(x, "input"), Saved(root, "reciprocal root mean square"), *([Saved(weight, "weight")] if weight else [])]
    t.record("rms_norm", [x, *([weight] if weight else [])], [made, root], saved, by=rms_norm)
    return made


def constant(t: Tape, shape: tuple[Size, ...], dtype: Dtype) -> Tensor:
    """Return a tensor that belongs to the model, such as a table of cosines: no operator is charged for keeping it."""
    made = t.tensor(shape, dtype, needs_grad=False)
    made.parts[0][0].leaf = True
    return made


def softmax(t: Tape, x: Tensor) -> Tensor:
    """Normalize exponentials over the last dimension. Keeps its output.

    In float32 under autocast on CUDA, whose kernel reads float16 as it is (Softmax.cpp, half_to_float).
    """
    reads_half = t.precision.autocast and t.device == "cuda" and x.dtype == "float16"
    x = x if reads_half else raised(t, x)
    made = like(t, x, "float32" if reads_half else x.dtype)
    t.record("softmax", [x], [made], [Saved(made, "probabilities")], by=softmax)
    return made


def split(t: Tape, x: Tensor, *shapes: tuple[Size, ...]) -> tuple[Tensor, ...]:
    """Cut x into views. Keeps nothing; the derivative joins the views' gradients to a new one."""
    views = tuple(Tensor(shape, x.dtype, x.parts, needs_grad=x.needs_grad) for shape in shapes)
    t.record("split", [x], views, by=split)
    return views


def cat(t: Tape, *pieces: Tensor) -> Tensor:
    """Join along the last dimension. Keeps nothing; the derivative cuts the gradient into views.

    Autocast makes copies in one dtype on the CPU; CUDA's kernel reads each piece as it is.
    """
    dtype = promote(*pieces)
    if t.precision.autocast and t.device == "cpu":
        pieces = tuple(cast(t, piece, dtype) for piece in pieces)
    shape = (*pieces[0].shape[:-1], sum(piece.shape[-1] for piece in pieces))
    made = t.tensor(shape, dtype)
    t.record("cat", pieces, [made], passes_gradient=True, views_gradient=True, by=cat)
    return made


def negate(t: Tape, x: Tensor) -> Tensor:
    """Return -x. Keeps nothing."""
    made = like(t, x)
    t.record("neg", [x], [made], by=negate)
    return made


def contiguous(t: Tape, x: Tensor, moved: Size | None) -> Tensor:
    """Return x in row-major order: a copy where ``moved`` is 1, x itself where it is 0; None: never a copy."""
    if moved is None:
        return x
    copy = copied(t, x, x.shape, moved)
    t.record("clone", [x], [copy], passes_gradient=True, by=contiguous)
    return copy


def expanded(t: Tape, x: Tensor, shape: tuple[Size, ...], moved: Size) -> Tensor:
    """Return x repeated to the given shape: in a new storage where ``moved`` is 1, as a view where it is 0. The derivative sums."""
    made = t.tensor(shape, x.dtype, needs_grad=x.needs_grad)
    made.parts[0][0].bytes = made.bytes * moved
    made.parts = (*made.parts, *((storage, times * (1 - moved)) for storage, times in x.parts))
    t.record("expand", [x], [made], by=expanded)
    return made


def copied(t: Tape, x: Tensor, shape: tuple[Size, ...], moved: Size) -> Tensor:
    """Return x in a new storage of the given shape where ``moved`` is 1, x itself where it is 0."""
    copy = t.tensor(shape, x.dtype, needs_grad=x.needs_grad)
    copy.parts[0][0].bytes = copy.bytes * moved
    return Tensor(x.shape, x.dtype, (*copy.parts, *((storage, times * (1 - moved)) for storage, times in x.parts)), needs_grad=x.needs_grad)


def heads_apart(B: Size, n: Size, heads: Size) -> Size:
    """Return 1 where [B, heads, n, h] seen from [B, n, heads, h] cannot be read as [B·heads, n, h] without a copy, else 0."""
    return exceeds_one(B) * exceeds_one(n) * exceeds_one(heads)


def matmul(t: Tape, a: Tensor, b: Tensor, *, pairs: bool) -> Tensor:
    """Multiply a [.., m, k] by b [.., k, p] -> [.., m, p]. Keeps each factor whose other factor needs a gradient.

    ``pairs``: the product runs over pairs (query, key), of which a causal mask lets half through.
    """
    b = lowered(t, b)
    a = lowered(t, a)
    made = t.tensor((*a.shape[:-1], b.shape[-1]), a.dtype)
    forward = 2 * product(a.shape) * b.shape[-1]
    flops = products(a, b, forward, "2 · batch · m · k · p", windowed(t, forward, made.shape[-2]) if pairs else None)
    t.record("matmul", [a, b], [made], factors((a, "left factor"), (b, "right factor")), flops, by=matmul)
    return made


def windowed(t: Tape, square: Size, n: Size) -> tuple[Size, Size]:
    """Return the FLOPs of twice the pairs that the mask lets through, and of the pairs, from those of the square of n.

    A query sees ``window`` keys W, itself included: n·W - W²/2 pairs, of n² in the square. In chunks of W it sees those of its own chunk:
    W²/2 pairs in each.
    """
    if t.window is None:
        return square, square // 2
    if t.chunked:
        rest = n - n // t.window * t.window
        pairs = n // t.window * t.window * t.window + rest * rest
    else:
        seen = minimum(n, t.window)
        pairs = 2 * n * seen - seen * seen
    full = square // (n * n) * pairs
    return full, full // 2


def matmul_by_head(t: Tape, a: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
    """Multiply a [B, H, m, k] by b [B, H, k, p] -> [B, H, m, p] over pairs (query, key), of copies where heads lie apart.

    ``transposed``: b is [B, H, p, k].
    """
    b = lowered(t, b)
    a = lowered(t, a)
    left, right = contiguous(t, a, _apart(a)), contiguous(t, b, _apart(b))
    made = matmul(t, left, right.view(*b.shape[:-2], b.shape[-1], b.shape[-2]) if transposed else right, pairs=True)
    hold(t, a, b)
    made.by_head = True
    return made


def heads_joined(t: Tape, x: Tensor) -> Tensor:
    """Return x [B, H, n, h] as [B, n, H·h]: a copy where it does not lie so."""
    B, heads, n, h = x.shape
    shared = _shared(x)
    moved = None
    if x.by_head or shared is not None:
        turned = exceeds_one(n) * exceeds_one(heads) if x.by_head else 0
        moved = turned if shared is None else shared * exceeds_one(B * n * heads) + (1 - shared) * turned
    return contiguous(t, x, moved).view(B, n, heads * h)


def _apart(x: Tensor) -> Size | None:
    """Return 1 where x [B, heads, n, h] cannot be read as [B·heads, n, h] without a copy, else 0; None where it always can."""
    B, heads, n, _ = x.shape
    shared = _shared(x)
    if shared is None:
        return None if x.by_head else heads_apart(B, n, heads)
    own = 0 if x.by_head else heads_apart(B, n, heads)
    return shared * exceeds_one(B) * exceeds_one(heads) + (1 - shared) * own


def _shared(x: Tensor) -> Size | None:
    """Return 1 where x's rows are parts of wider rows, or all one, else 0; None where they never are."""
    others = [times for storage, times in x.parts if product(storage.shape) != product(x.shape)]
    return sum(others) if others and not x.interleaved else None


def hold(t: Tape, *tensors: Tensor) -> None:
    """Say that variables still name the tensors here: they live until now, whoever else has let go of them."""
    t.record("end of scope", tensors, [], by=hold)


def hold_throughout(x: Tensor) -> None:
    """Say that a variable of the training loop names x until the step ends."""
    for storage, _ in x.parts:
        storage.throughout = True


def _broadcast(a: Tensor, b: Tensor) -> tuple[Size, ...]:
    longer, shorter = (a.shape, b.shape) if len(a.shape) >= len(b.shape) else (b.shape, a.shape)
    padded = (1,) * (len(longer) - len(shorter)) + tuple(shorter)
    return tuple(other if isinstance(size, int) and size == 1 else size for size, other in zip(longer, padded, strict=True))


def shift(t: Tape, x: Tensor) -> Tensor:
    """Add a constant. Keeps nothing."""
    made = like(t, x)
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
    made = like(t, x)
    t.record("rsqrt", [x], [made], [Saved(made, "output")], by=rsqrt)
    return made


def capped(t: Tape, x: Tensor) -> Tensor:
    """Return cap · tanh(x / cap)."""
    return scale(t, tanh(t, scale(t, x)))


def tanh(t: Tape, x: Tensor) -> Tensor:
    """Take the hyperbolic tangent. Keeps its output."""
    made = like(t, x)
    t.record("tanh", [x], [made], [Saved(made, "output")], by=tanh)
    return made


def fill(t: Tape, first: Tensor, second: Tensor, shape: tuple[Size, ...]) -> Tensor:
    """Return an empty tensor of the first's dtype into which both are copied, the second for all heads. Keeps nothing."""
    made = t.tensor(shape, first.dtype)
    t.record("copy_", [first, second], [made], by=fill)
    return made


def block_linear(t: Tape, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Multiply each stretch of x [B, n, blocks·i] by its own matrix of w [blocks, i, i] and add b. 2·rows·blocks·i² FLOPs; keeps x."""
    x, w = lowered(t, x), lowered(t, w)
    made = like(t, x)
    flops = products(x, w, 2 * product(x.shape) * w.shape[-1], "2 · rows · blocks · in · out")
    t.record("baddbmm", [x, w, b], [made], factors((x, "input"), (w, "weight")), flops, by=block_linear)
    return made


def declared(t: Tape, x: Tensor, w: Tensor, uses: Size) -> None:
    """Multiply each token by a tensor that the user declares, ``uses`` times. Its activations are the user's own and are not counted."""
    forward = 2 * (product(x.shape) // x.shape[-1]) * product(w.shape) * uses
    t.note("activations of tensors that the spec declares as extra")
    t.record("declared by the spec", [x, w], [], (), products(x, w, forward, "2 · tokens · elements · uses"), by=declared)
