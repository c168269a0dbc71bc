"""Scaled-down copies: a model with all its switches and small sizes, which runs on the CPU in a moment."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from planner.spec.records import Layer, Layout, Model, Positions, Run, Training
from planner.verify import CannotMeasureError
from planner.verify.expert_parallel import without_experts
from planner.verify.modules import attention_of, feed_forward_of

D_MODEL = 64
HEAD_DIM = 16
KV_HEADS, GROUP = 2, 2
D_FF = 160  # times d_model: more elements than 8-bit optimizers leave unquantized
VOCABULARY, PADDED_VOCABULARY = 250, 256
CONTEXT = 32
LAYERS = 2
EXPERTS, CHOSEN = 4, 2
MOST_DATA_PARALLEL = 8


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


def divided(model: Model, training: Training, layout: Layout) -> tuple[Model, Training, Layout]:
    """Return small sizes that the layout divides: of the model, the batch and the data-parallel devices."""
    tp, pp = layout.tensor_parallel, layout.pipeline_parallel
    replicas, cp = 2 if layout.data_parallel == "hsdp" else 1, layout.context_parallel
    shards = min(layout.data_degree // replicas, layout.shard_degree // cp if replicas > 1 else layout.data_degree, MOST_DATA_PARALLEL)
    shards = layout.expert_parallel * max(shards // layout.expert_parallel, 1)
    cluster = replace(layout.cluster, devices=tp * pp * cp * replicas * shards)
    (first, last), each = _of_ends(model, layout)
    mine = replace(
        layout,
        cluster=cluster,
        shard_degree=shards * cp if replicas > 1 else 1,
        first_stage_layers=first,
        last_stage_layers=last,
    )
    n, m = lcm(CONTEXT, tp, layout.sequence_multiple), training.gradient_accumulation
    passes = min(m, LAYERS) if pp == 1 else min(m, max(LAYERS * pp, pp) if m % pp == 0 else m)
    small = replace(training, batch_size=2, sequence_length=n, gradient_accumulation=passes, tokens=None, layout=mine, reserve_bytes=0)
    whole = scaled_down(without_experts(model) if layout.expert_parallel > 1 else model)
    runs = tuple(
        replace(run, layers=tuple(_divided(layer, of, layout) for layer, of in zip(run.layers, large.layers, strict=True)))
        for run, large in zip(whole.runs, model.runs, strict=True)
    )
    if pp > 1:
        if len(runs) > 1 or len(runs[0].layers) > 1:
            raise CannotMeasureError("a pipeline of different layers has no scaled-down copy")
        runs = (replace(runs[0], count=sum(each if one is None else one for one in (first, last)) + (layout.stages - 2) * each),)
    rows = lcm(PADDED_VOCABULARY, tp) if tp > 1 else whole.padded_vocab_size
    tokens = rows if tp > 1 else whole.vocab_size
    count = sum(run.count * len(run.layers) for run in runs)
    made = replace(whole, runs=runs, n_layers=count, context_length=n, vocab_size=tokens, padded_vocab_size=rows)
    return made, small, mine


def _of_ends(model: Model, layout: Layout) -> tuple[tuple[int | None, int | None], int]:
    """Return few layers of the first and of the last stage, None for as many as others, and of each other stage."""
    ends = layout.first_stage_layers, layout.last_stage_layers
    given = [count for count in ends if count is not None]
    inner = layout.stages - len(given)
    each = (model.n_layers - sum(given)) // inner if inner else LAYERS
    few = min(each, LAYERS)
    first, last = (count if count is None else min(count, few + (count > each) - (count < each)) for count in ends)
    return (first, last), few


def _divided(layer: Layer, large: Layer, layout: Layout) -> Layer:
    """Return a small layer with sizes that the layout divides, and with the kind of experts that the large one has."""
    attention, feed_forward, tp = attention_of(layer), feed_forward_of(layer), layout.tensor_parallel
    if large.experts:
        count = lcm(EXPERTS, layout.expert_parallel)
        return replace(
            layer, feed_forward=None, experts=replace(large.experts, count=count, top_k=min(large.experts.top_k, CHOSEN), d_ff=D_FF)
        )
    heads = replace(attention, n_heads=attention.n_heads * tp, n_kv_heads=attention.n_kv_heads * tp)
    return replace(layer, attention=heads, feed_forward=replace(feed_forward, d_ff=lcm(feed_forward.d_ff, tp)))
