"""Attention of decoded tokens to the output of an encoder.

Read from transformers 5.24: models/bart/modeling_bart.py, models/t5/modeling_t5.py, models/whisper/modeling_whisper.py.
"""

from __future__ import annotations

from planner.spec.records import Layer
from planner.trace import primitives as op
from planner.trace import relative
from planner.trace.attention import adjacent, heads_mixed
from planner.trace.blocks import linear
from planner.trace.implementation import Scores
from planner.trace.positions import own_table
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError


def cross_attention(t: Tape, layer: Layer, encoder: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """Attend from x [B, n, d_model] to the encoder's output [B, m, d_model]. ``bias`` is added to the scores."""
    kind = layer.attention
    if kind is None:
        raise UnsupportedError("layers without attention cannot read an encoder")
    B, n, d = x.shape
    m, H, K, h = encoder.shape[1], kind.n_heads, kind.n_kv_heads, kind.head_dim
    with t.at("cross_attn", "attention"):
        q = linear(t, x, H * h, "q_proj", bias=kind.q_bias).view(B, H, n, h)
        k = linear(t, encoder, K * h, "k_proj", bias=kind.k_bias).view(B, K, m, h)
        width = h if kind.v_head_dim is None else kind.v_head_dim
        v = linear(t, encoder, K * width, "v_proj", bias=kind.v_bias).view(B, K, m, width)
        q, k, v = adjacent(t, q, k, v)
        if own_table(layer) and t.implementation.constant_buffers:
            bias = relative.of_cross_attention(t, n, m, H)
        t.causal = False
        mixed = heads_mixed(t, q, k, v, Scores(bias))
        t.causal = True
        out = t.implementation.drop(t, linear(t, mixed, d, "o_proj", bias=kind.o_bias))
        op.keep_alive(t, x, q, k, v, mixed, *([bias] if bias else []))
        return out
