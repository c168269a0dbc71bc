"""Delta rules with decay: Gated DeltaNet and Kimi Delta Attention.

Read from transformers 5.24: models/qwen3_next/modeling_qwen3_next.py, models/kimi_linear/modeling_kimi_linear.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from planner.spec import records
from planner.trace import primitives as op
from planner.trace import pytorch
from planner.trace.blocks import linear, norm
from planner.trace.mixers.channel_delta_rule import channel_delta_rule, divided_by_norm
from planner.trace.mixers.delta_rule import chunked_delta_rule, l2_norm
from planner.trace.mixers.delta_steps import next_state
from planner.trace.mixers.fused_delta import chunk_gated_delta_rule
from planner.trace.mixers.fused_kda import chunk_kda
from planner.trace.mixers.operators import convolution, decodes, exp, softplus, state_of
from planner.trace.nodes import Saved
from planner.trace.routing import sigmoid
from planner.trace.sizes import exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def gated_delta_net(t: Tape, kind: records.GatedDeltaNet, x: Tensor) -> Tensor:
    """Gated DeltaNet: projections, convolution, delta rule, gated norm, out."""
    B, n, d = x.shape
    K, H, width, value = kind.n_key_heads, kind.n_value_heads, kind.key_dim, kind.value_dim
    with t.at("linear_attn", "ssm"):
        qkv, z, b, a = projected(t, kind, x)
        convolved = convolution(t, qkv, kind.d_conv, bias=False)
        q, k, v = op.split(t, convolved, (B, n, K, width), (B, n, K, width), (B, n, H, value))
        beta = sigmoid(t, b())
        beta = op.mul_scalar(t, beta) if t.modules.delta_projections == "separate" else beta
        shift = t.weight("dt_bias", (H,), "dt_bias: value heads")
        rate = t.weight("A_log", (H,), "A_log: value heads", dtype="float32" if t.modules.delta_projections == "separate" else None)
        decay = op.neg(t, exp(t, op.cast(t, rate, "float32")))
        steps = a()
        decay = op.multiply(t, decay.view(1, 1, H), softplus(t, op.add(t, op.cast(t, steps, "float32"), shift)))
        with t.inside_scan():
            y, *state = delta_rule(t, q, k, v, decay, beta)
        gate = z()
        y = gated_norm(t, y, gate.view(B, n, H, value))
        op.keep_alive(t, gate, steps, convolved, beta, decay)
        made = linear(t, y.view(B, n, H * value), d, "out_proj", bias=False)
        op.keep_alive(t, x, y, *state)
        return made


def delta_rule(t: Tape, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Run the delta rule: return its outputs, and in inference the last state, which goes into the cache."""
    if t.fused_mixers:
        return (chunk_gated_delta_rule(t, q, k, v, decay, beta),)
    if decodes(t):
        return next_state(t, q, k, v, decay, beta, l2_norm)
    return in_cache(t, *chunked_delta_rule(t, q, k, v, decay, beta))


