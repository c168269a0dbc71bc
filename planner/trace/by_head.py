"""Operators on heads, which copy heads that are not adjacent in memory."""

from __future__ import annotations

from planner.trace.primitives import cast_lower_precision, contiguous, keep_alive, matmul
from planner.trace.sizes import Size, exceeds_one, product
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


def needs_copy_to_merge(B: Size, n: Size, heads: Size) -> Size:
    """Return 1 if heads [B, heads, n, h] stored as [B, n, heads, h] cannot be viewed as [B·heads, n, h], else 0."""
    return exceeds_one(B) * exceeds_one(n) * exceeds_one(heads)


def matmul_by_head(t: Tape, a: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
    """Multiply a [B, H, m, k] by b [B, H, k, p] -> [B, H, m, p] over pairs (query, key); copies heads that are not adjacent in memory.

    ``transposed``: b is [B, H, p, k].
    """
    b = cast_lower_precision(t, b)
    a = cast_lower_precision(t, a)
    left, right = contiguous(t, a, _apart(a)), contiguous(t, b, _apart(b))
    made = matmul(t, left, right.view(*b.shape[:-2], b.shape[-1], b.shape[-2]) if transposed else right, pairs=True)
    keep_alive(t, a, b)
    made.by_head = True
    return made


def merge_heads(t: Tape, x: Tensor) -> Tensor:
    """Return x [B, H, n, h] as [B, n, H·h]: a view if memory order allows, else a copy."""
    B, heads, n, h = x.shape
    shared = _shared(x)
    moved = None
    if x.by_head or shared is not None:
        turned = exceeds_one(n) * exceeds_one(heads) if x.by_head else 0
        moved = turned if shared is None else shared * exceeds_one(B * n * heads) + (1 - shared) * turned
    return contiguous(t, x, moved).view(B, n, heads * h)


def _apart(x: Tensor) -> Size | None:
    """Return 1 if x [B, heads, n, h] cannot be viewed as [B·heads, n, h], else 0. None: it always can."""
    B, heads, n, _ = x.shape
    shared = _shared(x)
    if shared is None:
        return None if x.by_head else needs_copy_to_merge(B, n, heads)
    own = 0 if x.by_head else needs_copy_to_merge(B, n, heads)
    return shared * exceeds_one(B) * exceeds_one(heads) + (1 - shared) * own


def _shared(x: Tensor) -> Size | None:
    """Return 1 if x's rows are slices of wider rows or one expanded row, else 0. None: they never are."""
    others = [times for storage, times in x.parts if product(storage.shape) != product(x.shape)]
    return sum(others) if others and not x.interleaved else None
