"""Adapters beside linears, as the package peft runs them.

Read from peft 0.21.2: tuners/lora/layer.py and bnb.py (LoRA; Hu et al. 2021, arXiv:2106.09685), utils/other.py (ModulesToSaveWrapper).
"""

from __future__ import annotations

from collections.abc import Callable

from planner.spec.precision import Dtype
from planner.spec.records import Adapters
from planner.trace import packed, trained
from planner.trace import primitives as op
from planner.trace.classes import modeled_class
from planner.trace.packing import Packing
from planner.trace.sizes import Size, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.trained import ADAPTERS, PROMPTS
from planner.trace.unsupported import UnsupportedError

TRANSPOSED = ("gpt2", "openai-gpt")  # classes whose linears are transformers' Conv1D


def adapted(t: Tape, kind: Adapters, x: Tensor, w: Tensor, bias: Tensor | None, made: Tensor, packing: Packing | None) -> Tensor:
    """Return x [.., in] times w [out, in] plus a bias [out], which is ``made``, plus B · A · x.

    A [rank, in] reads a copy of x in its dtype.

    The sum is cast back to the dtype of ``made``; beside a packed weight, B · A · x is, and added to a copy of ``made``. Under autocast
    that one casts nothing.
    """
    packs = packing is not None
    of_base = packed.compute_dtype(t) if packs else w.dtype
    dtype: Dtype = "float32" if kind.dtype == "fp32" else of_base
    (outputs, inputs), rank = w.shape, trained.rank_of(kind, t.path.rpartition(".")[2])
    with t.at("", ADAPTERS):
        a = t.weight("lora_A.weight", (rank, inputs), "adapter: rank · in", dtype=dtype)
        b = t.weight("lora_B.weight", (outputs, rank), "adapter: out · rank", dtype=dtype)
        as_is = packs and t.precision.autocast
        made = op.contiguous(t, made, 1) if packs else made
        wide = x if as_is else op.cast(t, x, dtype)
        dropped = op.dropout(t, wide) if kind.dropout else wide
        if kind.type == "dora":
            added = decomposed(t, dropped, w, None if kind.dropout else made, bias, (a, b), packing)
        else:
            narrow = op.linear(t, dropped, a)
            op.keep_alive(t, dropped)  # until the module that casts it returns
            added = op.mul_scalar(t, op.linear(t, narrow, b))
        if packs and kind.type != "dora":
            both = op.add(t, made, added if as_is else op.cast(t, added, made.dtype))
        else:
            both = op.add(t, made, added)
            both = both if as_is else op.cast(t, both, made.dtype)
        op.keep_alive(t, wide)
    return both


