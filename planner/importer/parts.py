"""Common parts of rows: sizes, feed-forwards, positions, windows, experts, latent attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.importer.engine import Reading, Row, Settings, row
from planner.importer.keys import *
from planner.importer.neutral import DERIVED, ROUTES, SCALES
from planner.importer.reader import SpecModel, show

N = same("n_layers")
PATTERN = "sliding_window_pattern _sliding_window_pattern"  # the last of this many layers is full
SLIDING, FULL, LINEAR, CONV = "sliding_attention", "full_attention", "linear_attention", "conv"

# Routing of tokens to experts: the same matrices, other scores.
ROUTING = "n_group topk_group routed_scaling_factor topk_method seq_aux aux_loss_alpha scoring_func moe_router_dtype"
SCALED = row(ignored={SCALES: "attention_multiplier embedding_multiplier logits_scaling residual_multiplier"})


def divided(name: str = "head_dim") -> Source:
    """Return d_model / n_heads, for a missing key."""

    def quotient(c: Reading) -> int:
        whole, rest = divmod(c["d_model"], c["n_heads"])
        if rest or not whole:
            raise c.refusal(f"{c['n_heads']} heads do not divide a width of {c['d_model']}, and `{name}` is missing")
        return int(whole)

    return Source(quotient, text="d_model / n_heads")


def head_dim(name: str = "head_dim", default: int | None = None) -> Source:
    """Return head_dim; null means d_model / n_heads, which is also the default without one of the class."""
    return size(name, divided(name) if default is None else default, null=divided(name))


def rope(share: float = 1.0, name: str = "partial_rotary_factor", kind: str | None = None) -> Source:
    """Return rotary positions; ``share`` is the class's default for the rotated fraction of head_dim."""

    def positions(c: Reading) -> str | SpecModel:
        return rotary(c, c["head_dim"], share, name, kind)

    inside = Source(positions, "rope_scaling rope_parameters", absent=f"its partial_rotary_factor, before {name}")
    return Source(positions, name, (inside,), f"default {share}")


def rope_parameters(c: Reading) -> Any:  # JSON
    """Return the parameters of rotary positions; ``rope_scaling``, their former name, comes first, as in transformers."""
    return c.at("rope_scaling") or c.at("rope_parameters")


def rotary(c: Reading, head_dim: int, share: float, name: str, kind: str | None) -> str | SpecModel:
    """Return the positions of heads. The rotated fraction is inside ``rope_parameters``, possibly by kind of layer, or else a key."""
    parameters = rope_parameters(c)
    if isinstance(parameters, Mapping) and isinstance(parameters.get(kind), Mapping):
        parameters = parameters[kind]
    inside = parameters.get("partial_rotary_factor") if isinstance(parameters, Mapping) else None
    outside = c.value(name)
    given = outside if inside is None else inside
    rotary_dim = int(head_dim * (share if given is None else fraction(c, name, given)))
    rotary_dim += rotary_dim % 2  # the classes compute a cosine for every second channel, including the last
    if not rotary_dim:
        raise c.refusal(f"`{name}: {show(given)}` of a head of {head_dim} leaves nothing to rotate")
    return rotated(head_dim, rotary_dim)


def rotated(head_dim: int, rotary_dim: int) -> str | SpecModel:
    """Return the positions of heads with this many rotated channels."""
    return "rope" if rotary_dim == head_dim else {"type": "rope", "rotary_dim": rotary_dim} if rotary_dim else "none"


def bias(qkv: Any, o: Any = False) -> Source:  # flags
    """Return biases of queries, keys and values, and of the output projection."""
    return apply(lambda qkv, o: qkv if qkv == o else {"q": qkv, "k": qkv, "v": qkv, "o": o}, qkv, o)


def each_size(name: str, default: int | Source) -> Source:
    """Return a positive integer per layer, from a list or one number."""
    once = size(name, default)

    def sizes(c: Reading) -> list[int]:
        value, n = c.value(name), c["n_layers"]
        if not isinstance(value, list):
            return [c.of(once)] * n
        if len(value) != n:
            raise c.refusal(f"`{name}` must be a list with an entry for each of {n} layers")
        return [positive(c, name, entry) for entry in value]

    return code(sizes, name, once)


