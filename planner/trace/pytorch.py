"""Plain PyTorch modules as in nanoGPT: the implementations ``pytorch`` (fused attention) and ``pytorch-eager`` (unfused attention).

Read from github.com/karpathy/nanoGPT, model.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, assert_never

from planner.spec.precision import Dtype
from planner.spec.records import Activation, Norm
from planner.trace import float8, relative
from planner.trace import primitives as op
from planner.trace.by_head import matmul_by_head
from planner.trace.implementation import Implementation, Scores, Sublayer
from planner.trace.kernels import fused_attention
from planner.trace.losses import cross_entropy
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size, exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError


def norm(t: Tape, x: Tensor, kind: Norm, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Normalize [.., d] in one kernel. The CPU has no RMSNorm kernel."""
    if kind.type == "layernorm":
        return op.layer_norm(t, x, weight, bias)
    if kind.unit_offset and weight:
        weight = op.add_scalar(t, weight)
    return op.rms_norm(t, x, weight) if t.device == "cuda" else plain_rms_norm(t, x, weight)


def plain_rms_norm(t: Tape, x: Tensor, weight: Tensor | None) -> Tensor:
    """Return RMSNorm in float32, one operator at a time (rms_norm_composite, layer_norm.cpp)."""
    wide, normed = divided_by_rms(t, x)
    if weight:
        normed = op.multiply(t, normed, weight)
    op.keep_alive(t, wide)
    return op.cast(t, normed, x.dtype)


