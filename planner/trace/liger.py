"""The kernels of liger-kernel under ``implementation: transformers``.

Read from liger-kernel 0.8.5: ops/rms_norm.py, ops/rope.py, ops/swiglu.py, ops/geglu.py, ops/relu_squared.py, ops/cross_entropy.py,
ops/fused_linear_cross_entropy.py, ops/fused_moe.py. ``planner.spec.liger`` has the classes and switches. The kernels replace those of the
modules before the model is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from planner.spec import records
from planner.spec.liger import ONLY_EXPERTS, SWITCHES, switches_on
from planner.spec.precision import BYTES
from planner.spec.records import Activation, Experts, Norm
from planner.spec.records.training import Liger
from planner.trace import primitives as op
from planner.trace import transformers
from planner.trace.classes import modeled_class
from planner.trace.experts import active_share, routed_rows
from planner.trace.implementation import Implementation
from planner.trace.losses import EARLY_GRADIENTS_NOTE
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, ceil_div, exceeds_one, maximum, minimum, power_of_two, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

HEADS = 4  # dimensions of a tensor [B, heads, n, h]
ROWS_PER_TILE = 64  # of the rows of one expert: BLOCK_M_TOKEN
MULTIPROCESSORS = {"a100": 108, "h100": 132}


def applied(base: Implementation, model: records.Model, asked: Liger) -> Implementation:
    """Return an implementation of transformers with the kernels of liger-kernel that are asked for in place of its own."""
    if model.head_bias:
        raise UnsupportedError("training.liger is not modeled for an LM head with a bias")
    kind = modeled_class(model)
    try:
        on = switches_on(kind, asked)
    except ValueError as error:
        raise UnsupportedError(str(error)) from None
    replaced: dict[str, dict[str, Any]] = {
        "rope": {"rotate_both": rotate_both},
        "rms_norm": {"norm": partial(norm, in_place=SWITCHES[kind].in_place)},
        "swiglu": {"experts": routed} if kind in ONLY_EXPERTS else {"gated": gated, "experts": routed},
        "geglu": {"gated": gated},
        "relu_squared": {"activation": activation},
        "cross_entropy": {"default_loss": cross_entropy},
        "fused_linear_cross_entropy": {"fused_loss": linear_cross_entropy},
    }
    changes = {key: function for name in sorted(on) for key, function in replaced[name].items()}
    return replace(base, **changes)


def norm(t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None, *, in_place: bool) -> Tensor:
    """RMSNorm over the last dimension in one kernel, in the dtype of x. Saves x, the weight, and the reciprocal RMS per row.

    ``in_place``: backward overwrites the gradient of its output. It sums the weight's gradient from a float32 row per multiprocessor.
    """
    if kind.type != "rmsnorm" or weight is None:
        return transformers.norm(t, x, kind, weight, bias)
    transposed = len(x.shape) == HEADS and (t.modules.normalizes_rotated or t.modules.normalizes_transposed)
    x = op.contiguous(t, x, exceeds_one(x.shape[1]) * exceeds_one(x.shape[2]) if transposed else is_slice(x))
    root = t.tensor(x.shape[:-1], "float32", needs_grad=False)
    saved = [Saved(x, "input"), Saved(weight, "weight"), Saved(root, "reciprocal RMS")]
    row = x.shape[-1] * BYTES["float32"]
    temporary = row * MULTIPROCESSORS[generation(t)] + (0 if weight.dtype == "float32" else row)
    made = op.like(t, x)
    made.by_head = x.by_head or transposed
    temporary -= x.bytes if in_place else 0
    t.record("rms_norm", [x, weight], [made, root], saved, backward_temporary=temporary, views_gradient=True, by=norm)
    return made


def generation(t: Tape) -> str:
    """Return the GPU's generation. Raises UnsupportedError on a CPU."""
    if t.device == "cpu":
        raise UnsupportedError("training.liger requires a GPU; choose another training.device")
    return t.training.device