def half(width: Source) -> Source:
    """Return half of a width that includes both matrices of a gated feed-forward."""
    return apply(lambda both: both // 2, width)


def softcap(name: str, default: float | None = None) -> Source:
    """Return the soft cap of logits or scores; null means none."""
    return number(name, default, null=None)


def window(default: int | None, name: str = "sliding_window") -> Source:
    """Return the sliding window; null means none."""
    return size(name, default, null=None)


def sizes(
    context_length: Any,
    *,
    context: str = "max_position_embeddings",
    d_model: str = "hidden_size",
    n_layers: str = "num_hidden_layers num_layers",
    n_heads: str = "num_attention_heads",
) -> Settings:
    """Return the sizes, by default with the key names of most types; the number is the class's default."""
    return {
        "vocab_size": size("vocab_size"),
        "context_length": size(context, context_length),
        "d_model": size(d_model),
        "n_layers": layers(n_layers),
        "n_heads": size(n_heads),
    }


def tied(default: bool, names: str = "tie_word_embeddings") -> Settings:  # the key's
    """Return whether the LM head is tied; ``default`` is the class's."""
    return {"head.tied": flag(names, default)}


def decoder(
    context_length: int, *parts: Row | Settings, width: int | None = None, own_kv_heads: bool | int = False, tie: bool = False, **more: Any
) -> Row:
    """Return a decoder with Llama's key names; the numbers are the class's defaults, ``width`` that of head_dim.

    ``own_kv_heads``: the class's default number of KV heads, or True if the number is required. ``more``: arguments of ``row``.
    """
    all_heads = same("n_heads")
    kv_heads = all_heads if own_kv_heads is False else REQUIRED if own_kv_heads is True else own_kv_heads
    base = {
        **sizes(context_length),
        "n_kv_heads": size("num_key_value_heads", kv_heads, null=all_heads),
        "head_dim": head_dim(default=width),
        "attention.bias": False,
        "attention.qkv": "separate",
        "norm.type": "rmsnorm",
        "positions": rope(),
        **tied(tie),
    }
    return row(base, *parts, **more)


def feed_forward(kind: Any, activation: Any, biased: Any) -> Settings:  # names or sources, a flag
    """Return a feed-forward of type ``plain`` or ``gated``."""
    return {"feed_forward.type": kind, "feed_forward.activation": activation, "feed_forward.bias": biased}


GATED = {"d_ff": size("intermediate_size"), **feed_forward("gated", activation("hidden_act", "silu"), False)}
BIAS = {"attention.bias": flag("attention_bias")}
MLP_BIAS = {"feed_forward.bias": flag("mlp_bias")}
HEAD_NORM = {"attention.qk_norm": "head_dim"}
LAYERNORM = {"norm.type": "layernorm"}
BOTH_SIDES = {"norm.placement": "before_and_after"}
ONE_NORM = {"block": "parallel_one_norm"}


def plain(default: str, biased: Any, key: str = "hidden_act") -> Settings:  # a flag
    """Return a plain feed-forward whose activation is a key."""
    return feed_forward("plain", activation(key, default), biased)


def wide(default: str, biased: Any) -> Settings:  # a flag
    """Return a plain feed-forward and its width under Llama's names."""
    return {"d_ff": size("intermediate_size"), **plain(default, biased)}


def qk_norm(name: str, kind: str | Source, default: bool = False) -> Settings:  # the key's own
    """Return norms of queries and keys if a flag is set."""
    return {"attention.qk_norm": when(flag(name, default), kind, "none")}


# Layers


def per_layer(rule: Callable[..., Any], *of: Any) -> Source:  # sources or values
    """Return a rule's result for each layer, given its number, the number of layers and the values of sources."""
    return apply(lambda n, *values: [rule(layer, n, *values) for layer in range(n)], N, *of)


def every(period: int | Source, last: Any = FULL, others: Any = SLIDING, *, first: bool = False) -> Source:  # kinds
    """Return kinds of layers, with ``last`` at the end, or with ``first`` at the beginning, of every ``period``."""
    start = 0 if first else 1
    return per_layer(lambda layer, _, length: others if (layer + start) % length else last, period)


def kinds(default: Any = REQUIRED, *others: str) -> Source:  # a source of kinds, or one of them
    """Return ``layer_types``; the default is the class's."""
    return each("layer_types", (FULL, SLIDING, *others), default)


LISTED_KINDS = {"_unused": kinds(None)}  # the class no longer reads ``layer_types``


def by_kind(settings: Mapping[str, Any]) -> Source:
    """Return the settings of each layer by its kind."""
    return apply(lambda kinds, by_kind: [by_kind.get(kind, {}) for kind in kinds], same("_kinds"), dict(settings))


def windowed(which: Source, width: Source, full: Any = None) -> Settings:  # settings of a layer
    """Return windows in sliding layers, and the settings of full layers."""
    return {"_kinds": which, "layers.windows": by_kind({SLIDING: {"attention": {"window": width}}, FULL: full or {}})}


def mixed(which: Source, mixer: str, full: Any = None) -> Settings:
    """Return the mixer of layers without attention, and the settings of full layers."""
    return {"_kinds": which, "layers.mixers": by_kind({LINEAR: {"mixer": mixer}, CONV: {"mixer": mixer}, FULL: full or {}})}


def marked(flags: Source, no: Any, yes: Any = None) -> Source:  # of a layer
    """Return ``yes`` or ``no`` for each layer by its flag."""
    return apply(lambda flags, no, yes: [yes if one else no for one in flags], flags, no, yes or {})


NO_POSITIONS: SpecModel = {"positions": "none"}


def tensor(name: str, shape: list[Any], component: str, **uses: int) -> SpecModel:
    """Return a declared tensor."""
    return {"name": name, "shape": shape, "component": component, **uses}


# Experts


def shared(width: Source, *, gate: bool = False) -> Source:
    """Return shared experts of this width; none for 0."""
    return apply(lambda d_ff: {"d_ff": d_ff} | ({"gate": True} if gate else {}) if d_ff else None, width)


def shared_count(names: str, default: int = 0) -> Source:
    """Return shared experts by their number."""
    return shared(times(count(names, default), same("experts.d_ff")))


def shared_width(default: int, *, gate: bool = False) -> Source:
    """Return shared experts by their width."""
    width = size if gate else count  # with a width of 0, the classes keep the gate
    return shared(width("shared_expert_intermediate_size", default), gate=gate)


def shared_biases(biased: Source) -> Settings:
    """Return the biases of gated shared experts, as declared tensors of sparse layers."""

    def biases(c: Reading) -> list[SpecModel]:
        d_ff, on = (c["experts.shared"] or {}).get("d_ff"), c.of(biased)
        widths = {"gate_proj": d_ff, "up_proj": d_ff, "down_proj": "d_model"} if d_ff and on else {}
        made = [tensor(f"mlp.shared_experts.{name}.bias", [width], "feed_forward") for name, width in widths.items()]
        return [{"extra": made} if made and sparse else {} for sparse in c["_sparse"]]

    return {"layers.shared_biases": code(biases, biased)}


def experts(
    *,
    number: str = "num_experts num_local_experts",
    top_k: str = "num_experts_per_tok",
    d_ff: str = "moe_intermediate_size",
    **settings: Any,  # spec values
) -> Settings:
    """Return routed experts; their number, the experts per token and their width are required."""
    made = {"count": size(number), "top_k": size(top_k), "d_ff": size(d_ff), "normalize": True}
    if "activation" not in settings:
        made["activation"] = activation("hidden_act", "silu")
    return {f"experts.{name}": value for name, value in (made | settings).items()}


def where(condition: Source, settings: Settings) -> Settings:
    """Return settings that apply on a condition."""
    return {setting: when(condition, value) for setting, value in settings.items()}


SOME_DENSE = apply(lambda sparse: not all(sparse), same("_sparse"))
AS_WIDE: Mapping[str, Any] = {"d_ff": "intermediate_size"}
COMPUTE: Mapping[str, Any] = {"scores_dtype": "compute"}
SIGMOID: Mapping[str, Any] = {"scoring": "sigmoid", "correction_bias": "buffer"}


def nonzero(number: Source) -> Source:
    """Return a number, or None for 0."""
    return apply(lambda number: number or None, number)


def normalized(default: bool) -> Source:
    """Return whether the weights of a token's experts are normalized."""
    return flag("norm_topk_prob", default)


def mlp_kinds(default: Source) -> Source:
    """Return whether each layer has experts: by ``mlp_layer_types``, or else by other keys."""
    return each("mlp_layer_types", {"dense": False, "sparse": True}, default)


def after(first: int | Source) -> Source:
    """Return whether each layer has experts: all after the first ones."""
    return per_layer(lambda layer, _, first: layer >= first, first)


def first_dense(default: int) -> Source:
    """Return whether each layer has experts, from ``first_k_dense_replace`` and ``moe_layer_freq``."""
    first, frequency = count("first_k_dense_replace", default), each("moe_layer_freq", {0: False, 1: True})
    every = per_layer(lambda layer, _, first, step: layer >= first and layer % step == 0, first, size("moe_layer_freq", 1))
    return when(code(lambda c: isinstance(c.value("moe_layer_freq"), list), "moe_layer_freq"), frequency, every)


def sparse_steps(dense: Source) -> Source:
    """Return whether each layer has experts, from ``decoder_sparse_step`` and the numbers of dense layers."""
    step = size("decoder_sparse_step", 1)
    return per_layer(lambda layer, _, dense, step: layer not in dense and (layer + 1) % step == 0, dense, step)


def deepseek(
    sparse: int | Source, *, scoring: str = "sigmoid", correction_bias: str | None = "buffer", normalize: bool = True, share: int = 1
) -> Row:
    """Return DeepSeek's experts: ``n_shared_experts`` as one feed-forward, the first layers dense."""
    made = experts(
        number="n_routed_experts num_local_experts num_experts",
        top_k="num_experts_per_tok num_experts_per_token",
        normalize=flag("norm_topk_prob moe_renormalize", normalize),
        scoring=scoring,
        correction_bias=correction_bias,
        shared=shared_count("n_shared_experts num_shared_experts", share),
    )
    return row({**made, "_sparse": mlp_kinds(first_dense(sparse)) if isinstance(sparse, int) else sparse}, ignored={ROUTES: ROUTING})


def prediction(names: str = "num_nextn_predict_layers num_mtp_layers", *, copies: bool = True) -> Settings:
    """Return the layers of multi-token prediction."""
    return {"prediction": apply(lambda number: {"count": number, "copies_embedding": copies} if number else None, count(names))}


# Latent attention


def latent_decoder(
    context_length: int,
    q_rank: int | None,
    *parts: Row | Settings,
    kv_rank: int = 512,
    nope: int = 128,
    rope_dim: int = 64,
    v: Any = 128,
    tie: bool = False,
    **more: Any,  # of ``row``
) -> Row:
    """Return a decoder with latent attention; the numbers are the class's defaults. A null ``q_lora_rank``: uncompressed queries."""
    base = {
        **sizes(context_length),
        "mixer": "latent_attention",
        "latent_attention.q_rank": size("q_lora_rank", q_rank, null=None),
        "latent_attention.kv_rank": size("kv_lora_rank", kv_rank),
        "latent_attention.nope_dim": size("qk_nope_head_dim", nope),
        "latent_attention.rope_dim": size("qk_rope_head_dim", rope_dim),
        "latent_attention.v_dim": size("v_head_dim", v),
        "latent_attention.bias": when(flag("attention_bias"), True),
        "norm.type": "rmsnorm",
        "positions": "rope",
    }
    ignored = row(ignored={DERIVED: "num_key_value_heads qk_head_dim head_dim"})
    return row(base, ignored, GATED, tied(tie), *parts, **more)
