"""Checks across settings of the parts of a layer: mixers, attention, feed-forward, experts and extra tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

from planner.spec.defaults import has_feed_forward, head_dim, n_kv_heads
from planner.spec.extra import factors
from planner.spec.key import keys, needed
from planner.spec.language import inlined, properties
from planner.spec.mixers import RECORDS, names
from planner.spec.problems import Problem, quote
from planner.spec.records import Cluster, Experts
from planner.spec.resolve import sizes
from planner.spec.settings import Document, Settings, Unresolved
from planner.spec.suggest import key_hint, keys_meant

if TYPE_CHECKING:
    from planner.spec.nodes import Mark, Node

Problems = Iterator[Problem]


def _needed(kind: type[Any], name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield name, needed(kind)
    for field, key in keys(kind):
        if key.form == "none":
            yield from _needed(key.kind, f"{name}.{field.name}") if key.kind else [(f"{name}.{field.name}", needed(kind, field.name))]


# Keys without a default, by the group that they are in.
NEEDED = dict(chain.from_iterable(_needed(kind, name) for name, kind in {**RECORDS, "experts": Experts}.items()))


def attends(settings: Settings) -> bool:
    """Return whether a layer has the attention that n_heads, n_kv_heads and head_dim describe."""
    return "attention" in names(settings)


def n_heads(document: Document) -> Problems:
    """Layers with attention have heads. Where neither mixer nor layers is written, the schema requires them."""
    model = document.model
    if not (model.written("mixer") or model.written("layers")):
        return
    for settings in _layers(document):
        if {"attention", "latent_attention"}.intersection(names(settings)) and settings.written("n_heads") is None:
            yield from _missing(_key_mark(document.root, "model"), "model", settings.node, ("n_heads",))


def price(document: Document) -> Problems:
    """Prices have a currency, a source and a date."""
    cluster = document.cluster
    if cluster is None or not (node := cluster.written("price")) or not cluster.on("price"):
        return
    yield from _missing(_key_mark(cluster.node, "price"), "cluster.price", node, needed(Cluster, "price"))


def unused_mixers(document: Document) -> Problems:
    """Every mixer with settings is the mixer of some layer."""
    layers = [(settings, names(settings)) for settings in _layers(document)]
    for group in RECORDS:
        used = {mark for settings, mixed in layers if group in mixed for mark in _keys(settings, group)}
        for settings, mixed in layers:
            if group not in mixed and not used.issuperset(_keys(settings, group)):
                hint = f"write mixer: {group}, or remove it; write {group}: none where it comes from elsewhere"
                yield _key_mark(settings.node, group).problem("mixer", f"{group} is set, but no such layer has that mixer", hint)


def shared_kv(document: Document) -> Problems:
    """Keys and values can be shared only with an earlier layer, which has as many of the same width."""
    earlier = set[tuple[int, int]]()
    for settings in filter(attends, _layers(document)):
        with suppress(Unresolved):
            heads = n_kv_heads(settings), head_dim(settings)
            if not settings.get("attention.shared_kv"):
                earlier.add(heads)
            elif heads not in earlier:
                none = "the first layer with attention has no earlier layer whose keys and values it could share"
                other = f"no earlier layer has keys and values to share with n_kv_heads {heads[0]} and head_dim {heads[1]}"
                message = other if earlier else none
                yield settings.problem(
                    "attention.shared_kv", "shared-kv", message, "set shared_kv in the run of the layers that share them"
                )
                return


def needed_keys(settings: Settings) -> Problems:
    """Every group that is used has the keys that have no usual value."""
    mixed = names(settings)
    for mixer in mixed:
        if mixer == "attention":
            continue
        if NEEDED[mixer] and not settings.on(mixer):
            hint = f"write {mixer}: with {', '.join(NEEDED[mixer])}"
            yield settings.problem("mixer", "missing-key", f"mixer {mixer} requires its settings", hint)
    for group, lacking in NEEDED.items():
        outer, _, key = group.rpartition(".")
        if (outer or group) not in (*mixed, "experts") or (outer and not settings.on(outer)) or not settings.on(group):
            continue
        node = settings.written(group)
        above = settings.written(outer) if outer else settings.node
        if node and above:
            yield from _missing(_key_mark(above, key), group, node, lacking)


def mixer_list(settings: Settings) -> Problems:
    """Mixers side by side are different ones, and have one kind of keys and values."""
    mixed = names(settings)
    if len(set(mixed)) < len(mixed):
        yield settings.problem("mixer", "mixer", "duplicate mixer", "list each mixer once")
    if {"attention", "latent_attention"}.issubset(mixed):
        yield settings.problem("mixer", "mixer", "attention and latent_attention cannot be combined in one layer", "remove one of them")


def selected_keys(settings: Settings) -> Problems:
    """Keys are chosen by the layer's own indexer, or by an earlier layer's."""
    key = "latent_attention.selected_keys"
    if settings.get_or_none(key) is not None and settings.on("latent_attention.indexer"):
        yield settings.problem(key, "indexer", "selected_keys belongs to layers without an indexer of their own", "remove it")


def latent_positions(settings: Settings) -> Problems:
    """Latent attention rotates rope_dim channels of each head, in pairs, and knows no other positions in the scores."""
    if "latent_attention" not in names(settings):
        return
    type_ = settings.get("positions.type")
    if type_ == "alibi":
        yield settings.problem("positions", "positions", "latent attention does not support alibi", "write positions: rope, or none")
    if type_ != "rope":
        return
    rotated = settings.get("latent_attention.rope_dim")
    if rotated % 2:
        message = f"rope rotates pairs of channels, and rope_dim {rotated} is odd"
        yield settings.problem("latent_attention.rope_dim", "rotary-dim", message, "make it even")
    if settings.written("positions.rotary_dim") and settings.get("positions.rotary_dim") != rotated:
        message = f"latent attention rotates its rope_dim {rotated}, not rotary_dim {settings.get('positions.rotary_dim')}"
        yield settings.problem("positions.rotary_dim", "rotary-dim", message, "remove rotary_dim")


def window(settings: Settings) -> Problems:
    """No window is longer than the context."""
    seen, context = settings.get_or_none("attention.window"), settings.get("context_length")
    if seen is not None and seen > context:
        message = f"window {seen} exceeds context_length {context} and has no effect"
        yield settings.problem("attention.window", "window", message, "remove it, or write none")
    if seen is None and settings.get("attention.chunked"):
        yield settings.problem(
            "attention.chunked", "window", "attention.chunked requires attention.window", "write attention.window, or remove chunked"
        )


def reused_keys(settings: Settings) -> Problems:
    """Keys and values that are not projected are in no matrix and have no width of their own."""
    for key, what in (("shared_kv", "keys and values are an earlier layer's"), ("keys_as_values", "the values are the keys")):
        if settings.get(f"attention.{key}") and settings.get("attention.qkv") != "separate":
            message = f"{key}: {what}, so that q, k and v cannot be one matrix"
            yield settings.problem(f"attention.{key}", "reused-keys", message, "write attention.qkv: separate")
    if not settings.get("attention.keys_as_values"):
        return
    if settings.get("attention.shared_kv"):
        message = "keys_as_values and shared_kv: an earlier layer's values serve already"
        yield settings.problem("attention.keys_as_values", "reused-keys", message, "write one of them")
    if settings.written("attention.v_head_dim") and settings.get("attention.v_head_dim") != head_dim(settings):
        message = f"the values are the keys, which are {head_dim(settings)} wide, not {settings.get('attention.v_head_dim')}"
        yield settings.problem("attention.v_head_dim", "reused-keys", message, "remove v_head_dim")


def differential_heads(settings: Settings) -> Problems:
    """Differential attention attends with each half of the value heads."""
    if settings.get("attention.differential") and (heads := n_kv_heads(settings)) % 2:
        message = f"differential attention pairs key and value heads, and n_kv_heads {heads} is odd"
        yield settings.problem("attention.differential", "differential", message, "make n_kv_heads even")


def channel_mixing(settings: Settings) -> Problems:
    """RWKV's channel mixing leaves no choice of activation and biases."""
    if settings.get("feed_forward.type") != "rwkv":
        return
    if settings.written("feed_forward.activation") and settings.get("feed_forward.activation") != "relu_squared":
        message = f"the channel mixing of rwkv has relu_squared, not {settings.get('feed_forward.activation')}"
        yield settings.problem("feed_forward.activation", "rwkv", message, "remove activation")
    for part in ("up", "gate", "down"):
        if settings.written(f"feed_forward.bias.{part}") and settings.get(f"feed_forward.bias.{part}"):
            yield settings.problem(f"feed_forward.bias.{part}", "rwkv", "the channel mixing of rwkv has no biases", "write bias: false")
    if settings.get("feed_forward.hidden_norm"):
        yield settings.problem("feed_forward.hidden_norm", "rwkv", "the channel mixing of rwkv has no hidden norm", "remove it")


