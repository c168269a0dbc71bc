"""Virtual tokens that train beside frozen weights: a prompt before each sequence, or keys and values before those of each layer.

Read from peft 0.21.2: peft_model.py, tuners/prompt_tuning and tuners/prefix_tuning; the cache of transformers 5.24, cache_utils.py.
"""

from __future__ import annotations

from dataclasses import replace

from planner.spec.precision import Dtype
from planner.spec.records import Attention, Model, Run
from planner.trace import primitives as op
from planner.trace.sizes import Size, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.trained import ADAPTERS
from planner.trace.unsupported import UnsupportedError


def prepended(t: Tape, x: Tensor, targets: Tensor, n: Size) -> tuple[Tensor, Tensor, Size, list[Tensor]]:
    """Return embedded tokens [B, n, d] and targets [B, n] after a learned prompt, if there is one, their length, and what stays alive.

    Prompt tuning (Lester et al. 2021, arXiv:2104.08691; peft_model.py): the prompt of one sequence is looked up, and repeated.
    """
    kind = t.training.adapters
    if not kind or kind.type != "prompt":
        return x, targets, n, []
    if t.model.head_type != "language" or not t.causal:
        raise UnsupportedError("a learned prompt before an encoder's input is not modeled yet")
    if t.model.positions.type in ("learned", "sinusoidal"):
        raise UnsupportedError(f"a learned prompt with {t.model.positions.type} positions is not modeled yet")
    (B, _, d), v = x.shape, kind.virtual_tokens
    dtype: Dtype = "float32" if kind.dtype == "fp32" else x.dtype
    with t.at("prompt_encoder", ADAPTERS):
        table = t.weight("embedding.weight", (v, d), "prompt: tokens · d", dtype=dtype)
        (ids,) = t.record("arange", [], [t.tensor((v,), "int64", needs_grad=False)], by=prepended)
        one = op.embedding(t, ids, table)
        (repeated,) = t.record("repeat", [one], [t.tensor((B, v, d), dtype)], by=prepended)
        prompts = op.cast(t, repeated, x.dtype)
        (joined,) = t.record("cat", [prompts, x], [t.tensor((B, v + n, d), x.dtype)], views_gradient=True, by=prepended)
        (ignored,) = t.record("full", [], [t.tensor((B, v), "int64", needs_grad=False)], by=prepended)
        (ahead,) = t.record("cat", [ignored, targets], [t.tensor((B, v + n), "int64", needs_grad=False)], by=prepended)
    return joined, ahead, v + n, [prompts, joined, ignored, ahead, *mask_of_all(t, v)]


def mask_of_all(t: Tape, v: Size) -> list[Tensor]:
    """Return the mask of virtual tokens, and that of all tokens [B, v + n] in float32, if samples are padded."""
    if not t.training.padding:
        return []
    shapes = [(t.training.batch_size, length) for length in (v, v + t.sequence)]
    return list(t.record("mask", [], [t.tensor(shape, "float32", needs_grad=False) for shape in shapes], by=mask_of_all))


def prefixes(t: Tape, model: Model) -> tuple[Model, list[Tensor]]:
    """Make the keys and values [B, K, v, h] that precede those of each layer, if a prefix trains.

    Return the model with layers apart, and what stays alive.

    Prefix tuning (Li & Liang 2021, arXiv:2101.00190): one table has those of all layers. A cache copies each layer's part, in the dtype of
    the weights, and joins it with the layer's own.
    """
    kind = t.training.adapters
    if not kind or kind.type != "prefix":
        return model, []
    heads, t.ahead = _heads(t, model), kind.virtual_tokens
    B, v, width = t.training.batch_size, kind.virtual_tokens, 2 * sum(one.n_kv_heads * one.head_dim for one in heads)
    dtype: Dtype = "float32" if kind.dtype == "fp32" else t.precision.weights
    with t.at("prompt_encoder", ADAPTERS):
        table = t.weight("embedding.weight", (v, width), "prefix: tokens · 2 · KV heads · head_dim · layers", dtype=dtype)
        (ids,) = t.record("arange", [], [t.tensor((v,), "int64", needs_grad=False)], by=prefixes)
        wide = op.cast(t, op.embedding(t, op.expand(t, ids, (B, v), 0), table), t.precision.weights)
        for one in heads:
            shape = B, one.n_kv_heads, v, one.head_dim
            parts = op.split(t, wide, shape, shape)
            t.prefixes.append([t.record("cat", [part], [t.tensor(shape, part.dtype)], by=prefixes)[0] for part in parts])
    apart = [Run(1, (layer,)) for run in model.runs for _ in range(structure(run.count)) for layer in run.layers]
    return replace(model, runs=tuple(apart)), mask_of_all(t, t.ahead)


def _heads(t: Tape, model: Model) -> list[Attention]:
    """Return the attention of each layer. Raises UnsupportedError where the cache of a prefix would be another."""
    layers = [layer for run in model.runs for _ in range(structure(run.count)) for layer in run.layers]
    heads = [layer.attention for layer in layers if layer.attention and not layer.mixers]
    plain = [one for one in heads if one.window is None and not one.shared_kv and not one.chunked and one.v_head_dim is None]
    if len(plain) < len(layers) or not t.causal or t.model.head_type != "language":
        raise UnsupportedError("prefix tuning of models with other layers than causal attention to all tokens is not modeled yet")
    return plain
