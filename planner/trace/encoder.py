"""Encoders whose output the layers of a decoder read: text, or audio.

Read from transformers 5.24: models/bart/modeling_bart.py, models/t5/modeling_t5.py, models/whisper/modeling_whisper.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from planner.spec.records import Encoder, Frames, Model
from planner.trace import blocks
from planner.trace import primitives as op
from planner.trace.classes import of_encoder
from planner.trace.embeddings import look_up, summed
from planner.trace.nodes import Saved
from planner.trace.positions import PositionTables
from planner.trace.runs import run_layers
from planner.trace.sizes import Size, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

WIDTH = 3  # frames of a convolution


def stack(model: Model, kind: Encoder) -> Model:
    """Return the encoder as a model of its own: the layers of the decoder, without a causal mask."""
    (run,) = model.runs
    return replace(model, causal=False, encoder=None, n_layers=kind.n_layers, runs=(replace(run, count=kind.n_layers),))


@contextmanager
def _inside(t: Tape, model: Model) -> Iterator[None]:
    """Trace the encoder's stack inside, on sequences of its own length."""
    outer = t.model, t.training, t.modules, t.causal
    t.model, t.causal, t.modules = model, False, of_encoder(t.modules)
    t.training = replace(t.training, sequence_length=cast("int", t.training.encoder_length))
    yield
    t.model, t.training, t.modules, t.causal = outer


def read(t: Tape) -> Tensor | None:
    """Return what the encoder reads, if there is one: token ids [B, m], or frames of audio [B, frames, bins]."""
    kind = t.model.encoder
    if kind is None:
        return None
    B, m = t.training.batch_size, cast("int", t.training.encoder_length)
    if kind.frames:
        return t.tensor((B, 2 * m, kind.frames.bins), t.precision.weights, needs_grad=False)
    return t.tensor((B, m), "int64", needs_grad=False)


def before(t: Tape, table: Tensor, source: Tensor | None, ids: Tensor, targets: Tensor) -> Tensor:
    """Run the encoder, if there is one, and return the decoder's token ids, which transformers then makes of the labels."""
    if t.model.encoder is None or source is None:
        return ids
    t.encoded = encoded(t, t.model.encoder, table, source)
    if not t.implementation.constant_buffers:
        return ids
    made = t.tensor(targets.shape, "int64", needs_grad=False)
    made.storage.until_forward_ends = True
    return t.record("shift", [targets], [made], by=before)[0]


def encoded(t: Tape, kind: Encoder, table: Tensor, source: Tensor) -> Tensor:
    """Return the last hidden states [B, m, d_model] of the encoder. Text has the decoder's ``table`` of tokens."""
    model, alive = stack(t.model, kind), list[Tensor]()
    with t.at("encoder"), _inside(t, model):
        B, m = t.training.batch_size, cast("Size", t.sequence)
        x = audio(t, kind.frames, source, alive) if kind.frames else summed(t, model, look_up(t, table, None, source), alive)
        positions = PositionTables(t, model, B, m)
        x = run_layers(t, model.runs, positions, t.implementation.drop(t, x))
        if model.final_norm:
            x = blocks.norm(t, model.norm, x, "norm")
        op.keep_alive(t, *positions.all, *alive)
    return x


def audio(t: Tape, kind: Frames, frames: Tensor, alive: list[Tensor]) -> Tensor:
    """Return frames [B, 2m, bins] after two convolutions, with positions from a frozen table: [B, m, d_model].

    Adds to ``alive`` what the encoder's variables keep alive.
    """
    B, d = frames.shape[0], t.model.d_model
    x = frames
    for name, inputs, length in (("conv1", kind.bins, 2 * t.sequence), ("conv2", d, t.sequence)):
        with t.at(name, "embedding"):
            w, b = t.weight("weight", (d, inputs, WIDTH), "convolution: out · in · 3"), t.weight("bias", (d,), "bias: out")
            x = op.pointwise(t, "gelu", convolution(t, x, w, b, (B, length, d)))
    with t.at("embed_positions", "position"):
        table = t.weight("weight", (t.sequence, d), "positions of frames: frames / 2 · d_model", trains=False)
        places = t.implementation.positions(t, t.sequence)
        alive += [x, places]
        return op.add(t, x, op.embedding(t, places, table))


def convolution(t: Tape, x: Tensor, w: Tensor, b: Tensor, shape: tuple[Size, ...]) -> Tensor:
    """Convolve x [B, frames, in] with w [out, in, 3] to the given shape. 2·B·frames·out·in·3 FLOPs; saves both (convolution_backward)."""
    b, w, x = (op.cast_lower_precision(t, one) for one in (b, w, x))
    flops = op.products(x, w, 2 * product(shape) * w.shape[1] * WIDTH, "2 · frames · out · in · 3")
    saved = [Saved(x, "input"), Saved(w, "weight")]
    return t.record("convolution", [x, w, b], [t.tensor(shape, x.dtype)], saved, flops, added=b, by=convolution)[0]
