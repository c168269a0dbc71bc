"""Small twins of a model, with every switch as it is and small sizes: real numbers on the CPU in a moment."""

from __future__ import annotations

from dataclasses import replace

from planner.spec.records import Layer, Model, Positions, Run
from planner.verify.modules import attention_of, feed_forward_of

D_MODEL = 64
HEAD_DIM = 16
KV_HEADS, GROUP = 2, 2
D_FF = 160  # times d_model, past the size at which 8-bit optimizers begin to quantise
VOCABULARY, PADDED_VOCABULARY = 250, 256
CONTEXT = 32
LAYERS = 2


def twin(model: Model) -> Model:
    """Return the model with its switches and small sizes: the first layers of each run once, at most two runs of the same."""
    return replace(
        model,
        vocab_size=VOCABULARY,
        padded_vocab_size=VOCABULARY if model.padded_vocab_size == model.vocab_size else PADDED_VOCABULARY,
        context_length=CONTEXT,
        d_model=D_MODEL,
        n_layers=sum(min(run.count, LAYERS) * len(run.layers) for run in model.runs),
        runs=tuple(Run(min(run.count, LAYERS), tuple(small(layer) for layer in run.layers)) for run in model.runs),
        positions=positions(model.positions, HEAD_DIM),
    )


def small(layer: Layer) -> Layer:
    """Return the layer with small sizes."""
    attention, feed_forward = attention_of(layer), feed_forward_of(layer)
    kv_heads = min(attention.n_kv_heads, KV_HEADS)
    heads = kv_heads * min(attention.n_heads // attention.n_kv_heads, GROUP)
    partial = layer.positions.rotary_dim < attention.head_dim
    return replace(
        layer,
        attention=replace(attention, n_heads=heads, n_kv_heads=kv_heads, head_dim=HEAD_DIM),
        feed_forward=replace(feed_forward, d_ff=D_FF),
        positions=positions(layer.positions, HEAD_DIM // 2 if partial else HEAD_DIM),
    )


def positions(record: Positions, rotary_dim: int) -> Positions:
    """Return the positions with another rotary dimension, if they rotate."""
    return replace(record, rotary_dim=rotary_dim) if record.type == "rope" else record
