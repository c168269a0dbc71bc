"""The modules of Hugging Face transformers 5: the implementations ``transformers`` (fused attention) and ``transformers-eager``.

Read from transformers 5.24: models/llama/modeling_llama.py (qwen2 and qwen3 share its parts), models/gpt_neox/modeling_gpt_neox.py,
models/gpt2/modeling_gpt2.py, models/gemma2/modeling_gemma2.py, integrations/sdpa_attention.py, loss/loss_utils.py, activations.py.
There, RMSNorm is a sequence of operators, eager attention makes scores and probabilities in two dtypes, and the loss reads float32 logits.
``planner.trace.classes`` lists how the classes differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from planner.spec.records import Activation, Norm
from planner.trace import heads, masks, pytorch
from planner.trace import primitives as op
from planner.trace.implementation import Sublayer
from planner.trace.losses import cross_entropy, log_softmax, nll_loss
from planner.trace.model_class import LayerNormKind
from planner.trace.nodes import Saved
from planner.trace.pytorch import PYTORCH
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def norm(t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalize [.., d]: LayerNorm as the class does, RMSNorm in float32, one operator at a time."""
    if kind.type == "layernorm":
        return layer_norm(t, t.modules.layer_norm, x, weight, bias)
    if t.modules.divides_input and weight:
        return divided_input(t, x, weight)
    normed = divided_by_power(t, x) if t.modules.root_by_power else pytorch.divided_by_rms(t, x)[1]
    if weight is None:
        return op.cast(t, normed, x.dtype)
    if kind.unit_offset:
        return op.cast(t, op.multiply(t, normed, op.add_scalar(t, op.cast(t, weight, "float32"))), x.dtype)
    weight = op.cast(t, weight, "float32") if t.modules.casts_norm_weight else weight
    if t.modules.scales_in_float32:
        made = op.cast(t, op.multiply(t, weight, normed), x.dtype)
        op.keep_alive(t, normed)
        return made
    return op.multiply(t, weight, op.cast(t, normed, x.dtype))


def divided_by_power(t: Tape, x: Tensor) -> Tensor:
    """Return x [.., d] in float32, divided by its root mean square: multiplied by the power -0.5 of the mean of squares."""
    wide = op.cast(t, x, "float32")
    mean = op.mean(t, op.power(t, wide))
    root = op.power(t, mean)
    op.keep_alive(t, mean)
    return op.multiply(t, wide, root)


def divided_input(t: Tape, x: Tensor, weight: Tensor) -> Tensor:
    """Return x [.., d] divided by its root mean square in float32, and scaled. Saves x in both dtypes."""
    mean = op.mean(t, op.power(t, op.cast(t, x, "float32")))
    normed = op.cast(t, op.multiply(t, x, op.rsqrt(t, mean)), x.dtype)
    made = op.multiply(t, normed, weight)
    op.keep_alive(t, mean)
    return made