def chosen_experts(settings: Settings) -> Problems:
    """No token takes more experts than there are."""
    if not settings.on("experts"):
        return
    chosen, there = settings.get("experts.top_k"), settings.get("experts.count") + settings.get("experts.empty")
    if chosen > there:
        message = f"top_k {chosen} exceeds the number of experts ({there})"
        yield settings.problem("experts.top_k", "top-k", message, f"write at most {there}")


def experts_beside(settings: Settings) -> Problems:
    """beside_feed_forward requires a feed-forward."""
    if settings.on("experts") and settings.get("experts.beside_feed_forward") and settings.get("feed_forward.type") == "none":
        message = "beside_feed_forward requires a feed-forward"
        yield settings.problem("experts.beside_feed_forward", "experts", message, "remove it, or give feed_forward another type")


def something_in_it(settings: Settings) -> Problems:
    """Every layer has a mixer or a feed-forward, and both where they are parallel."""
    mixes, widens = bool(names(settings)), has_feed_forward(settings) or settings.on("experts")
    if not mixes and not widens and not settings.written("extra"):
        key = "mixer" if settings.written("mixer") else "feed_forward"
        yield settings.problem(key, "empty-layer", "the layer has neither a mixer nor a feed-forward", "add one of them")
    elif settings.get("block") != "sequential" and not (mixes and widens):
        missing = "feed-forward" if mixes else "mixer"
        message = f"block: {settings.get('block')} requires both a mixer and a feed-forward, and the {missing} is missing"
        yield settings.problem("block", "parallel-block", message, "write block: sequential")


