"""Embeddings of tokens, positions and token types, and the sum of them that enters the first layer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from planner.spec.records import Model, Patches, PerLayerEmbedding
from planner.trace import blocks
from planner.trace import primitives as op
from planner.trace.adapters import embedded as tuned_embedding
from planner.trace.adapters import requiring_gradient, trained_copy
from planner.trace.collectives import leave, own_part, whole_table
from planner.trace.nodes import Saved
from planner.trace.sizes import Size, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def tables(t: Tape, model: Model, more_rows: Size) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the token embedding as stored and as read, and the projection to the residual stream if their widths differ."""
    if model.patches:
        nothing = op.constant(t, (), t.precision.weights)
        return nothing, nothing, None
    width = model.d_model if model.embedding_dim is None else model.embedding_dim
    new = t.read("wte.new_embedding", 2) if t.modules.joins_new_rows else None
    with t.at("embed_tokens", "embedding"):
        rows = partial(token_rows, t, width, "token embedding: V · width", more=more_rows + (new.shape[0] if new else 0), looked_up=True)
        stored, table = trained_copy(t, "embedding", rows)
        if model.embedding_scale or t.modules.scale_dtype:
            scale_buffer(t)
    with t.at("project_in", "other"):
        apart = model.embedding_dim is not None and model.projected == "tokens"
        project_in = t.weight("weight", (model.d_model, width), op.LINEAR) if apart else None
    return stored, table, project_in


def look_up(t: Tape, table: Tensor, project_in: Tensor | None, ids: Tensor) -> Tensor:
    """Return the embeddings [B, n, d_model] of tokens, or of learned tokens and patches of images."""
    if t.model.patches:
        return patches(t, t.model.patches, ids)
    with t.at("embed_tokens", "embedding"):
        x = tuned_embedding(t, ids, table, leave(t, op.embedding(t, ids, whole_table(t, table))))
        if t.modules.scale_dtype:
            x = op.multiply(t, x, op.cast(t, op.constant(t, (), t.modules.scale_dtype), x.dtype))
        elif t.model.embedding_scale or t.modules.always_scales:
            x = op.mul_scalar(t, x)
        x = requiring_gradient(t, x) if t.training.input_gradients else x
    if project_in is not None:
        with t.at("project_in", "other"):
            x = op.linear(t, x, project_in)
    return x


def patches(t: Tape, kind: Patches, pixels: Tensor) -> Tensor:
    """Return learned tokens and the patches of pixels [B, patches, channels · size²], each multiplied by one matrix: [B, n, d_model]."""
    B, d = pixels.shape[0], t.model.d_model
    with t.at("embed_patches", "embedding"):
        weight = t.weight("weight", (d, pixels.shape[-1]), "patch embedding: d_model · channels · size²")
        x = convolution(t, pixels, weight, t.weight("bias", (d,), "bias: out") if kind.bias else None)
        x = requiring_gradient(t, x) if t.training.input_gradients and t.modules.looks_up_patches else x
        if not kind.tokens:
            return x
        tokens = t.weight("tokens", (1, kind.tokens, d), "learned tokens: tokens · d_model")
        made = t.tensor((B, kind.tokens + pixels.shape[1], d), op.promote(tokens, x))
        expanded = op.expand(t, tokens, (B, kind.tokens, d), 0)
        return t.record("cat", [expanded, x], [made], passes_gradient=True, views_gradient=True, by=patches)[0]


