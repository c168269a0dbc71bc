"""TODO"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm
from planner.trace.mixers.operators import convolution, scan
from planner.trace.routing import sigmoid
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def gated_delta_net(t: Tape, kind: records.GatedDeltaNet, x: Tensor) -> Tensor:
    """Gated DeltaNet: q, k, v and z from one projection, b and a from another, convolution, delta rule, gated norm, out."""
    B, n, d = x.shape
    keys, values = kind.n_key_heads * kind.key_dim, kind.n_value_heads * kind.value_dim
    with t.at("linear_attn", "ssm"):
        qkvz = linear(t, x, 2 * keys + 2 * values, "in_proj_qkvz", bias=False)
        rates = linear(t, x, 2 * kind.n_value_heads, "in_proj_ba", bias=False)
        qkv, z = op.split(t, qkvz, (B, n, 2 * keys + values), (B, n, kind.n_value_heads, kind.value_dim))
        qkv = convolution(t, qkv, kind.d_conv, bias=False)
        shift, a = (t.weight(name, (kind.n_value_heads,), f"{name}: value heads") for name in ("dt_bias", "A_log"))
        y = scan(t, "chunk_gated_delta_rule", [qkv, rates, shift, a], (B, n, kind.n_value_heads, kind.value_dim))
        y = op.multiply(t, norm(t, RMS, y, "norm"), op.pointwise(t, "silu", z))
        return linear(t, y.view(B, n, values), d, "out_proj", bias=False)


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