def divided_by_rms(t: Tape, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x [.., d] in float32, and that divided by its root mean square."""
    wide = op.cast(t, x, "float32")
    mean = op.mean(t, op.power(t, wide))
    made = op.multiply(t, wide, op.rsqrt(t, mean))
    op.keep_alive(t, mean)
    return wide, made


def activation(t: Tape, name: Activation, x: Tensor) -> Tensor:
    """Apply the feed-forward's function; ``gelu_new`` is written out: 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    match name:
        case "gelu" | "gelu_tanh" | "silu":
            return op.pointwise(t, name, x)
        case "gelu_new":
            half = op.mul_scalar(t, x)
            bent = op.tanh(t, op.mul_scalar(t, op.add(t, x, op.mul_scalar(t, op.power(t, x)))))
            made = op.multiply(t, half, op.add_scalar(t, bent))
            op.keep_alive(t, x)
            return made
        case "quick_gelu":
            made = op.multiply(t, x, sigmoid(t, op.mul_scalar(t, x)))
            op.keep_alive(t, x)
            return made
        case "relu":
            return op.relu(t, x)
        case "relu_squared":
            positive = op.relu(t, x)
            made = op.power(t, positive)
            op.keep_alive(t, x, positive)
            return made
        case _:
            assert_never(name)


def gated(t: Tape, name: Activation, gate: Tensor, up: Callable[[], Tensor]) -> Tensor:
    """Return activation(gate) · up. The activation runs before up is projected."""
    return op.multiply(t, t.implementation.activation(t, name, gate), up())


def positions(t: Tape, n: Size) -> Tensor:
    """Return the positions 0 … n - 1, which the lookup of learned positions saves."""
    return t.record("arange", [], [t.tensor((n,), "int64", needs_grad=False)], by=positions)[0]


def rotate(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Return x · cos + rotate_half(x) · sin over the first rotary_dim channels of x [B, heads, n, h], and the rest unchanged.

    Backward needs the tables, never x.
    """
    cos, sin = tables
    *outer, h = x.shape
    rotary_dim = cos.shape[-1]
    whole = rotary_dim == h
    turned = x if whole else op.split(t, x, (*outer, rotary_dim))[0]
    half = rotary_dim // 2
    first, second = op.split(t, turned, (*outer, half), (*outer, rotary_dim - half))
    made = op.multiply(t, turned, cos)
    made = op.add(t, made, op.multiply(t, op.cat(t, op.neg(t, second), first), sin))
    return made if whole else op.cat(t, made, op.split(t, x, (*outer, h - rotary_dim))[0])


def rotate_halves(t: Tape, first: Tensor, second: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Return first · cos - second · sin and second · cos + first · sin, joined."""
    cos, sin = tables
    left = op.add(t, op.multiply(t, first, cos), op.multiply(t, second, sin))
    right = op.add(t, op.multiply(t, second, cos), op.multiply(t, first, sin))
    return op.cat(t, left, right)


def rotate_complex(t: Tape, x: Tensor, table: Tensor) -> Tensor:
    """Rotate pairs of neighboring channels as complex numbers in float32, by one product with a complex table."""
    return op.cast(t, op.multiply(t, op.cast(t, x, "float32"), table), x.dtype)


def drop(t: Tape, x: Tensor) -> Tensor:
    """Apply dropout if the training uses it."""
    return op.dropout(t, x) if t.training.dropout else x


def parallel(t: Tape, x: Tensor, first: Sublayer, second: Sublayer | None, mix: Sublayer, feed: Sublayer) -> Tensor:
    """Return x + mix(first(x)) + feed(second(x)); without ``second``, one norm serves both."""
    y = first(x)
    z = second(x) if second else y
    made = op.add(t, op.add(t, x, mix(y)), feed(z))
    op.keep_alive(t, y, z)
    return made


def one_operator(t: Tape, q: Tensor, k: Tensor, v: Tensor, terms: Scores, *, grouped: bool = True) -> Tensor:
    """Attend in one operator -> [B, H, n, h]; ``grouped`` as in ``fused_attention``."""
    note_sinks(t, terms)
    if terms.softcap:
        raise UnsupportedError("fused attention cannot soft-cap scores; choose implementation pytorch-eager or transformers-eager")
    return fused_attention(t, q, k, v, relative.as_mask(t, terms.relative) if terms.relative else terms.bias, grouped=grouped)


def note_sinks(t: Tape, terms: Scores) -> None:
    """Say that attention sinks are not counted."""
    if terms.sinks:
        t.note("activations of attention sinks")


def by_products(t: Tape, q: Tensor, k: Tensor, v: Tensor, terms: Scores) -> Tensor:
    """Unfused attention: product, mask, softmax, dropout, product -> [B, H, n, h]."""
    note_sinks(t, terms)
    H = q.shape[1]
    k, v = expand_kv(t, k, H), expand_kv(t, v, H)
    scores = op.mul_scalar(t, matmul_by_head(t, q, k, transposed=True))
    scores = op.softcap(t, scores) if terms.softcap else scores
    for bias in (terms.relative, terms.bias):
        scores = op.add(t, scores, bias) if bias else scores
    scores = masked(t, scores)
    probabilities = drop(t, op.softmax(t, scores))
    made = matmul_by_head(t, probabilities, v)
    op.keep_alive(t, k, v, scores, probabilities)
    return made


def expand_kv(t: Tape, x: Tensor, heads: Size) -> Tensor:
    """Repeat KV heads [B, K, n, h] to all query heads: a copy, but a view if K is 1."""
    B, K, n, h = x.shape
    if heads == K:
        return x
    made = op.expand(t, x, (B, heads, n, h), exceeds_one(K))
    made.by_head = True
    return made


def masked(t: Tape, scores: Tensor) -> Tensor:
    """Apply the causal mask or a window; each layer creates and saves its own boolean mask."""
    if not t.causal and t.window is None:
        return scores
    n = scores.shape[-1]
    (mask,) = t.record("equals zero", [], [t.tensor((1, 1, n, n), "bool", needs_grad=False)], by=masked)
    return op.masked_fill(t, scores, mask, "causal mask")


PYTORCH = Implementation(
    norm=norm,
    linear=float8.linear,
    activation=activation,
    gated=gated,
    positions=positions,
    position_ids=lambda _t, _n: None,
    mask=lambda _t, _B, _n, _window: None,
    rotate=rotate,
    split_kv=lambda _t, k, v, _H: (k, v),
    attention=one_operator,
    drop=drop,
    parallel=parallel,
    cross_entropy=cross_entropy,
    default_loss=cross_entropy,
)


def mask_of_layer(t: Tape, owner: Literal["layer", "model"]) -> Dtype | None:
    """Return the dtype of the mask that each layer stores: that of the stored weights, since FSDP2 casts no buffers."""
    stored = t.precision.moments if t.training.layout and t.training.layout.data_parallel in ("fsdp", "hsdp") else t.precision.weights
    return stored if owner == "layer" and t.causal else None


PYTORCH_EAGER = replace(PYTORCH, attention=by_products, mask_buffer=mask_of_layer)