def convolution(t: Tape, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Convolve patches x [B, patches, i] that do not overlap with w [d, i]. 2·B·patches·i·d FLOPs; saves both (convolution_backward)."""
    b = b and op.cast_lower_precision(t, b)
    w, x = (op.cast_lower_precision(t, one) for one in (w, x))
    made = t.tensor((*x.shape[:-1], w.shape[0]), x.dtype)
    flops = op.products(x, w, 2 * product(x.shape) * w.shape[0], "2 · patches · in · out")
    return t.record(
        "convolution", [one for one in (x, w, b) if one], [made], [Saved(x, "input"), Saved(w, "weight")], flops, added=b, by=convolution
    )[0]


def summed(t: Tape, model: Model, x: Tensor, alive: list[Tensor]) -> Tensor:
    """Return the token embeddings, with positions added and normalized if the model does so; add to ``alive`` what stays alive."""
    n, width = t.sequence, x.shape[-1]
    kept = [x]
    if model.segments:
        with t.at("embed_segments", "embedding"):
            table = t.weight("weight", (model.segments, width), "token types: rows · width")
            places = segment_ids(t, n)
            kept += [places, op.embedding(t, places, table)]
            x = op.add(t, x, kept[-1])
    with t.at("embed_positions", "position"):
        if model.positions.type == "learned":
            rows = n if model.patches else model.context_length + model.positions.offset
            table = t.weight("weight", (rows, width), "position embedding: rows · d_model", trains=not model.positions.frozen)
            if model.patches and not t.modules.looks_up_patches:
                x = op.add(t, x, table.view(1, n, width))
            else:
                places = t.places = t.implementation.positions(t, n)
                kept += [places, own_part(t, op.embedding(t, places, table))]
                x = op.add(t, x, kept[-1])
        if model.positions.type == "sinusoidal":
            dtype = t.precision.weights
            if t.implementation.constant_buffers:
                t.buffer("weights", (model.context_length + t.modules.more_sinusoids, model.d_model), dtype)
            x = op.add(t, x, op.constant(t, (n, model.d_model), dtype))
    if model.embedding_norm and not t.modules.norm_in_first_layer:
        x = blocks.norm(t, model.norm, x, "embed_norm")
    if t.modules.embeds_apart != "no":
        op.keep_alive(t, *kept)
        alive += [x] if t.modules.embeds_apart == "kept" else []
    elif t.implementation.keeps_embeddings:
        alive += kept
    if model.projected == "embedded" and model.embedding_dim is not None:
        with t.at("", "other"):
            x = blocks.linear(t, x, model.d_model, "project_in", bias=True)
    return t.show("embedded", x)


def segment_ids(t: Tape, n: Size) -> Tensor:
    """Return the types of the tokens: all zero, [1, n], or [B, n] if positions are made per sequence; of a buffer, if there is one."""
    if t.modules.unused_ids:
        t.buffer("position_ids", (t.model.context_length,), "int64")
    stored = t.modules.stored_position_ids and t.modules.stored_token_types
    if stored or t.modules.unused_ids:
        t.buffer("token_type_ids", (t.model.context_length + t.model.positions.offset,), "int64")
    rows = t.training.batch_size if t.modules.positions_per_sequence or not stored else 1
    return t.record("token types", [], [t.tensor((rows, n), "int64", needs_grad=False)], by=segment_ids)[0]


def token_rows(t: Tape, width: Size | None, why: str, *, more: Size = 0, looked_up: bool = False) -> Tensor:
    """Return a weight with a row of the given width, or one element, per token of the padded vocabulary, and ``more`` rows.

    With tensor parallelism, it is a device's part. The gradient of a table that is only ``looked_up`` is whole.
    """
    V, padded = t.model.vocab_size, t.vocabulary
    shape, a_row = ((padded,), 1) if width is None else ((padded + more, width), width)
    padding = 0 if t.tensor_parallel else (padded - V) * a_row  # whose device has it is not counted
    gradient = (t.model.padded_vocab_size + more) * a_row if looked_up and not (t.vocabulary_parallel or t.model.tied_head) else None
    return t.weight("bias" if width is None else "weight", shape, why, padding=padding, gradient=gradient)


def per_layer_inputs(t: Tape, model: Model, kind: PerLayerEmbedding, ids: Tensor, x: Tensor) -> Tensor:
    """Return a vector of ``dim`` per token and layer: from a separate embedding, plus a projection of the embedded token.

    Gemma 3n (transformers 5.24, models/gemma3n/modeling_gemma3n.py).
    """
    B, n, _ = x.shape
    width = model.n_layers * kind.dim
    with t.at("embed_tokens_per_layer", "embedding"):
        table = t.weight("weight", (kind.vocab_size, width), "per-layer embedding: V · n_layers · dim")
        scale_buffer(t)
        if t.modules.replaces_ids:
            (ids,) = t.record("where", [ids], [op.like(t, ids)], by=per_layer_inputs)
        looked_up = op.mul_scalar(t, op.embedding(t, ids, table))
    with t.at("", "other"):
        projected = op.mul_scalar(t, blocks.linear(t, x, width, "per_layer_model_projection", bias=False))
        projected = projected.view(B, n, model.n_layers, kind.dim)
        projected = blocks.norm(t, replace(model.norm, bias=False), projected, "per_layer_projection_norm")
        return op.mul_scalar(t, op.add(t, projected, looked_up.view(B, n, model.n_layers, kind.dim)))


def scale_buffer(t: Tape) -> None:
    """Store the scale of an embedding, if the implementation does so."""
    if t.implementation.constant_buffers and t.modules.scale_buffer:
        t.buffer("embed_scale", (), t.modules.scale_dtype or t.precision.weights)
