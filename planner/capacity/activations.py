"""Activation memory: the storages saved for backward, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from planner.trace.nodes import Boundary, Checkpoint, Node, Operation, Repeat, Visitor, visit
from planner.trace.sizes import Size, maximum, structure, total
from planner.trace.tensor import Storage, Tensor

OWN_LINES = ("inputs", "logits", "loss")
"""Components outside the model, with their own lines."""
EARLY_GRADIENTS = "gradients"
"""Component of gradients that a fused loss computes in the forward pass: saved, but not activations."""
SMALLEST_OFFLOADED = 1024  # bytes of a tensor
OUTPUT_IN_REGION = "output saved in a checkpointed region"


@dataclass(slots=True)
class SavedEntry:
    """A saved storage: the operator that saves it first, ``times`` 1 or 0 (a size), and the number of copies."""

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
class SavedStorages:
    """What a trace saves."""

    entries: list[SavedEntry]  # activations only
    times: dict[Storage, Size]  # of storages, and of placeholders for the inputs of equal layers


def saved_for_backward(nodes: Iterable[Node], *, offload: bool = False) -> SavedStorages:
    """Return what the operations save, each storage once, in the order of the forward pass.

    Parameters never count. If equal layers save their input, that is the first copy's input and the output of every copy but the last.
    ``offload``: without what is copied to the host.
    """
    collector = _Collector(offload=offload)
    collector.go(nodes)
    times = {storage: entry.times for storage, entry in collector.found.items()}
    activations = [entry for entry in collector.found.values() if entry.component != EARLY_GRADIENTS]
    return SavedStorages(activations, {**times, **collector.entering})


def offloaded(node: Operation | Checkpoint) -> tuple[Tensor, ...]:
    """Return the tensors that a node saves and activation offloading copies to the host, each time that it is saved.

    Read from torchtune 0.7 (training/_activation_offloading.py, OffloadActivations without streams) and TRL 0.24, which differ for tensors
    saved more than once: small tensors and parameters stay, and so do tensors that the LM head and the loss save. Of a checkpointed region
    only its first input is saved as a tensor; the others are inside its arguments. LayerNorm's two statistics count as one tensor.
    """
    if not node.path.startswith("model"):
        return ()
    tensors = node.inputs[:1] if isinstance(node, Checkpoint) else node.saved_tensors
    return tuple(tensor for tensor in tensors if not tensor.leaf and structure(tensor.bytes) >= SMALLEST_OFFLOADED)


def host_bytes(nodes: Iterable[Node]) -> Size:
    """Return the bytes of the saved tensors that activation offloading copies to the host."""
    return total(copies * tensor.bytes for node, copies in outermost(nodes) for tensor in offloaded(node))


def outermost(nodes: Iterable[Node], copies: Size = 1) -> Iterator[tuple[Operation | Checkpoint, Size]]:
    """Yield the operators and the checkpointed regions of a trace, without the inside of regions, and how often they run."""
    for node in nodes:
        if isinstance(node, Repeat):
            yield from outermost(node.body, copies * node.count)
        elif isinstance(node, Operation | Checkpoint):
            yield node, copies


class _Collector(Visitor):
    def __init__(self, *, offload: bool) -> None:
        self.offload = offload
        self.found: dict[Storage, SavedEntry] = {}
        self.same: dict[Storage, Storage] = {}  # the last output of equal layers that save all their outputs inside
        self.entering: dict[Storage, Size] = {}
        self.copied: set[Storage] = set()  # what the current equal layers make

    def operation(self, node: Operation) -> None:
        away = offloaded(node) if self.offload else ()
        for saved in node.saved:
            if saved.tensor not in away:
                self.save(saved.tensor, node.path, f"{saved.what} of {node.name}", node.component)

    def checkpoint(self, node: Checkpoint) -> None:
        away = offloaded(node) if self.offload else ()
        for tensor in node.inputs:
            if tensor not in away:
                self.save(tensor, node.path, "input of a checkpointed region", node.component)
        for tensor in node.outputs_saved:
            self.save(tensor, tensor.storage.path, OUTPUT_IN_REGION, tensor.storage.component)

    def repeat(self, node: Repeat) -> None:
        self.copied = allocated(node.body)
        self.go(node.body)
        self.copied = set()
        made, last = node.carry.made.storage, node.carry.last.storage
        entering = self.found.pop(node.carry.inside.storage, None)
        if made in self.found:
            self.same[last] = made
        elif entering is not None:
            self.found[made] = replace(entering, storage=made, copies=last.copies * (node.count - 1))
        if entering is not None:
            self.entering[entering.storage] = entering.times
            self.save(node.carry.first, entering.path, entering.what, entering.component)

    def boundary(self, node: Boundary) -> None:
        pass

    def save(self, tensor: Tensor, path: str, what: str, component: str) -> None:
        for part, times in tensor.parts:
            storage = self.same.get(part, part)
            if storage in self.found:
                self.found[storage].times = maximum(self.found[storage].times, times)
            elif not storage.leaf:
                owner = storage.component if storage.component in {*OWN_LINES, EARLY_GRADIENTS} else component
                copies = storage.copies if storage in self.copied else 1  # operators outside save that of the last copy
                self.found[storage] = SavedEntry(storage, path, what, owner, times, copies)


def allocated(nodes: Iterable[Node]) -> set[Storage]:
    """Return the storages that the nodes allocate: not those of inputs, parameters and views of earlier tensors."""
    made: set[Storage] = set()
    for node, _ in visit(nodes):
        made |= {tensor.storage for tensor in node.outputs} - {storage for tensor in node.inputs for storage, _ in tensor.parts}
    return made
