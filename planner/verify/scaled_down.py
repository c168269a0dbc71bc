"""Scaled-down copies: a model with all its switches and small sizes, which runs on the CPU in a moment."""

from __future__ import annotations

from dataclasses import replace

from planner.spec.records import Layer, Model, Positions, Run
from planner.verify.modules import attention_of, feed_forward_of

D_MODEL = 64
HEAD_DIM = 16
KV_HEADS, GROUP = 2, 2
D_FF = 160  # times d_model: more elements than 8-bit optimizers leave unquantized
VOCABULARY, PADDED_VOCABULARY = 250, 256
CONTEXT = 32
LAYERS = 2


def scaled_down(model: Model) -> Model:
    """Return the model with small sizes: every layer group, repeated at most twice."""
    runs = tuple(Run(min(run.count, LAYERS), tuple(map(_layer, run.layers))) for run in model.runs)
    return replace(
        model,
        vocab_size=VOCABULARY,
        padded_vocab_size=VOCABULARY if model.padded_vocab_size == model.vocab_size else PADDED_VOCABULARY,
        context_length=CONTEXT,
        d_model=D_MODEL,
        n_layers=sum(run.count * len(run.layers) for run in runs),
        runs=runs,
        positions=_positions(model.positions, HEAD_DIM),
    )


def _layer(layer: Layer) -> Layer:
    attention, feed_forward = attention_of(layer), feed_forward_of(layer)
    kv_heads = min(attention.n_kv_heads, KV_HEADS)
    heads = kv_heads * min(attention.n_heads // attention.n_kv_heads, GROUP)
    partial = layer.positions.rotary_dim < attention.head_dim
    return replace(
        layer,
        attention=replace(attention, n_heads=heads, n_kv_heads=kv_heads, head_dim=HEAD_DIM),
        feed_forward=replace(feed_forward, d_ff=D_FF),
        positions=_positions(layer.positions, HEAD_DIM // 2 if partial else HEAD_DIM),
    )


def _positions(positions: Positions, rotary_dim: int) -> Positions:
    return replace(positions, rotary_dim=rotary_dim) if positions.type == "rope" else positions