def rotate_both(t: Tape, q: Tensor, k: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys in place, and backward their gradients. Others than token by token are copied first. Saves the tables."""
    return rotated(t, q, tables), rotated(t, k, tables)


def rotated(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate x [B, heads, n, h] in place."""
    x = op.contiguous(t, x, exceeds_one(x.shape[1]) * exceeds_one(x.shape[2]) if x.by_head else is_slice(x))
    made = x.view(*x.shape)
    saved = [Saved(table, what) for table, what in zip(tables, ("cosines", "sines"), strict=True)]
    return t.record("rope", [x, *tables], [made], saved, passes_gradient=True, views_gradient=True, by=rotated)[0]


def is_slice(x: Tensor) -> Size | None:
    """Return 1 if x's rows are slices of wider rows and there are several, so that a kernel needs a copy. None: they never are."""
    return exceeds_one(x.shape[0] * x.shape[-2]) if product(x.storage.shape) != product(x.shape) else None


def activation(t: Tape, name: Activation, x: Tensor) -> Tensor:
    """Square the positive part in one kernel, which saves its input."""
    return op.pointwise(t, name, x) if name == "relu_squared" else transformers.activation(t, name, x)


def gated(t: Tape, name: Activation, gate: Tensor, up: Callable[[], Tensor]) -> Tensor:
    """Return activation(gate) · up in one kernel. Halves of one projection are copied first. Saves both, and backward overwrites them."""
    if not name.startswith(("silu", "gelu")):
        raise UnsupportedError(f"liger-kernel has no gated feed-forward with activation {name}; choose another training.liger")
    a, b = (op.contiguous(t, x, is_slice(x)) for x in (gate, up()))
    saved = [Saved(a, "gate"), Saved(b, "up")]
    return t.record(f"{name} gate", [a, b], [op.like(t, a)], saved, backward_temporary=-a.bytes - b.bytes, by=gated)[0]


def routed(t: Tape, kind: Experts, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
    """Run the routed experts in one function: saves the rows' gates and ups, x, the routing weights and int32 indices.

    Temporary: the hidden rows and the experts' outputs, and backward also the gradients of gates and ups; backward computes the hidden rows
    again without a product. Tiles of rows are of a balanced load.
    """
    if kind.bias or not kind.gated:
        raise UnsupportedError("liger.swiglu supports only gated experts without biases")
    tokens, d = x.shape
    rows, E, d_ff = routed_rows(kind, tokens), kind.count, kind.d_ff
    with t.at("experts"):
        active = partial(active_share, kind)
        w1 = t.weight("gate_up_proj", (E, 2 * d_ff, d), "experts · out · in", active=active(2 * E * d_ff * d))
        w2 = t.weight("down_proj", (E, d, d_ff), "experts · out · in", active=active(E * d_ff * d))
        tiles = E * ceil_div(ceil_div(rows, E), ROWS_PER_TILE)
        places = [t.tensor((count,), "int32", needs_grad=False) for count in (E + 1, rows, rows, rows, tiles, tiles)]
        before = t.tensor((rows, 2 * d_ff), x.dtype)
        for w, inputs, outputs in ((w1, d, 2 * d_ff), (w2, d_ff, d)):
            flops = op.products(x, w, 2 * rows * inputs * outputs, "2 · rows · in · out")
            t.record("grouped_mm", [x, w], [], flops=flops, by=routed)
        saved = [
            Saved(x, "input"),
            Saved(w1, "weight"),
            Saved(w2, "weight"),
            Saved(before, "gates and ups"),
            Saved(weights, "routing weights"),
        ]
        saved += [Saved(place, "places of rows") for place in places]
        a_row = (d_ff + d) * BYTES[x.dtype]
        return t.record(
            "fused_moe",
            [x, w1, w2, weights],
            [op.like(t, x), before, *places],
            saved,
            temporary=rows * a_row + 4 * product(indices.shape),
            backward_temporary=before.bytes + rows * a_row + product(weights.shape) * (BYTES[x.dtype] - BYTES[weights.dtype]),
            by=routed,
        )[0]


def cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of float32 logits, in which the forward pass leaves their gradients. Saves only these.

    Temporary: a loss per row, and which rows count, as bytes and as their targets.
    """
    B, n, V = logits.shape
    wide = op.cast(t, logits.view(B * n, V), "float32")
    padded, ahead = transformers.shifted_labels(t, targets)
    with t.at("", "loss"):
        made = t.tensor((), "float32")
    temporary = 13 * B * n + 8 - made.bytes  # the loss is summed last
    saved = [Saved(wide, "gradients of the logits")]
    t.record("cross_entropy", [wide, ahead], [made], saved, temporary=temporary, backward_temporary=4 - wide.bytes, by=cross_entropy)
    op.keep_alive(t, wide, logits, padded)
    return made


def linear_cross_entropy(t: Tape, x: Tensor, w: Tensor, targets: Tensor) -> Tensor:
    """Apply the LM head w [V, d] to x [B, n, d] and take the cross entropy, in chunks of about rows · d / V rows, a power of two.

    The forward pass also computes the gradients of x and w, in their dtypes, and saves them instead of the logits; backward returns them.
    2·rows·d·V FLOPs for the logits and for each gradient, all in the forward pass. Temporary: one chunk's logits, in the product's dtype, a
    loss and a byte per row, in float32 the product that is added to w's gradient, and under autocast casts: of a chunk of x, of w
    (cached), and of the transposed w for each chunk.
    """
    B, n, d = x.shape
    rows, V = B * n, w.shape[0]
    padded, ahead = transformers.shifted_labels(t, targets)
    chunk = minimum(power_of_two(ceil_div(rows, ceil_div(V, d))), rows)
    with t.at("", "gradients"):
        gradients = [t.tensor(tensor.shape, tensor.dtype, needs_grad=False) for tensor in (x, w) if tensor.needs_grad]
    with t.at("", "loss"):
        made = t.tensor((), "float32")
    forward = 2 * rows * d * V
    with t.at("", "head"):
        t.record("linear", [x, w], [], flops=Flops(3 * forward, forward, forward, 0, "2 · rows · d · V"), by=linear_cross_entropy)
    casts = []
    if lowered := t.precision.autocast:
        cast = t.tensor(w.shape, lowered, needs_grad=False)
        cast.storage.until_forward_ends = True
        casts.append(cast)
        second = minimum(rows - chunk, chunk)
        a_row = (d + V) * BYTES[lowered]
        temporary = maximum(chunk * a_row, minimum(second, 1) * cast.bytes + second * a_row)
    else:
        temporary = chunk * V * BYTES[x.dtype] + (w.bytes if x.dtype == "float32" else 0)
    t.note(EARLY_GRADIENTS_NOTE)
    t.record(
        "linear_cross_entropy",
        [x, w, ahead],
        [made, *gradients, *casts],
        [Saved(gradient, "gradient computed early") for gradient in gradients],
        temporary=5 * rows + temporary - made.bytes,  # the loss is summed last
        backward_temporary=4 - sum(gradient.bytes for gradient in gradients),
        by=linear_cross_entropy,
    )
    op.keep_alive(t, x, padded)
    return made
