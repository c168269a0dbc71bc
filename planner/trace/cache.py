"""Caches of keys and values, one pair per layer, read from transformers 5.24: cache_utils.py.

A dynamic cache concatenates: a layer's new tensors replace its old ones, so both exist for a moment. A layer with a window keeps the
storage of its whole prompt, of which it reads a view, and from the first decoded token on that of one window. A static cache has room for
all tokens, or one window, from the start.
"""

from __future__ import annotations

from operator import le, lt

from planner.spec.precision import BYTES
from planner.trace import primitives as op
from planner.trace.inference import Inference
from planner.trace.sizes import Size, choose, maximum, minimum
from planner.trace.tape import Tape
from planner.trace.tensor import CacheKind, Tensor


def length(t: Tape, n: Size, window: Size | None) -> Size:
    """Return how many keys the scores of ``n`` new tokens have in a layer with this window."""
    run = t.inference
    if run is None:
        return t.ahead + n
    if run.room is not None:
        return _static_length(run.past, n, run.room if window is None else minimum(run.room, window), windowed=window is not None)
    return run.past + n if window is None else minimum(run.past, window - 1) + n


def _static_length(past: Size, n: Size, room: Size, *, windowed: bool) -> Size:
    """Return the keys of a static layer: its room, or all that there are where a window's layer becomes full."""
    return maximum(room, past + n) if windowed and past == 0 else room


def cached(t: Tape, k: Tensor, v: Tensor, window: Size | None = None, *, latent: bool = False) -> tuple[Tensor, Tensor]:
    """Return keys and values [B, K, n, h] as the cache returns them: with those of earlier tokens before them."""
    run = t.inference
    if run is None and t.prefixes:
        before_k, before_v = t.prefixes.pop(0)
        return _after(t, k, before_k), _after(t, v, before_v)
    if run is None:
        return (_joined(t, k, 0), _joined(t, v, 0)) if t.training.use_cache else (k, v)
    kind: CacheKind = "latent" if latent else "full attention" if window is None else "window"
    if run.room is not None:
        return _stored(t, run, run.room, (k, v), window, kind)
    if window is not None and not run.decodes:
        t.record("window", [], [_lasting(t, kind)], by=cached)
    kept, old = run.past, run.past
    if window is not None and run.decodes:
        kept, old = minimum(run.past, window - 1), run.past if run.past == run.prompt else minimum(run.past, window)
    made = []
    replaced = [t.tensor((*x.shape[:2], old, x.shape[-1]), x.dtype) for x in (k, v)] if run.decodes else []
    for x in replaced:
        _kept(x, kind)
    for number, x in enumerate((k, v)):
        made.append(_joined(t, x, kept))
        _kept(made[-1], kind, x.shape[1] * x.shape[3])
        if replaced and window is None:
            t.record("free", [replaced[number]], [], stored_in="cache", by=cached)
    if replaced and window is not None:
        t.record("free", replaced, [], stored_in="cache", by=cached)
    op.keep_alive(t, k, v)
    return made[0], made[1]


def cached_alone(t: Tape, x: Tensor) -> Tensor:
    """Return keys [B, n, 1, h] of an indexer, which are cached beside a layer's own, with those of earlier tokens before them."""
    run, (B, n, heads, h) = t.inference, x.shape
    if run is None:
        return x
    if run.room is not None:
        kept = _kept(t.tensor((B, run.room, heads, h), x.dtype), "latent", heads * h)
        if not run.decodes:
            kept.storage.until_forward_ends = True
            t.record("zeros", [], [kept, _lasting(t, "latent")], by=cached_alone)
        return kept
    made = _kept(t.tensor((B, run.past + n, heads, h), x.dtype), "latent", heads * h)
    made.storage.until_forward_ends = True
    t.record("cat", [x], [made], by=cached_alone)
    if run.decodes:
        replaced = _kept(t.tensor((B, run.past, heads, h), x.dtype), "latent")
        t.record("free", [replaced], [], stored_in="cache", by=cached_alone)
    return made


def _after(t: Tape, x: Tensor, prefix: Tensor) -> Tensor:
    """Return a learned prefix [B, K, v, h] and x [B, K, n, h] in a new tensor."""
    B, K, n, h = x.shape
    made = t.tensor((B, K, t.ahead + n, h), op.promote(prefix, x))
    made.by_head = made.storage.until_forward_ends = True
    return t.record("cat", [prefix, x], [made], passes_gradient=True, views_gradient=True, by=cached)[0]


def _joined(t: Tape, x: Tensor, kept: Size) -> Tensor:
    """Return ``kept`` cached tokens and those of x [B, K, n, h] in a new tensor."""
    B, K, n, h = x.shape
    made = t.tensor((B, K, kept + n, h), x.dtype)
    made.by_head = made.storage.until_forward_ends = True
    return t.record("cat", [x], [made], passes_gradient=True, by=cached)[0]


def _stored(t: Tape, run: Inference, room: Size, kv: tuple[Tensor, Tensor], window: Size | None, kind: CacheKind) -> tuple[Tensor, Tensor]:
    """Copy keys and values into tensors with room for all tokens, or for a window, and return these; a longer prompt is returned itself."""
    k, v = kv
    B, K, n, h = k.shape
    room = room if window is None else minimum(room, window)
    kept = [_kept(t.tensor((B, K, room, width), k.dtype), kind, K * width) for width in (h, v.shape[-1])]
    for one in kept:
        one.by_head = True
        one.storage.until_forward_ends = not run.decodes
    if not run.decodes:
        t.record("zeros", [], [*kept, _lasting(t, kind)], by=_stored)
    elif window is not None and choose(le, room, run.past):  # full: copies that are shifted by one token
        shifted = [t.record("roll", [one], [op.like(t, one)], by=_stored)[0] for one in kept]
        op.keep_alive(t, k, v, *shifted)
        return kept[0], kept[1]
    places = t.tensor((n,), "int64", needs_grad=False)
    t.record("arange", [], [places], by=_stored)
    t.record("index_copy_", [k, v, places], [], by=_stored)
    return (k, v) if not run.decodes and window is not None and choose(lt, room, n) else (kept[0], kept[1])


def is_empty(t: Tape) -> bool:
    """Whether a static cache has no tokens yet, only room, before a prompt of several tokens."""
    return t.inference is not None and t.inference.room is not None and not is_compiled(t)


def is_compiled(t: Tape) -> bool:
    """Whether a pass over one token could be compiled, for which it always has a mask: that of a static cache."""
    return t.inference is not None and t.inference.room is not None and t.training.sequence_length == 1


def of_prompt(t: Tape, x: Tensor, n: Size) -> Tensor:
    """Return the first n tokens of keys or values (a view), which fused attention reads without a mask."""
    (made,) = op.split(t, x, (*x.shape[:2], n, x.shape[-1]))
    made.by_head = x.by_head
    return made


def _lasting(t: Tape, kind: CacheKind) -> Tensor:
    """Return an integer that the cache keeps."""
    made = t.tensor((), "int64", needs_grad=False)
    made.storage.until_forward_ends = True
    return _kept(made, kind)


def _kept(x: Tensor, kind: CacheKind, width: Size = 0) -> Tensor:
    """Return a tensor of the cache of a kind of layer, with ``width`` elements for each token of a sequence."""
    x.storage.cache_kind, x.storage.token_bytes = kind, width * BYTES[x.dtype]
    return x