def embedding_dim(document: Document) -> Problems:
    """No factorised embedding is as wide as the residual stream."""
    model = document.model
    if model.written("embedding_dim") and model.get("embedding_dim") == model.get("d_model"):
        message = "embedding_dim is d_model, which needs no projections"
        yield model.problem("embedding_dim", "embedding-dim", message, "remove it; a square projection can be declared under extra")


def extra_tensors(document: Document) -> Problems:
    """Extra tensors have names of their own, and shapes that are products of sizes that the spec has."""
    for settings in (document.model, *_layers(document)):
        written = settings.written("extra")
        seen: set[str] = set()
        for node in written.elements() if written else ():
            name, shape = node.items().get("name"), node.items().get("shape")
            if name and isinstance(name.value, str):
                if not _NAME.fullmatch(name.value):
                    yield name.mark.problem("extra-name", f"invalid tensor name {quote(name.value)}", "use letters, digits, _ and .")
                elif name.value in seen:
                    yield name.mark.problem("extra-name", f"duplicate tensor {quote(name.value)}", "rename one of them")
                seen.add(name.value)
            for each in shape.elements() if shape else ():
                yield from _size(document, settings, each)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")


def _size(document: Document, settings: Settings, node: Node) -> Problems:
    """Check one size of a shape."""
    if not isinstance(node.value, str):
        return
    known = sizes(document, settings)
    parts = factors(node.value)
    with suppress(Unresolved, KeyError):
        if (product := prod(Decimal(int(part) if part.isdecimal() else known[part]()) for part in parts)) >= 2**53:
            yield node.mark.problem("shape", f"{quote(node.value)} is {product:.1e}, and the largest size 2^53 - 1", "correct the product")
    if not parts:
        message = f"{quote(node.value)} is neither a size nor a product of sizes"
        yield node.mark.problem("shape", message, "write for example d_model, or 2*d_model")
    for part in parts:
        if part.isdecimal():
            if not int(part):
                yield node.mark.problem("shape", "a size must be at least 1, not 0", "remove the tensor if it is empty")
        elif part not in known:
            yield node.mark.problem("shape", f"unknown size {quote(part)}", _size_hint(part, known))
        else:
            try:
                known[part]()
            except Unresolved:
                if all(settings.written(key) is None or settings.get(key) for key in ("d_model", "n_heads", part) if key in _WRITTEN):
                    yield node.mark.problem("shape", f"the size {part} is not given here", f"write {part}, or the number")


_WRITTEN = ("d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff")


def _size_hint(name: str, known: Iterable[str]) -> str:
    if name in ("vocab_size", "v"):
        return "did you mean 'V'?"
    return key_hint(name, known)


def _layers(document: Document) -> list[Settings]:
    return [settings for group in document.groups for settings in group.layers]


def _keys(settings: Settings, group: str) -> list[Mark]:
    """Return the locations of the keys of a group."""
    node = settings.written(group)
    return list(node.keys.values()) if node else []


def _key_mark(node: Node, key: str) -> Mark:
    return node.keys.get(key, node.mark)


def _missing(mark: Mark, group: str, node: Node, needed: tuple[str, ...]) -> Problems:
    """Yield a problem for each needed key that is neither there nor misspelt."""
    allowed = _allowed(group)
    there = node.items().keys() | keys_meant(node.items(), allowed)
    for key in needed:
        if key not in there:
            yield mark.problem(
                "missing-key", f"missing required key '{key}' in {group}", f"for example {key}: {allowed[key]['examples'][0]}"
            )


def _allowed(group: str) -> dict[str, Any]:
    path = group.split(".")
    path = path if path[0] in ("model", "cluster") else ["model", *path]
    part = inlined()
    for step in path:
        part = properties(part)[step]
    return properties(part)


DOCUMENT = (n_heads, price, unused_mixers, shared_kv, embedding_dim, extra_tensors)
LAYER = (needed_keys, mixer_list, latent_positions, selected_keys, channel_mixing, chosen_experts, experts_beside, something_in_it)
ATTENTION = (window, reused_keys, differential_heads)  # of layers that have attention
