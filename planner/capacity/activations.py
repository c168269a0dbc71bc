"""Activation memory: the storages that stay from the forward pass to the backward pass, each once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.trace.sizes import Size, maximum
from planner.trace.tape import Checkpoint, Node, Operation, Repeat, Visitor
from planner.trace.tensor import Storage, Tensor

OWN_LINES = ("inputs", "logits", "loss")
"""Components of what belongs to no part of the model, shown as lines of their own."""
EARLY_GRADIENTS = "gradients"
"""Component of gradients that a fused loss makes in the forward pass: alive like what is kept, but no activations."""


@dataclass(slots=True)
class Keeping:
    """A kept storage: who keeps it first, ``times`` 1 or 0 (a size), and how many copies of it there are."""

    storage: Storage
    path: str
    what: str
    component: str
    times: Size
    copies: Size

    @property
    def bytes(self) -> Size:
        """Bytes of all copies."""
        return self.storage.bytes * self.times * self.copies


@dataclass(frozen=True, slots=True)
class KeptStorages:
    """What a trace keeps: real storages, and the stand-ins for what enters a repeated stretch that keeps its input."""

    keepings: list[Keeping]  # activations only
    times: dict[Storage, Size]  # of real storages and of stand-ins


def kept(nodes: Iterable[Node]) -> KeptStorages:
    """Return what the operations keep, each storage once, in the order of the forward pass.

    A parameter's own storage is never kept. Where a repeated stretch keeps its input, that is the real input once and the output of every
    copy but the last.
    """
    collector = _Collector()
    collector.go(nodes)
    times = {storage: keeping.times for storage, keeping in collector.found.items()}
    activations = [keeping for keeping in collector.found.values() if keeping.component != EARLY_GRADIENTS]
    return KeptStorages(activations, {**times, **collector.entering})


class _Collector(Visitor):
    def __init__(self) -> None:
        self.found: dict[Storage, Keeping] = {}
        self.same: dict[Storage, Storage] = {}  # the last output of equal layers, where the outputs of all are kept inside already
        self.entering: dict[Storage, Size] = {}

    def operation(self, node: Operation) -> None:
        for saved in node.saved:
            self.keep(saved.tensor, node.path, f"{saved.what} of {node.name}", node.component)

    def checkpoint(self, node: Checkpoint) -> None:
        for tensor in node.inputs:
            self.keep(tensor, node.path, "input of a recomputed stretch", node.component)

    def repeat(self, node: Repeat) -> None:
        self.go(node.body)
        made, last = node.carry.made.storage, node.carry.last.storage
        entering = self.found.pop(node.carry.inside.storage, None)
        if made in self.found:
            self.same[last] = made
        elif entering is not None:
            copies = last.copies * (node.count - 1)
            self.found[made] = Keeping(made, entering.path, entering.what, entering.component, entering.times, copies)
        if entering is not None:
            self.entering[entering.storage] = entering.times
            self.keep(node.carry.first, entering.path, entering.what, entering.component)

    def keep(self, tensor: Tensor, path: str, what: str, component: str) -> None:
        for part, times in tensor.parts:
            storage = self.same.get(part, part)
            if storage.leaf:
                continue
            known = self.found.get(storage)
            if known is not None:
                known.times = maximum(known.times, times)
                continue
            owner = storage.component if storage.component in {*OWN_LINES, EARLY_GRADIENTS} else component
            self.found[storage] = Keeping(storage, path, what, owner, times, storage.copies)
