"""The cache of requests by kind of layer: the storages that a pass without gradients leaves for the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from planner.spec.records import LatentAttention, Layer, Model
from planner.trace.decoder import Trace
from planner.trace.nodes import Operation, operations
from planner.trace.sizes import Size
from planner.trace.tensor import CacheKind, Storage


@dataclass(frozen=True, slots=True)
class KindOfCache:
    """Layers of one kind: how many, the bytes of a token in all of them, and those of all requests after the outputs."""

    kind: CacheKind
    layers: int
    token_bytes: int
    all_bytes: int

    def of_sequence(self, batch_size: int) -> int:
        """Return the bytes of one of ``batch_size`` sequences, rounded up: they share the integers that count a layer's tokens."""
        return -(-self.all_bytes // batch_size)


def kinds_of(layer: Layer) -> Iterator[CacheKind]:
    """Yield what a layer caches: a latent or a state per mixer, then keys and values, which it may share with an earlier layer."""
    for mixer in layer.mixers:
        yield "latent" if isinstance(mixer, LatentAttention) else "state"
    if layer.attention:
        yield "shared" if layer.attention.shared_kv else "full attention" if layer.attention.window is None else "window"


def layers_by_kind(model: Model) -> Counter[CacheKind]:
    """Return the number of layers of each kind."""
    every = (kind for run in model.runs for layer in run.layers for kind in list(kinds_of(layer)) * run.count)
    return Counter(every)


def by_kind(model: Model, prompts: Trace, first: Trace, last: Trace) -> tuple[KindOfCache, ...]:
    """Return the cache after the outputs: what the prompts leave and no later pass replaces, and what the last pass leaves."""
    made: dict[CacheKind, Size] = dict.fromkeys(layers_by_kind(model), 0)
    tokens: dict[CacheKind, Size] = dict.fromkeys(made, 0)
    for storage, copies in _left(prompts):
        made[storage.cache_kind] += copies * storage.bytes
        tokens[storage.cache_kind] += copies * storage.token_bytes
    for storage, copies in replaced(first):
        made[storage.cache_kind] -= copies * storage.bytes
    for storage, copies in _left(last):
        made[storage.cache_kind] += copies * storage.bytes
    layers = layers_by_kind(model)
    return tuple(KindOfCache(kind, layers[kind], cast("int", tokens[kind]), cast("int", size)) for kind, size in made.items())


def _left(made: Trace) -> Iterator[tuple[Storage, Size]]:
    """Yield the storages that a pass leaves in the cache, and how many layers have one."""
    for node, copies in operations(made.nodes):
        for storage in _new(node):
            if storage.until_forward_ends:
                yield storage, copies


def _new(node: Operation) -> Iterator[Storage]:
    read = {storage for tensor in node.inputs for storage, _ in tensor.parts}
    return (storage for storage in dict.fromkeys(tensor.storage for tensor in node.outputs) if storage not in read)


def replaced(made: Trace) -> Iterator[tuple[Storage, Size]]:
    """Yield the storages of the cache that a pass replaces, and in how many layers."""
    return ((tensor.storage, copies) for node, copies in operations(made.nodes) if node.stored_in == "cache" for tensor in node.inputs)
