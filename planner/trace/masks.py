"""The masks that layers of transformers share, read from transformers 5.24: masking_utils.py, integrations/sdpa_attention.py."""

from __future__ import annotations

from planner.trace import pytorch
from planner.trace.classes import class_of
from planner.trace.sizes import Size, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

WIDEST_GROUPED_HEAD = 256  # use_gqa_in_sdpa


def for_fused(t: Tape, B: Size, n: Size, window: Size | None) -> Tensor | None:
    """Return the Boolean mask [B, 1, n, n], if the class always creates it or the sequence is at least as long as the window.

    Otherwise a flag says that attention is causal (_ignore_causal_mask_sdpa).
    """
    if not class_of(t.model).explicit_mask and (window is None or structure(n) < structure(window)):
        return None
    return t.record("causal mask", [], [t.tensor((B, 1, n, n), "bool", needs_grad=False)], by=for_fused)[0]


def for_products(t: Tape, B: Size, n: Size, _window: Size | None) -> Tensor | None:
    """Return the additive causal mask [B, 1, n, n] in the embedding's dtype."""
    return t.record("causal mask", [], [t.tensor((B, 1, n, n), t.precision.weights, needs_grad=False)], by=for_products)[0]


def heads_for_fused(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return keys and values as fused attention gets them: grouped without a mask, for heads that its kernels support, else repeated."""
    width = structure(k.shape[-1])
    if bias is None and width == structure(v.shape[-1]) and width <= WIDEST_GROUPED_HEAD:
        return k, v
    H = q.shape[1]
    return pytorch.expand_kv(t, k, H), pytorch.expand_kv(t, v, H)