def in_cache(t: Tape, y: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
    """Return outputs and the last state, of which the cache has a copy."""
    for one in state:
        state_of(t, one.shape, one.dtype)
    return y, *state


Projected = Callable[[], Tensor]


def projected(t: Tape, kind: records.GatedDeltaNet, x: Tensor) -> tuple[Tensor, Projected, Projected, Projected]:
    """Return queries, keys and values in one tensor [B, n, channels], and functions that return gates, rates and steps.

    Qwen3-Next has two projections, whose rows hold one key head's queries, keys, values and gates after another, and its rates and steps.
    Qwen3.5 has one for queries, keys and values and three others. OLMo Hybrid has six, of which that of the gates runs last.
    """
    B, n, _ = x.shape
    K, H = kind.n_key_heads, kind.n_value_heads
    keys, values = K * kind.key_dim, H * kind.value_dim
    match t.modules.delta_projections:
        case "per_key_head":
            qkvz = linear(t, x, 2 * keys + 2 * values, "in_proj_qkvz", bias=False)
            rates = linear(t, x, 2 * H, "in_proj_ba", bias=False)
            q, k, v, z = op.split(t, qkvz, (B, n, keys), (B, n, keys), (B, n, values), (B, n, values))
            b, a = op.split(t, rates, (B, n, H), (B, n, H))
            apart = exceeds_one(K)
            v, z = op.contiguous(t, v, apart), op.contiguous(t, z, exceeds_one(B * n * K))
            b, a = (op.contiguous(t, part, apart * exceeds_one(H // K)) for part in (b, a))
            qkv = op.cat(t, op.contiguous(t, q, apart), op.contiguous(t, k, apart), v)
            op.keep_alive(t, qkvz, rates)
            return qkv, lambda: z, lambda: b, lambda: a
        case "joined":
            parts = (2 * keys + values, "qkv"), (values, "z"), (H, "b"), (H, "a")
            qkv, z, b, a = (linear(t, x, width, f"in_proj_{name}", bias=False) for width, name in parts)
            return qkv, lambda: z, lambda: b, lambda: a
        case "separate":
            qkv = op.cat(t, *(linear(t, x, width, f"{name}_proj", bias=False) for width, name in ((keys, "q"), (keys, "k"), (values, "v"))))
            later = (partial(linear, t, x, width, f"{name}_proj", bias=False) for width, name in ((values, "g"), (H, "b"), (H, "a")))
            gate, rate, step = later
            return qkv, gate, rate, step
        case _:
            assert_never(t.modules.delta_projections)


def gated_norm(t: Tape, x: Tensor, gate: Tensor) -> Tensor:
    """Return RMSNorm of x, scaled as the class does, times SiLU of the gate, multiplied in float32 (Qwen3NextRMSNormGated)."""
    with t.at("norm", "norm"):
        weight = t.weight("weight", (x.shape[-1],), "scale of a norm")
        _, normed = pytorch.divided_by_rms(t, x)
        wide = t.modules.casts_norm_weight
        scaled = op.multiply(t, op.cast(t, weight, "float32") if wide else weight, normed if wide else op.cast(t, normed, x.dtype))
        return op.cast(t, op.multiply(t, scaled, op.pointwise(t, "silu", op.cast(t, gate, "float32"))), x.dtype)


def kimi_delta_attention(t: Tape, kind: records.KimiDeltaAttention, x: Tensor) -> Tensor:
    """KDA: q, k, v, convolution, low-rank forget and output gates, delta rule, gated norm, out."""
    B, n, d = x.shape
    H, h = kind.n_heads, kind.head_dim
    plain = t.implementation.plain_mixers
    with t.at("self_attn", "ssm"):
        qkv = op.cat(t, *(linear(t, x, H * h, name, bias=False) for name in ("q_proj", "k_proj", "v_proj")))
        qkv = convolution(t, qkv, kind.d_conv, bias=False)
        with t.at("forget_gate"):
            decay = linear(t, linear(t, x, h, "f_a_proj", bias=False), H * h, "f_b_proj", bias=False)
            shift = t.weight("dt_bias", (H * h,), "dt_bias: heads · head_dim", dtype="float32" if plain else None)
            a = t.weight("A_log", (H,), "A_log: heads")
            decay = channel_decay(t, decay, shift, a) if plain else decay
            decay = decay.view(B, n, H, h)
        beta = linear(t, x, H, "b_proj", bias=False)
        beta = sigmoid(t, beta)
        with t.inside_scan():
            q, k, v = op.split(t, qkv, *[(B, n, H, h)] * 3)
            if t.fused_mixers:
                outputs: tuple[Tensor, ...] = (chunk_kda(t, q, k, v, decay, beta, () if plain else (shift, a)),)
            elif decodes(t):
                outputs = next_state(t, q, k, v, decay, beta, divided_by_norm)
            else:
                outputs = in_cache(t, *channel_delta_rule(t, q, k, v, decay, beta))
            y, *state = outputs
        op.keep_alive(t, qkv, decay, beta)
        gate = linear(t, linear(t, x, h, "g_a_proj", bias=False), H * h, "g_b_proj", bias=False).view(B, n, H, h)
        y = gated_norm_in_float32(t, y, gate) if plain else op.multiply(t, norm(t, RMS, y, "o_norm"), sigmoid(t, gate))
        made = linear(t, y.view(B, n, H * h), d, "o_proj", bias=False)
        op.keep_alive(t, x, gate, *state)
        return made


def channel_decay(t: Tape, x: Tensor, shift: Tensor, rate: Tensor) -> Tensor:
    """Return the log decays -exp(rate) · softplus(x + shift) in float32. The softplus is written out, and x itself where it is large."""
    B, n, width = x.shape
    H = rate.shape[0]
    x = op.add(t, op.cast(t, x, "float32"), shift)
    decay = op.neg(t, exp(t, op.cast(t, rate, "float32")))
    (large,) = t.record("gt", [x], [t.tensor(x.shape, "bool", needs_grad=False)], by=channel_decay)
    small = op.pointwise(t, "log", op.add_scalar(t, exp(t, x)))
    (made,) = t.record("where", [large, x, small], [op.like(t, x)], [Saved(large, "condition")], by=channel_decay)
    return op.multiply(t, decay.view(1, 1, H, 1), made.view(B, n, H, width // H)).view(B, n, width)


def gated_norm_in_float32(t: Tape, x: Tensor, gate: Tensor) -> Tensor:
    """Return RMSNorm of x, scaled by its weight, times the sigmoid of the gate, all in float32 (KimiLinearRMSNormGated)."""
    with t.at("o_norm", "norm"):
        weight = op.cast(t, t.weight("weight", (x.shape[-1],), "scale of a norm"), "float32")
        _, normed = pytorch.divided_by_rms(t, x)
        return op.cast(t, op.multiply(t, op.multiply(t, weight, normed), sigmoid(t, op.cast(t, gate, "float32"))), x.dtype)
