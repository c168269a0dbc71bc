"""The masks that layers of transformers share, read from transformers 5.24: masking_utils.py, integrations/sdpa_attention.py."""

from __future__ import annotations

from operator import lt
from typing import Literal

from planner.spec.precision import Dtype
from planner.spec.records import LatentAttention, Model
from planner.trace import cache, pytorch
from planner.trace import primitives as op
from planner.trace.mixers.operators import exp, softplus
from planner.trace.nodes import Saved
from planner.trace.sizes import Size, choose
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

WIDEST_GROUPED_HEAD = 256  # use_gqa_in_sdpa


def for_fused(t: Tape, B: Size, n: Size, window: Size | None) -> Tensor | None:
    """Return the Boolean mask [B, 1, n, n], if the class, an indexer or a prefix requires it, or the sequence is as long as the window.

    Otherwise a flag says that attention is causal (_ignore_causal_mask_sdpa). Classes without fused attention get the mask for products.
    """
    kind = t.modules
    if not kind.fused_attention:
        return for_products(t, B, n, window)
    keys = cache.length(t, n, window)
    if t.training.padding:
        return padded(t, B, n, keys)
    if not t.causal and (window is None or choose(lt, keys, window - 1)):  # _ignore_bidirectional_mask_sdpa
        return None
    explicit = kind.explicit_mask or selects_keys(t.model) or cache.is_compiled(t) or bool(t.prefixes)
    if not explicit and (window is None or choose(lt, keys, window)):
        return None
    (mask,) = t.record("causal mask", [], [t.tensor((1, 1, n, keys), "bool", needs_grad=False)], by=for_fused)
    return op.expand(t, mask, (B, 1, n, keys), 0)


def of_tokens(t: Tape) -> Tensor | None:
    """Return the mask of the tokens [B, n] of padded samples. Raises UnsupportedError if other mixers than attention read it."""
    if not t.training.padding:
        return None
    mixers = [mixer for run in t.model.runs for layer in run.layers for mixer in layer.mixers]
    if any(not isinstance(mixer, LatentAttention) for mixer in mixers):
        raise UnsupportedError("padding of models with other mixers than attention is not modeled yet")
    return t.tensor((t.training.batch_size, t.sequence), "int64", needs_grad=False)


def padded(t: Tape, B: Size, n: Size, keys: Size) -> Tensor:
    """Return the causal mask and that of the tokens, as one Boolean mask [B, 1, n, n]."""
    parts = [t.tensor(shape, "bool", needs_grad=False) for shape in ((1, 1, n, keys), (B, 1, 1, keys))]
    t.record("causal mask", [], parts, by=padded)
    return t.record("and", parts, [t.tensor((B, 1, n, keys), "bool", needs_grad=False)], by=padded)[0]


def selects_keys(model: Model) -> bool:
    """Whether an indexer selects the keys of a layer."""
    mixers = (mixer for run in model.runs for layer in run.layers for mixer in layer.mixers)
    return any(isinstance(mixer, LatentAttention) and mixer.indexer is not None for mixer in mixers)


def for_products(t: Tape, B: Size, n: Size, window: Size | None) -> Tensor | None:
    """Return the causal mask [B, 1, n, n]: added to the scores, in the embedding's dtype, or Boolean or int32 to fill scores by it.

    A class that multiplies scores by its buffer has the slice [1, 1, n, n] of that instead.
    """
    if not t.causal and (window is None or choose(lt, n, window - 1)):
        return None
    if t.modules.multiplies_mask:
        return op.constant(t, (1, 1, n, cache.length(t, n, window)), t.precision.weights)
    dtype = "bool" if t.modules.boolean_mask else "int32" if t.modules.fills_probabilities else t.precision.weights
    return t.record("causal mask", [], [t.tensor((B, 1, n, cache.length(t, n, window)), dtype, needs_grad=False)], by=for_products)[0]


def dynamic(t: Tape, v: Tensor, mask: Tensor, H: Size) -> Tensor:
    """Return Doge's mask [B, H, n, n] of values [B, K, n, h]: exp(A · softplus(dt)) per key, filled by the causal mask.

    dt is a projection of the values. Only sequences longer than ``keep_window_size`` are masked by the largest of these, too.
    """
    B, K, m, h = v.shape
    n = mask.shape[2]
    projection, rate = t.declared_weight("dt_proj", 2), t.declared_weight("A")
    if not projection or not rate:
        raise UnsupportedError("Doge's mask needs tensors self_attn.dt_proj and self_attn.A under extra")
    t.note("the mask of all but the largest keys of each query, in sequences longer than keep_window_size")
    steps = op.linear(t, v.view(B, m, K * h), projection, t.declared_weight("dt_proj_bias"))
    factors = exp(t, op.multiply(t, rate, softplus(t, steps)))
    if mask.dtype == "bool":
        mask = t.record("where", [mask], [t.tensor(mask.shape, t.precision.weights, needs_grad=False)], by=dynamic)[0]
    (hidden,) = t.record("ne", [mask], [t.tensor(mask.shape, "bool", needs_grad=False)], by=dynamic)
    per_query = op.expand(t, factors.view(B, K, 1, m), (B, K, n, m), 0)
    made = t.tensor((B, K, n, m), factors.dtype)
    (made,) = t.record("masked_fill", [per_query, hidden], [made], [Saved(hidden, "causal mask")], by=dynamic)
    return pytorch.expand_kv(t, made, H)


def buffer(t: Tape, owner: Literal["layer", "model"]) -> Dtype | None:
    """Return the dtype of a mask that each layer or the model stores."""
    if t.modules.mask_buffer != owner:
        return None
    return t.precision.weights if t.modules.multiplies_mask else "bool"


def _grouped(width: int, v_width: int) -> bool:
    """Return whether fused attention supports groups for heads of these widths."""
    return width == v_width and width <= WIDEST_GROUPED_HEAD


def heads_for_fused(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return keys and values as fused attention gets them: grouped without a mask, for heads that its kernels support, else repeated."""
    if bias is None and choose(_grouped, k.shape[-1], v.shape[-1]):
        return k, v
    H = q.shape[1]
    return pytorch.expand_kv(t, k, H), pytorch.expand_kv(t, v, H)