def scaled(t: Tape, kind: Adapters, x: Tensor, outputs: Size, project: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``project`` of x [.., in] with a learned scale per output, or of x with one per input: IA3, in the adapters' dtype.

    Liu et al. 2022, arXiv:2205.05638; tuners/ia3/layer.py.
    """
    feeds, scales = _scales(t, kind, x, outputs, t.precision.weights)
    if feeds:
        wide = op.cast(t, x, scales.dtype)
        narrow = op.cast(t, op.multiply(t, wide, scales), x.dtype)
        made = project(narrow)
        op.keep_alive(t, wide, narrow, scales)
        return made
    base = project(x)
    made = op.cast(t, op.multiply(t, base, scales), base.dtype)
    op.keep_alive(t, scales)
    return made


def scaled_beside_packed(t: Tape, kind: Adapters, x: Tensor, outputs: Size, project: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what ``scaled`` does of a packed weight, whose result is copied and keeps the wider dtype (tuners/ia3/bnb.py).

    Without autocast peft casts 16-bit inputs to float32 for good, so that keys and values differ from queries, which attention refuses.
    """
    if x.dtype != "float32" and not t.precision.autocast:
        message = "adapters of type ia3 beside packed weights make activations of 16 bits float32, which is not modeled"
        raise UnsupportedError(f"{message}; write base.prepare: true, or a precision of autocast")
    feeds, scales = _scales(t, kind, x, outputs, packed.compute_dtype(t))
    if feeds:
        given = op.multiply(t, x, scales)
        made = project(given)
        op.keep_alive(t, given)
    else:
        made = op.multiply(t, project(x), scales)
    made = op.contiguous(t, made, 1)
    op.keep_alive(t, scales)
    return made


def _scales(t: Tape, kind: Adapters, x: Tensor, outputs: Size, of_base: Dtype) -> tuple[bool, Tensor]:
    """Return whether a linear of x [.., in] scales its input, and IA3's scales [in] or [out], multiplied by 1."""
    feeds = any(t.path.rpartition(".")[2] in trained.linears(word) for word in kind.feedforward)
    with t.at("", ADAPTERS):
        shape = (1, x.shape[-1]) if feeds else (outputs, 1)
        stored = t.weight("ia3_l", shape, "scales: in or out", dtype="float32" if kind.dtype == "fp32" else of_base)
        return feeds, op.mul_scalar(t, stored.view(product(shape)))


def embedded(t: Tape, ids: Tensor, table: Tensor, made: Tensor) -> Tensor:
    """Return the embedded ids [B, n, d], which are ``made``, plus B · A of the ids if the embedding has an adapter."""
    kind = t.training.adapters
    if not kind or kind.type in PROMPTS or not trained.of_embedding(kind):
        return made
    (rows, width), rank = table.shape, trained.rank_of(kind, "embed_tokens")
    dtype: Dtype = "float32" if kind.dtype == "fp32" else table.dtype
    with t.at("", ADAPTERS):
        a = t.weight("lora_embedding_A", (rank, rows), "adapter: rank · V", dtype=dtype)
        b = t.weight("lora_embedding_B", (width, rank), "adapter: d · rank", dtype=dtype)
        narrow = op.embedding(t, ids, a.view(rows, rank))
        added = op.mul_scalar(t, op.linear(t, narrow, b))
        both = op.cast(t, op.add(t, made, added), made.dtype)
        op.keep_alive(t, narrow, added, made)
    return both


def decomposed(
    t: Tape, x: Tensor, w: Tensor, made: Tensor | None, bias: Tensor | None, pair: tuple[Tensor, Tensor], packing: Packing | None
) -> Tensor:
    """Return what DoRA adds to x [.., in] times w: (m / |w + B · A| - 1) · w · x + m / |w + B · A| · B · A · x.

    The norms of rows of the sum are made of the product of an identity [in, in] with A and B, and get no gradient; m [out] trains.
    ``made``: w · x plus the bias [out], which is taken away again. Dropout of x requires to compute w · x once more
    (Liu et al. 2024, arXiv:2402.09353; tuners/lora/dora.py).
    """
    a, b = pair
    outputs, inputs = w.shape
    magnitude = t.weight("lora_magnitude_vector.weight", (outputs,), "magnitudes: out", dtype=a.dtype)
    op.cast_lower_precision(t, a)  # autocast caches casts, which have a gradient
    with t.without_gradients(trains=True):
        (identity,) = t.record("eye", [], [t.tensor((inputs, inputs), a.dtype, needs_grad=False)], by=decomposed)
        read = op.cast_lower_precision(t, identity)
        narrow = op.linear(t, read, a)
    op.cast_lower_precision(t, b)
    with t.without_gradients(trains=True):
        made_of_pair = op.linear(t, narrow, b)
        op.keep_alive(t, identity)
        product = op.cast(t, made_of_pair, x.dtype)
        stored = packed.unpacked(t, w, packing) if packing else w
        wide = op.cast(t, stored, x.dtype)
        summed = op.add(t, wide, op.mul_scalar(t, product).view(outputs, inputs))
        dtype: Dtype = "float32" if t.precision.autocast and t.device == "cuda" else x.dtype  # the kernel's, without a copy
        (norms,) = t.record("norm", [summed], [t.tensor((outputs,), dtype)], by=decomposed)
        norms = op.cast(t, norms, x.dtype)
    scale = op.divide(t, magnitude, norms).view(1, outputs)
    added = op.linear(t, op.linear(t, x, a), b)
    base = op.add(t, made, bias) if made and bias else made or op.linear(t, x, wide)
    first = op.multiply(t, op.add_scalar(t, scale), base)
    both = op.add(t, first, op.mul_scalar(t, op.multiply(t, scale, added)))
    op.keep_alive(t, x, product, wide, norms, scale, added, base)
    op.keep_graph_alive(t, read, narrow)
    return both


def requiring_gradient(t: Tape, x: Tensor) -> Tensor:
    """Return x as a leaf that requires a gradient (enable_input_require_grads), which the graph of the loss keeps until the step ends."""
    if x.needs_grad:
        return x
    made = Tensor(x.shape, x.dtype, x.parts)
    t.record("requires_grad_", [x], [made], by=requiring_gradient)
    made.needs_grad = True
    op.keep_alive_until_step_end(made)
    return made


def trained_copy(t: Tape, part: str, stored: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Return a weight, and what the model reads: a copy that trains if ``also_train`` names the part, else the weight itself."""
    original = stored()
    if part not in t.training.also_train:
        return original, original
    with t.at("modules_to_save", ADAPTERS):
        return original, stored()


def check_tuned(t: Tape) -> None:
    """Raise UnsupportedError for parts that train, or have adapters, if the model has none of the name; and beside routed experts.

    Adapters of all linears reach the three-dimensional weights of experts, too, whose sums with A and B peft computes in every pass.
    """
    if word := trained.unknown(t.training.train, ((stored.name, stored.component) for stored in t.parameters)):
        raise UnsupportedError(f"training.train has {word!r}, which is no part of this model")
    kind, base, routed = t.training.adapters, t.training.base, any(stored.component == "experts" for stored in t.parameters)
    packs = base is not None and base.format != "none"
    if routed and packs:
        raise UnsupportedError("base.format packs linears, and packed experts are not modeled yet")
    if kind is None or kind.type in PROMPTS:
        return
    if kind.type in ("dora", "ia3") and trained.of_embedding(kind):
        raise UnsupportedError(f"adapters of the embedding of type {kind.type} are not modeled yet; write type: lora")
    same = kind.dtype == "base" or t.precision.weights == "float32"
    transposed = modeled_class(t.model) in TRANSPOSED and t.training.implementation.startswith("transformers") and not packs
    if kind.type == "dora" and kind.dropout and same and transposed:
        message = "adapters of type dora with dropout beside GPT-2's transposed linears of their dtype, whose gradients peft computes"
        raise UnsupportedError(f"{message}, are not modeled; write dropout: 0")
    named = {part for stored in t.parameters if stored.component == ADAPTERS for part in stored.name.split(".")}
    for target in kind.targets:
        if target != trained.ALL and named.isdisjoint(trained.linears(target)):
            linears = ", ".join(sorted({stored.name.split(".")[-2] for stored in t.parameters if stored.why == op.LINEAR}))
            raise UnsupportedError(f"adapters.targets has {target!r}, which is none of the linears {linears}")