def layer_norm(t: Tape, kind: LayerNormKind, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """LayerNorm in one kernel, of x cast to float32 (OLMo), with a weight of one plus the stored one (Nemotron), or in parts (Cohere)."""
    match kind:
        case "fused":
            return op.layer_norm(t, x, weight, bias)
        case "input_in_float32":
            return op.cast(t, op.layer_norm(t, op.cast(t, x, "float32"), weight, bias), x.dtype)
        case "weight_plus_one":
            dtype = t.precision.autocast or x.dtype
            vectors = (weight and op.add_scalar(t, weight), bias)
            weight, bias = (vector and op.cast(t, vector, dtype) for vector in vectors)
            with t.without_autocast():
                return op.layer_norm(t, op.cast(t, x, dtype), weight, bias)
        case "by_parts":
            wide = op.cast(t, x, "float32")
            mean = op.mean(t, wide)
            variance = op.mean(t, op.power(t, op.add(t, wide, mean)))
            normed = op.multiply(t, op.add(t, wide, mean), op.rsqrt(t, variance))
            op.keep_alive(t, mean, variance)
            normed = op.multiply(t, op.cast(t, weight, "float32"), normed) if weight else normed
            return op.cast(t, normed, x.dtype)
        case _:
            assert_never(kind)


def position_ids(t: Tape, n: Size) -> Tensor | None:
    """Return the position ids [1, n] or [B, n] passed to every layer, if the class does so."""
    if t.modules.learned_ids:
        return t.places
    return positions(t, n) if t.modules.position_ids else None


def positions(t: Tape, n: Size) -> Tensor:
    """Return the positions [1, n], a slice of a buffer in some classes, or [B, n] if the class makes them for each sequence."""
    if t.modules.stored_position_ids:
        t.buffer("position_ids", (t.model.context_length + t.model.positions.offset,), "int64")
    if t.modules.stored_position_ids and not t.modules.positions_per_sequence:
        return op.constant(t, (1, n), "int64")
    rows = t.training.batch_size if t.modules.positions_per_sequence else 1
    return t.record("arange", [], [t.tensor((rows, n), "int64", needs_grad=False)], by=positions)[0]


def rotate_both(t: Tape, q: Tensor, k: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Rotate queries [B, H, n, h] and keys. Both are cast, or sliced if a part is rotated, first, and both joined last."""
    its = t.modules
    both = joins(t, q, tables) or (its.rotates_in_float32 and not its.swaps_before_cast)
    if its.complex_tables or its.half_tables or its.stored_tables or not both:
        return rotate(t, q, tables), rotate(t, k, tables)
    parts = [rotated_part(t, x, tables) for x in (q, k)]
    turned = [turn(t, x, part, tables) for x, (part, _) in zip((q, k), parts, strict=True)]
    op.keep_alive(t, *(part for part, _ in parts))
    t.parts += [q, k, *turned] if its.keeps_parts else []
    made_q, made_k = (joined(t, part, rest) for part, (_, rest) in zip(turned, parts, strict=True))
    return made_q, made_k


def rotate(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate x [B, heads, n, h]."""
    if t.modules.complex_tables:
        return pytorch.rotate_complex(t, x, tables[0])
    if t.modules.half_tables:
        half = (*x.shape[:-1], tables[0].shape[-1])
        first, second = op.split(t, x, half, half)
        return pytorch.rotate_halves(t, first, second, tables)
    if t.modules.stored_tables:
        cos, sin = tables
        tables = repeated(t, cos), repeated(t, sin)
    part, rest = rotated_part(t, x, tables)
    return joined(t, turn(t, x, part, tables), rest)


def rotated_part(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return the channels to rotate, and the rest if it is concatenated."""
    return sliced(t, x, tables) if joins(t, x, tables) else (widened(t, x), None)


def joins(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> bool:
    """Return whether rotated channels are concatenated with the rest."""
    return t.modules.joins_rotated or tables[0].shape[-1] != x.shape[-1]


def widened(t: Tape, x: Tensor) -> Tensor:
    """Return queries or keys in the dtype in which they are rotated."""
    return op.cast(t, x, "float32") if t.modules.rotates_in_float32 else x


def sliced(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the rotated channels and the rest."""
    wide, rotary_dim = widened(t, x), tables[0].shape[-1]
    return op.narrow(t, wide, rotary_dim), op.narrow(t, wide, x.shape[-1] - rotary_dim)


def turn(t: Tape, x: Tensor, part: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Return the rotated channels: part · cos + swapped part · sin. ``x`` is not cast yet."""
    half = tables[0].shape[-1] // 2
    made = op.multiply(t, part, tables[0])
    source = x if t.modules.swaps_before_cast else part
    first, second = op.narrow(t, source, half), op.narrow(t, source, half)
    swapped = op.cast(t, op.cat(t, op.neg(t, second), first), part.dtype)
    return op.add(t, made, op.multiply(t, swapped, tables[1]))


def joined(t: Tape, turned: Tensor, rest: Tensor | None) -> Tensor:
    """Return rotated channels, concatenated with the rest if there is one, which makes heads contiguous."""
    made = op.cat(t, turned, rest) if rest else turned
    made.by_head = turned.by_head or (rest is not None and not t.modules.stored_tables)
    return made


def repeated(t: Tape, half: Tensor) -> Tensor:
    """Return cosines or sines [n, rotary_dim / 2] with each element twice."""
    made = t.tensor((half.shape[0], 2 * half.shape[1]), half.dtype, needs_grad=False)
    return t.record("repeat_interleave", [half], [made], by=repeated)[0]


def activation(t: Tape, name: Activation, x: Tensor) -> Tensor:
    """Apply the feed-forward's function. BLOOM's derivative of GELU has four temporary tensors (bloom_gelu_back)."""
    if t.modules.xielu:
        return xielu(t, x)
    if t.modules.gelu_backward_in_parts and name == "gelu_tanh":
        saved = [Saved(x, "input")]
        return t.record(name, [x], [op.like(t, x)], saved, backward_temporary=4 * x.bytes, by=activation)[0]
    return pytorch.activation(t, name, x)


def gated(t: Tape, name: Activation, gate: Tensor, up: Callable[[], Tensor]) -> Tensor:
    """Return activation(gate) · up, in float32 in some classes, which project up first."""
    if not t.modules.gates_in_float32:
        return pytorch.gated(t, name, gate, up)
    other = up()
    product = op.multiply(t, activation(t, name, op.cast(t, gate, "float32")), op.cast(t, other, "float32"))
    made = op.cast(t, product, gate.dtype)
    op.keep_alive(t, gate, other)
    return made


def xielu(t: Tape, x: Tensor) -> Tensor:
    """Return α_p·x² + β·x where x is positive, else (exp(min(x, ε)) - 1 - x)·α_n + β·x (activations.py, _xielu_python).

    α_p and α_n are functions of parameters, which a spec declares under ``extra``; β and ε are buffers.
    """
    dtype = t.precision.weights
    for name in ("beta", "eps"):
        t.buffer(name, (), dtype)
    declared = [op.constant(t, (1,), dtype) for _ in range(2)]
    for alpha in declared:
        alpha.needs_grad = True
    alphas = [t.record("softplus", [alpha], [op.like(t, alpha)], by=xielu)[0] for alpha in declared]
    (positive,) = t.record("gt", [x], [t.tensor(x.shape, "bool", needs_grad=False)], by=xielu)
    above = op.add(t, op.multiply(t, op.multiply(t, x, alphas[0]), x), op.mul_scalar(t, x))
    (least,) = t.record("min", [x], [op.like(t, x)], [Saved(x, "input")], by=xielu)
    least = op.cast_fp32(t, least)
    power = op.like(t, least)
    t.record("expm1", [least], [power], [Saved(power, "output")], by=xielu)
    below = op.add(t, op.multiply(t, op.add(t, power, x), alphas[1]), op.mul_scalar(t, x))
    return t.record("where", [positive, above, below], [op.like(t, x, op.promote(above, below))], [Saved(positive, "condition")], by=xielu)[
        0
    ]


def drop(t: Tape, x: Tensor) -> Tensor:
    """Apply dropout to the embedding and the residual branches, if the class does so."""
    return pytorch.drop(t, x) if t.modules.residual_dropout else x


def parallel(t: Tape, x: Tensor, first: Sublayer, second: Sublayer | None, mix: Sublayer, feed: Sublayer) -> Tensor:
    """Return feed(second(x)) + mix(first(x)) + x, in GPT-NeoX's order; without ``second``, one norm serves both."""
    y = first(x)
    mixed = mix(y)
    fed = feed(second(x) if second else y)
    made = op.add(t, op.add(t, fed, mixed), x)
    op.keep_alive(t, mixed, fed)
    return made


def shifted_labels(t: Tape, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the labels with one more column, and without the first, which is a copy unless B is 1."""
    B, n = targets.shape
    with t.at("", "inputs"):
        (padded,) = t.record("pad", [targets], [t.tensor((B, n + 1), "int64", needs_grad=False)], by=shifted_labels)
        return padded, op.contiguous(t, padded.view(B, n), exceeds_one(B))


def default_loss(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return ForCausalLMLoss: cross entropy in float32, with labels shifted by one; or of logits and labels as they are.

    ForMaskedLMLoss does not shift them.
    """
    if t.modules.unshifted_loss:
        return cross_entropy(t, logits, targets)
    B, n, V = logits.shape
    wide = op.cast(t, logits.view(B * n, V), "float32")
    padded, ahead = shifted_labels(t, targets) if t.model.causal else (targets, targets)
    loss = nll_loss(t, log_softmax(t, wide), ahead)
    op.keep_alive(t, wide, logits, padded)
    return loss


TRANSFORMERS = replace(
    PYTORCH,
    norm=norm,
    positions=positions,
    position_ids=position_ids,
    mask=masks.for_fused,
    activation=activation,
    gated=gated,
    rotate=rotate,
    rotate_both=rotate_both,
    split_kv=heads.split_kv,
    attention=heads.one_operator,
    drop=drop,
    parallel=parallel,
    default_loss=default_loss,
    mask_buffer=masks.buffer,
    constant_buffers=True,
    masks_from_window=True,
    keeps_embeddings=True,
    plain_mixers=True,
)
TRANSFORMERS_EAGER = replace(TRANSFORMERS, attention=heads.by_products, mask=masks.for_products, masks_from_window=False)
