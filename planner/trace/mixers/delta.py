"""Delta rules with decay: Gated DeltaNet and Kimi Delta Attention.

Read from transformers 5.24: models/qwen3_next/modeling_qwen3_next.py, models/kimi_linear/modeling_kimi_linear.py.
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace import pytorch
from planner.trace.blocks import linear, norm
from planner.trace.mixers.delta_rule import chunked_delta_rule
from planner.trace.mixers.operators import convolution, exp, scan, softplus
from planner.trace.routing import sigmoid
from planner.trace.sizes import exceeds_one
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def gated_delta_net(t: Tape, kind: records.GatedDeltaNet, x: Tensor) -> Tensor:
    """Gated DeltaNet: q, k, v and z from one projection, b and a from another, convolution, delta rule, gated norm, out."""
    B, n, d = x.shape
    H = kind.n_value_heads
    keys, values = kind.n_key_heads * kind.key_dim, H * kind.value_dim
    with t.at("linear_attn", "ssm"):
        qkvz = linear(t, x, 2 * keys + 2 * values, "in_proj_qkvz", bias=False)
        rates = linear(t, x, 2 * H, "in_proj_ba", bias=False)
        if t.implementation.plain_mixers:
            return plain_gated_delta_net(t, kind, x, qkvz, rates)
        qkv, z = op.split(t, qkvz, (B, n, 2 * keys + values), (B, n, H, kind.value_dim))
        qkv = convolution(t, qkv, kind.d_conv, bias=False)
        shift, a = (t.weight(name, (H,), f"{name}: value heads") for name in ("dt_bias", "A_log"))
        y = scan(t, "chunk_gated_delta_rule", [qkv, rates, shift, a], (B, n, H, kind.value_dim))
        y = op.multiply(t, norm(t, RMS, y, "norm"), op.pointwise(t, "silu", z))
        return linear(t, y.view(B, n, values), d, "out_proj", bias=False)


def plain_gated_delta_net(t: Tape, kind: records.GatedDeltaNet, x: Tensor, qkvz: Tensor, rates: Tensor) -> Tensor:
    """Run transformers' operators after the projections, whose rows hold one key head's queries, keys, values and gates after another."""
    B, n, d = x.shape
    K, H, width, value = kind.n_key_heads, kind.n_value_heads, kind.key_dim, kind.value_dim
    q, k, v, z = op.split(t, qkvz, (B, n, K * width), (B, n, K * width), (B, n, H * value), (B, n, H * value))
    b, a = op.split(t, rates, (B, n, H), (B, n, H))
    apart = exceeds_one(K)
    v, z = op.contiguous(t, v, apart), op.contiguous(t, z, apart)
    b, a = (op.contiguous(t, part, apart * exceeds_one(H // K)) for part in (b, a))
    qkv = op.cat(t, op.contiguous(t, q, apart), op.contiguous(t, k, apart), v)
    qkv = convolution(t, qkv, kind.d_conv, bias=False)
    q, k, v = op.split(t, qkv, (B, n, K, width), (B, n, K, width), (B, n, H, value))
    beta = sigmoid(t, b)
    shift, rate = (t.weight(name, (H,), f"{name}: value heads") for name in ("dt_bias", "A_log"))
    decay = op.neg(t, exp(t, op.cast(t, rate, "float32")))
    decay = op.multiply(t, decay.view(1, 1, H), softplus(t, op.add(t, op.cast(t, a, "float32"), shift)))
    with t.inside_scan():
        y = chunked_delta_rule(t, q, k, v, decay, beta)
    y = gated_norm(t, y, z.view(B, n, H, value))
    op.keep_alive(t, qkvz, rates, z, b, a, qkv, beta, decay)
    return linear(t, y.view(B, n, H * value), d, "out_proj", bias=False)


def gated_norm(t: Tape, x: Tensor, gate: Tensor) -> Tensor:
    """Return RMSNorm of x, scaled as the class does, times SiLU of the gate, multiplied in float32 (Qwen3NextRMSNormGated)."""
    with t.at("norm", "norm"):
        weight = t.weight("weight", (x.shape[-1],), "scale of a norm")
        _, normed = pytorch.divided_by_rms(t, x)
        weight = op.cast(t, weight, "float32") if t.modules.casts_norm_weight else weight
        scaled = op.multiply(t, weight, normed if t.modules.scales_in_float32 else op.cast(t, normed, x.dtype))
        return op.cast(t, op.multiply(t, scaled, op.pointwise(t, "silu", op.cast(t, gate, "float32"))), x.dtype)


def kimi_delta_attention(t: Tape, kind: records.KimiDeltaAttention, x: Tensor) -> Tensor:
    """KDA: q, k, v, convolution, low-rank forget and output gates, delta rule, gated norm, out."""
    B, n, d = x.shape
    H, h = kind.n_heads, kind.head_dim
    with t.at("self_attn", "ssm"):
        qkv = op.cat(t, *(linear(t, x, H * h, name, bias=False) for name in ("q_proj", "k_proj", "v_proj")))
        qkv = convolution(t, qkv, kind.d_conv, bias=False)
        with t.at("forget_gate"):
            decay = linear(t, linear(t, x, h, "f_a_proj", bias=False), H * h, "f_b_proj", bias=False)
            shift = t.weight("dt_bias", (H * h,), "dt_bias: heads · head_dim")
            a = t.weight("A_log", (H,), "A_log: heads")
        beta = linear(t, x, H, "b_proj", bias=False)
        gate = linear(t, linear(t, x, h, "g_a_proj", bias=False), H * h, "g_b_proj", bias=False)
        y = scan(t, "chunk_kda", [qkv, decay, beta, shift, a], (B, n, H, h))
        y = op.multiply(t, norm(t, RMS, y, "o_norm"), sigmoid(t, gate.view(B, n, H, h)))
        return linear(t, y.view(B, n, H * h), d, "o_proj", bias=False)
