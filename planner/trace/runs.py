"""Runs of layers: equal ones are traced once, for all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import lcm
from operator import eq, lt
from typing import cast

from planner.spec.records import Attention, Experts, LatentAttention, Layer, Run
from planner.trace import primitives as op
from planner.trace import trained
from planner.trace.layers import decoder_layer, first_layer, recomputed
from planner.trace.positions import PositionTables
from planner.trace.setup import is_one
from planner.trace.sizes import Size, choose, maximum, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

MOST_DIFFERENT = 512  # layers, each of which is traced


def run_layers(t: Tape, runs: tuple[Run, ...], positions: PositionTables, x: Tensor, first: Size = 0, *, whole: bool = True) -> Tensor:
    """Run layers, ``first`` being the number of the first one. ``whole``: they are all layers, which need no numbers if they are equal."""
    runs = trained.apart(runs, t.training)
    runs = tuple(of_device(t, run) for run in apart(runs)) if t.divided else runs
    for run in runs:
        uniform = whole and len(runs) == 1 and len(run.layers) == 1
        x = _run(t, run, positions, x, first=None if uniform else first)
        first = first + run.count * len(run.layers)
    return x


def apart(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Return layer groups with the first and the last copy of each in groups of their own: between devices, these differ from the rest."""
    parts = ((run, (1, run.count - 2, 1) if run.count > 2 else (1,) * structure(run.count)) for run in runs)  # noqa: PLR2004 - first and last
    return tuple(replace(run, count=count) for run, counts in parts for count in counts)


def last_apart(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Return layer groups with the last copy of each in a group of its own."""
    parts = ((run, (run.count - 1, 1) if choose(lt, 1, run.count) else (1,)) for run in runs)
    return tuple(replace(run, count=count) for run, counts in parts for count in counts)


def of_device(t: Tape, run: Run) -> Run:
    """Return layers with the part of the heads and of the hidden width that a tensor-parallel device has."""

    def part(layer: Layer) -> Layer:
        kind, feed = layer.attention, layer.feed_forward
        return replace(
            layer,
            attention=kind and of_heads(kind),
            feed_forward=feed and replace(feed, d_ff=t.part(feed.d_ff)),
            mixers=tuple(replace(one, n_heads=t.part(one.n_heads)) if isinstance(one, LatentAttention) else one for one in layer.mixers),
            experts=with_shared_part(t, layer.experts) if layer.experts else None,
        )

    def of_heads(kind: Attention) -> Attention:
        replicas = cast("int", maximum(1, t.degree // kind.n_kv_heads))
        heads, kv_heads = t.part(kind.n_heads), t.part(kind.n_kv_heads * replicas)
        kv_heads = heads if choose(eq, heads, kv_heads) else kv_heads  # structure depends on it, and the same size may have two formulas
        return replace(kind, n_heads=heads, n_kv_heads=kv_heads, kv_replicas=replicas)

    return replace(run, layers=tuple(part(layer) for layer in run.layers)) if t.tensor_parallel else run


def with_shared_part(t: Tape, kind: Experts) -> Experts:
    """Return experts with the part of the shared ones that a tensor-parallel device has."""
    return kind if kind.shared_d_ff is None else replace(kind, shared_d_ff=t.part(kind.shared_d_ff))


def _run(t: Tape, run: Run, positions: PositionTables, x: Tensor, *, first: Size | None) -> Tensor:
    """Run a layer group. ``first`` is the number of its first layer, None if the model has no other group."""

    def stack(count: Size, first: Size | None, x: Tensor, *, of_model: bool = False) -> Tensor:
        for number, layer in enumerate(run.layers):
            label = "N" if first is None else _label(first + number, count, len(run.layers))
            layer_of = first_layer if of_model and number == 0 else decoder_layer
            with t.at(f"layers.{label}", "other"), t.unit(f"layers.{label}"):
                passed = (*positions.selection(t), *([t.encoded] if t.encoded else []))
                x = recomputed(t, partial(layer_of, t, layer, positions), x, *positions.of(t, layer), *passed)
                op.keep_alive(t, *passed)
                t.show("residual stream", x)
        return x

    if t.training.recompute == "full" and t.training.recompute_every > 1:
        return _recomputed_in_part(t, run, positions, x, start=structure(0 if first is None else first))
    count = run.count
    projected = t.model.embedding_dim is not None and x.dtype == t.precision.autocast  # in 16 bits, but layers may return float32
    if t.grad and not x.needs_grad and not choose(is_one, count):  # the others read what needs a gradient, and may differ
        start = 0 if first is None else first
        x, count, first = t.repeat(1, partial(stack, 1, start), x), count - 1, start + len(run.layers)
    elif first in {None, 0} and (t.modules.residual_in_float32 or t.modules.norm_in_first_layer or t.modules.passes_selection or projected):
        x = t.repeat(1, partial(stack, 1, 0, of_model=True), x)
        if choose(is_one, count):
            return x
        count, first = count - 1, None if first is None else len(run.layers)
    body = partial(stack, count, first)
    return body(x) if t.divided and count == 1 else t.repeat(count, body, x)


def _recomputed_in_part(t: Tape, run: Run, positions: PositionTables, x: Tensor, *, start: int) -> Tensor:
    """Run a layer group of which only every n-th layer of the model is recomputed: repeat as many layers as both are periodic in."""
    if t.modules.residual_in_float32 or t.modules.norm_in_first_layer or t.modules.passes_selection or t.stores_keys:
        raise UnsupportedError(f"recompute_every is not modeled for {t.model.model_type}, whose equal layers differ; omit it")
    every, kinds = t.training.recompute_every, run.layers
    period, layers = lcm(every, len(kinds)), structure(run.count) * len(kinds)
    if min(period, layers) > MOST_DIFFERENT:
        raise UnsupportedError(f"recompute_every makes more than {MOST_DIFFERENT} layers differ; choose a smaller number")
    repeats, rest = divmod(layers, period)

    def stack(first: int, count: int, length: int, x: Tensor) -> Tensor:
        for number in range(first, first + length):
            label = f"layers.{_label(number, count, length)}"
            with t.at(label, "other"), t.unit(label):
                layer = kinds[(number - start) % len(kinds)]
                body = partial(decoder_layer, t, layer, positions)
                passed = (*positions.of(t, layer), *([t.encoded] if t.encoded else []))
                x = body(x) if (number + 1) % every else recomputed(t, body, x, *passed)
                t.show("residual stream", x)
        return x

    x = t.repeat(repeats, partial(stack, start, repeats, period), x) if repeats else x
    return t.repeat(1, partial(stack, start + repeats * period, 1, rest), x) if rest else x


def _label(first: Size, count: Size, step: int) -> str:
    """Return the label of layers first, first + step, …: ``4``, ``4-7``, ``4,6..10``."""
    if count == 1:
        return str(first)
    return f"{first}-{first + count - 1}" if step == 1 else f"{first},{first + step}..{first + (count - 1) * step}"
