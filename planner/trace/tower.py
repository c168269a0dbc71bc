"""Towers: a stack of layers over patches of images, whose projected states replace some of the model's tokens.

Read from transformers 5.24: models/llava/modeling_llava.py, models/clip/modeling_clip.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from planner.spec.records import Attention, FeedForward, Layer, Model, Norm, Positions, Run, Vision
from planner.trace import blocks
from planner.trace import primitives as op
from planner.trace.classes import of_tower
from planner.trace.embeddings import look_up, summed
from planner.trace.nodes import Saved
from planner.trace.positions import PositionTables
from planner.trace.runs import run_layers
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError


def stack(kind: Vision) -> Model:
    """Return the tower as a model of its own."""
    width, read = kind.d_model, kind.n_layers if kind.read_layers is None else kind.read_layers
    layer = Layer(
        attention=Attention(kind.n_heads, kind.n_heads, width // kind.n_heads, qkv="separate"),
        feed_forward=FeedForward(kind.d_ff, activation=kind.activation, gate_bias=False, gated=False),
        positions=Positions(),
        norm=Norm(),
    )
    runs = tuple(Run(count, (layer,)) for count in (read, kind.n_layers - read) if count)
    return Model(
        1, 1, kind.patches.length, width, kind.n_layers, runs,
        causal=False, patches=kind.patches, embedding_norm=kind.embedding_norm, head_type="none",
    )  # fmt: skip


@contextmanager
def _inside(t: Tape, model: Model) -> Iterator[None]:
    """Trace the tower inside, on all images at once."""
    outer = t.model, t.training, t.modules, t.causal
    images = t.training.batch_size * t.training.images
    t.model, t.causal, t.modules = model, False, of_tower(t.modules)
    t.training = replace(t.training, batch_size=images, sequence_length=model.context_length)
    yield
    t.model, t.training, t.modules, t.causal = outer


def read(t: Tape) -> Tensor | None:
    """Return the pixels that the tower reads, if there is one: [images, patches, channels · size²]."""
    if t.model.vision is None:
        return None
    if t.inference:
        raise UnsupportedError("serving of models with a tower is not modeled yet")
    if t.divided:
        raise UnsupportedError("layouts of several devices are not modeled yet for models with a tower")
    if t.training.recompute == "full" and not {"everything", "vision"} & set(t.training.train):
        raise UnsupportedError("recompute: full with a frozen tower is not modeled yet; write recompute: none, or train vision, too")
    kind = t.model.vision.patches
    shape = (t.training.batch_size * t.training.images, kind.length - kind.tokens, kind.channels * kind.size * kind.size)
    return t.tensor(shape, t.precision.weights, needs_grad=False)


def joined(t: Tape, x: Tensor, ids: Tensor, pixels: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """Return embedded tokens [B, n, d_model] with projected states of images in their places, and what the model's variables keep alive."""
    kind = t.model.vision
    if kind is None or pixels is None:
        return x, []
    features = projected(t, kind, states(t, kind, pixels))
    t.outputs.append(features)
    count, length, width = features.shape
    (rows,) = t.record("cat", [features], [t.tensor((count * length, width), features.dtype)], views_gradient=True, by=joined)
    (places,) = t.record("places", [ids], [t.tensor((*ids.shape, 1), "bool", needs_grad=False)], by=joined)
    rows = op.cast(t, rows, x.dtype)
    made = t.tensor(x.shape, x.dtype)
    (made,) = t.record("masked_scatter", [x, rows], [made], [Saved(places, "places")] if rows.needs_grad else [], by=joined)
    return made, [rows, places]


def states(t: Tape, kind: Vision, pixels: Tensor) -> Tensor:
    """Return states of the tower's layer that is read [images, patches and learned tokens, width].

    Later layers and the norm after them run, too. What they save is freed with the model's output, before the backward pass.
    """
    model, alive = stack(kind), list[Tensor]()
    with t.at("vision"), _inside(t, model):
        images, n = t.training.batch_size, cast("Size", t.sequence)
        nothing = op.constant(t, (), t.precision.weights)
        x = t.implementation.drop(t, summed(t, model, look_up(t, nothing, None, pixels), alive))
        positions = PositionTables(t, model, images, n)
        x = last = run_layers(t, model.runs[:1], positions, x, whole=len(model.runs) == 1)
        if rest := model.runs[1:]:
            with t.unread_by_loss():
                last = run_layers(t, rest, positions, x, model.runs[0].count, whole=False)
        if kind.final_norm:
            with t.without_gradients(trains=False):
                (first,) = op.split(t, last, (images, 1, kind.d_model))
                blocks.norm(t, model.norm, first, "norm")
        op.keep_alive(t, *positions.all, *alive)
    t.outputs += [x, last]
    return x


def projected(t: Tape, kind: Vision, x: Tensor) -> Tensor:
    """Return the states of patches after two matrices [images, features, d_model]."""
    with t.at("projector", "other"):
        images, _, width = x.shape
        if not kind.reads_tokens and kind.patches.tokens:
            (x,) = op.split(t, x, (images, kind.features, width))
            x = op.contiguous(t, x, 1)
        d = t.model.d_model
        made = blocks.linear(t, x, d, "linear_1", bias=kind.projector_bias)
        made = t.implementation.activation(t, kind.projector_activation, made)
        return blocks.linear(t, made, d, "linear_2", bias=kind.projector_bias)
