"""The parts that families share: sizes, heads, positions, feed-forwards, experts, latent attention, and layers that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importer.reader import Reader, SpecModel, show

SLIDING, FULL, LINEAR, CONV = "sliding_attention", "full_attention", "linear_attention", "conv"
_LONGEST_GROUP = 16  # layers that repeat as one group


def sizes(c: Reader, *, context: int) -> SpecModel:
    """Read the sizes under the names of most families; ``context`` is the class's max_position_embeddings."""
    return {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("max_position_embeddings", default=context),
        "d_model": c.size("hidden_size"),
        "n_layers": c.layers("num_hidden_layers", "num_layers"),
        "n_heads": c.size("num_attention_heads"),
    }


def gpt_sizes(c: Reader, *, context: int) -> SpecModel:
    """Read the sizes under OpenAI's names; the feed-forward is 4 times as wide where ``n_inner`` is absent."""
    read: SpecModel = {
        "vocab_size": c.size("vocab_size"),
        "context_length": c.size("n_positions", "max_position_embeddings", default=context),
        "d_model": c.size("n_embd", "hidden_size"),
        "n_layers": c.layers("n_layer", "num_hidden_layers"),
        "n_heads": c.size("n_head", "num_attention_heads"),
    }
    c.ignore("n_ctx", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn")
    return {**read, "d_ff": c.size("n_inner", default=4 * read["d_model"])}


def head_dim_of(c: Reader, model: SpecModel, *, default: int | None = None) -> int:
    """Return head_dim: as given; the class's own number where the key is absent; d_model / n_heads where it is null or has no number."""
    if default is not None and "head_dim" not in c.config:
        return default
    quotient, rest = divmod(model["d_model"], model["n_heads"])
    if c.value("head_dim") is None and (rest or not quotient):
        raise c.refusal(f"{model['n_heads']} heads do not divide a width of {model['d_model']}, and `head_dim` is missing")
    return c.size("head_dim", default=quotient)


def rope(
    c: Reader, head_dim: int, *, fraction: float = 1.0, name: str = "partial_rotary_factor", kind: str | None = None
) -> str | SpecModel:
    """Return rotary positions; the fraction of head_dim that is rotated stands under ``name`` or inside ``rope_parameters``.

    ``kind`` is the kind of layer, for families whose ``rope_parameters`` differ from kind to kind.
    """
    outside, parameters = c.value(name), c.value("rope_parameters")
    if kind and isinstance(parameters, Mapping) and isinstance(parameters.get(kind), Mapping):
        parameters = parameters[kind]
    inside = parameters.get("partial_rotary_factor") if isinstance(parameters, Mapping) else None
    given = next((value for value in ((inside, outside) if kind else (outside, inside)) if value is not None), None)
    rotary_dim = int(head_dim * (fraction if given is None else c.fraction(name, given)))
    rotary_dim += rotary_dim % 2  # the classes make a cosine for every second channel, the last one included
    if not rotary_dim:
        raise c.refusal(f"`{name}: {show(given)}` of a head of {head_dim} leaves nothing to rotate")
    return "rope" if rotary_dim == head_dim else {"type": "rope", "rotary_dim": rotary_dim}


def head_of(c: Reader, *, tied: bool, bias: bool = False, softcap: float | None = None) -> SpecModel:
    """Return the head; ``tied`` is what the class takes where ``tie_word_embeddings`` is absent."""
    head: SpecModel = {"tied": c.flag("tie_word_embeddings", default=tied)}
    if bias:
        head["bias"] = True
    if softcap:
        head["logit_softcap"] = softcap
    return head


def softcap_of(c: Reader, name: str, default: float | None = None) -> float | None:
    """Return the cap on logits or scores; null where the class has a default means none."""
    if name in c.config and c.value(name) is None:
        return None
    return c.number(name, default or 0.0) or None


def norm_of(kind: str, **settings: str | bool) -> SpecModel:
    """Return a norm."""
    return {"type": kind, **settings}


def gated(c: Reader, *, activation: str | None = None, bias: bool = False, **settings: Any) -> SpecModel:  # noqa: ANN401  # spec values
    """Return a gated feed-forward with ``hidden_act``."""
    return {"type": "gated", "activation": activation or c.activation("hidden_act", default="silu"), "bias": bias, **settings}


def plain(c: Reader, *, default: str, bias: bool, key: str = "hidden_act") -> SpecModel:
    """Return a plain feed-forward."""
    return {"type": "plain", "activation": c.activation(key, default=default), "bias": bias}


def qkv_bias(*, qkv: bool, o: bool = False) -> bool | SpecModel:
    """Return biases that the last projection has or has not for itself."""
    return qkv if qkv == o else {"q": qkv, "k": qkv, "v": qkv, "o": o}


def llama_like(
    c: Reader,
    *,
    context: int,
    tied: bool = False,
    head_dim: int | None = None,
    kv_heads_required: bool = False,
    attention: SpecModel | None = None,
    feed_forward: SpecModel | None = None,
    norm: SpecModel | None = None,
    block: str = "sequential",
    rotary_fraction: float = 1.0,
    head_bias: bool = False,
    softcap: float | None = None,
    d_ff: bool = True,
) -> SpecModel:
    """Return a decoder with Llama's key names.

    ``kv_heads_required``: the class's own number of key heads fits one model only. ``d_ff``: false where no layer is dense.
    """
    model = sizes(c, context=context)
    known = "num_key_value_heads" in c.config or not kv_heads_required
    n_kv_heads = c.size("num_key_value_heads", default=model["n_heads"] if known else None)
    width = head_dim_of(c, model, default=head_dim)
    return {
        **model,
        "n_kv_heads": n_kv_heads,
        "head_dim": width,
        "attention": {"bias": False, "qkv": "separate"} | (attention or {}),
        **({"d_ff": c.size("intermediate_size"), "feed_forward": feed_forward or gated(c)} if d_ff else {}),
        "norm": norm or norm_of("rmsnorm"),
        "block": block,
        "positions": rope(c, width, fraction=rotary_fraction),
        "head": head_of(c, tied=tied, bias=head_bias, softcap=softcap),
    }


def experts_of(
    c: Reader,
    *,
    count: tuple[str, ...] = ("num_experts", "num_local_experts"),
    top_k: tuple[str, ...] = ("num_experts_per_tok",),
    d_ff: tuple[str, ...] = ("moe_intermediate_size",),
    normalize: bool = True,
    **settings: Any,  # noqa: ANN401  # spec values
) -> SpecModel:
    """Return routed experts; how many, how many a token takes and how wide they are must be there."""
    made: SpecModel = {"count": c.size(*count), "top_k": c.size(*top_k), "d_ff": c.size(*d_ff), "normalize": normalize}
    if "activation" not in settings and (activation := c.activation("hidden_act", default="silu")) != "silu":
        made["activation"] = activation
    if made["top_k"] > made["count"]:
        raise c.refusal(f"`{top_k[0]}: {made['top_k']}` is more than the {made['count']} experts")
    return made | {key: value for key, value in settings.items() if value is not None}


def shared_of(width: int, *, gate: bool = False) -> SpecModel | None:
    """Return the feed-forward that every token takes beside its experts; None for a width of 0."""
    if not width:
        return None
    return {"d_ff": width, "gate": True} if gate else {"d_ff": width}


def latent_of(c: Reader, *, q_rank: int | None, kv_rank: int, nope: int, rope_dim: int, v: int, bias: bool = False) -> SpecModel:
    """Return latent attention; the numbers are the class's own. A null ``q_lora_rank`` means that queries are projected directly."""
    rank = None if "q_lora_rank" in c.config and c.value("q_lora_rank") is None else c.value("q_lora_rank") or q_rank
    c.ignore("num_key_value_heads", "qk_head_dim", "head_dim", "rope_interleave")
    made: SpecModel = {} if rank is None else {"q_rank": c.positive("q_lora_rank", rank)}
    return {
        **made,
        "kv_rank": c.size("kv_lora_rank", default=kv_rank),
        "nope_dim": c.size("qk_nope_head_dim", default=nope),
        "rope_dim": c.size("qk_rope_head_dim", default=rope_dim),
        "v_dim": c.size("v_head_dim", default=v),
        **({"bias": True} if bias else {}),
    }


def merged(*parts: SpecModel) -> SpecModel:
    """Return mappings laid on top of one another, key by key."""
    whole: SpecModel = {}
    for part in parts:
        for key, value in part.items():
            below = whole.get(key)
            whole[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return whole


def with_layers(model: SpecModel, layers: list[SpecModel]) -> SpecModel:
    """Return the model with what each of its layers says for itself, but for windows that hide nothing."""
    layers = [_without_idle_window(layer, model["context_length"]) for layer in layers]
    if not any(layers):
        return model
    if any(layer != layers[0] for layer in layers):
        return {**model, "layers": runs(layers)}
    common = {key: value for key, value in layers[0].items() if key != "extra"}  # beside the sizes, `extra` is the whole model's
    own = {"layers": [{"count": len(layers), "extra": layers[0]["extra"]}]} if "extra" in layers[0] else {}
    return merged(model, common, own)


def _without_idle_window(layer: SpecModel, context: int) -> SpecModel:
    attention = layer.get("attention", {})
    if attention.get("window", 0) < context:
        return layer
    rest = {key: value for key, value in attention.items() if key not in {"window", "chunked"}}
    return {key: value for key, value in layer.items() if key != "attention"} | ({"attention": rest} if rest else {})


def by_layer(*kinds: list[SpecModel]) -> list[SpecModel]:
    """Return one mapping for each layer out of several lists of them."""
    return [merged(*parts) for parts in zip(*kinds, strict=True)]


def runs(layers: list[SpecModel]) -> list[SpecModel]:
    """Return a short ``layers`` list: repeated layers and repeated groups of layers, first to last."""
    made: list[SpecModel] = []
    start = 0
    while start < len(layers):
        groups = [(period, _repeats(layers, start, period)) for period in range(1, _LONGEST_GROUP + 1)]
        period, count = max(groups, key=_gain)
        made.append({"count": count, **layers[start]} if period == 1 else {"count": count, **_group(layers[start : start + period])})
        start += period * count
    return made


def _group(layers: list[SpecModel]) -> SpecModel:
    """Return a group of layers; what all of them say is said once."""
    common = {key: value for key, value in layers[0].items() if all(key in layer and layer[key] == value for layer in layers)}
    return {**common, "layers": [{key: value for key, value in layer.items() if key not in common} for layer in layers]}


def _gain(group: tuple[int, int]) -> tuple[int, int]:
    """Rank a group by how many layers it covers beyond those that it spells out; short groups first."""
    period, count = group
    if period == 1:
        return count - 1, -1
    return (period * count - period - 1 if count > 1 else -1), -period


def _repeats(layers: list[SpecModel], start: int, period: int) -> int:
    """Return how often the ``period`` layers from ``start`` on follow one another."""
    end = start + period
    while end < len(layers) and layers[end] == layers[end - period]:
        end += 1
    return max((end - start) // period, 1)


def window_of(c: Reader, default: int | None, name: str = "sliding_window") -> int | None:
    """Return the window in keys; ``default`` is the class's own where the key is absent, and null means none."""
    if name in c.config and c.value(name) is None:
        return None
    return c.size(name, default=default) if default or name in c.config else None


def windows(kinds: list[str], window: int | None, *, full: SpecModel | None = None) -> list[SpecModel]:
    """Return the window of each sliding layer, and ``full`` for the others."""
    sliding: SpecModel = {"attention": {"window": window}} if window else {}
    return [sliding if kind == SLIDING else full or {} for kind in kinds]


def dense_or_experts(sparse: list[bool], d_ff: int | None = None) -> list[SpecModel]:
    """Return what a layer without experts says: ``none``, and the width of its feed-forward where that differs from the model's."""
    dense: SpecModel = {"experts": "none"} | ({} if d_ff is None else {"d_ff": d_ff})
    return [{} if one else dense for one in sparse]
