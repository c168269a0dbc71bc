"""The backward pass of a training step, in reverse order: gradients are allocated, saved tensors are freed after their last use.

As in PyTorch's engine (torch/csrc/autograd/engine.cpp, input_buffer.cpp): after an operator runs, its results are summed and cast to the
shape and dtype of its inputs. Then its incoming gradients are freed, then its saved tensors; recomputed ones as soon as it has run. Then
each result is added to the gradient that the input already has, in place if nothing else refers to that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from planner.capacity.activations import allocated, offloaded, saved_for_backward
from planner.capacity.forward_pass import ForwardPass
from planner.capacity.stored import stored_graphs
from planner.capacity.timeline import MemoryTimeline, Place
from planner.trace.nodes import Boundary, Checkpoint, Node, Operation, Repeat, Visitor, operations, visit
from planner.trace.sizes import Size, maximum, total
from planner.trace.tensor import Storage, Tensor


@dataclass(slots=True, eq=False)
class Gradient:
    """An allocated gradient and its reference count. ``view``: it shares the storage of a kernel's output."""

    bytes: Size
    view: bool = False
    references: int = 1


class Update(NamedTuple):
    """The update of a weight in the backward pass: its temporary bytes, and those of each tensor of the state that it creates."""

    temporary: Size
    state: Sequence[Size]


Updates = Mapping[Tensor, Update]  # by weight
References: TypeAlias = dict[Storage, dict[Size, int]]


class BackwardPass(Visitor):
    """Visits operators from last to first.

    ``preallocated``: weights' gradients are allocated from the start; ``released``: and freed once they are final.

    ``references`` counts the nodes of the current region that still need a saved storage; at zero it is freed. ``saved`` maps storages to 1
    or 0 (a size): whether they are saved at all.
    """

    def __init__(self, timeline: MemoryTimeline, *, preallocated: bool, released: bool, updates: Updates, offload: bool) -> None:
        self.timeline, self.preallocated, self.released, self.updates = timeline, preallocated, released, updates
        self.offload = offload  # whether the saved tensors of the current region are on the host
        self.gradients: dict[Tensor, Gradient] = {}
        self.readers: dict[Tensor, int] = {}  # of weights: a gradient is final after the last one
        self.references: References = {}
        self.saved: Mapping[Storage, Size] = {}
        # Storages from outside equal layers that only their copies save. The copy that runs last frees them, at the samples in ``freed``.
        self.shared_by_copies: set[Storage] = set()
        self.freed: list[tuple[int, Size]] = []
        self.saved_outside: Storage | None = None  # placeholder for a copy's input, if others save the first copy's input
        self.waits_from: dict[Tensor, int] = {}  # the sample from which a tensor has a gradient of the current equal layers
        self.stored: Size = 0  # bytes of graphs of recomputed regions that the model keeps until all regions have run
        self.recomputed = False  # whether the current region is recomputed, so that a saved tensor is freed when an operator has read it
        self.operator = ""

    def run(self, nodes: Sequence[Node], saved: Mapping[Storage, Size], output: Tensor | None = None) -> None:
        """Run the whole pass, from the gradient of the loss, which stays allocated throughout.

        ``output`` is that of a pipeline's stage without the loss. Its gradient arrives in a buffer if the stage holds the output, too.
        """
        for operation, _ in operations(nodes):
            for tensor in dict.fromkeys(operation.inputs):
                if tensor.leaf and operation.outputs:  # one without outputs runs no kernel and gets no gradient
                    self.readers[tensor.origin] = self.readers.get(tensor.origin, 0) + 1
        made = allocated(nodes)
        start = output or result_of(nodes)
        seed = self.gradients[start.origin] = Gradient(0) if output and output.storage.throughout else self.new(start)
        seed.references += 1
        with self.within(reference_counts(nodes), {storage: times for storage, times in saved.items() if storage in made}):
            first = next((number for number, node in enumerate(nodes) if any(isinstance(one, Checkpoint) for one, _ in visit([node]))), 0)
            self.go(reversed(nodes[first:]))
            self.timeline.add(-self.stored)
            self.go(reversed(nodes[:first]))
        self.free_gradient(seed)

    @contextmanager
    def within(self, references: References, saved: Mapping[Storage, Size]) -> Iterator[None]:
        """Visit a region with its own reference counts and saved storages."""
        outer = self.references, self.saved
        self.references, self.saved = references, saved
        yield
        self.references, self.saved = outer

    def operation(self, node: Operation) -> None:
        """Allocate the gradients of an operator's inputs, and free those of its outputs and its saved tensors."""
        self.operator = f"{node.name} backward at {node.path}"
        incoming = self.arrived(node)
        fetched = self.fetch(node) if incoming else 0
        targets = self.targets(node) if incoming else []
        gradients = []
        for tensor in targets:
            if node.passes_gradient or tensor is node.added:
                incoming[0].references += 1
                incoming[0].view = incoming[0].view or (node.passes_gradient and node.views_gradient)
                gradients.append(incoming[0])
            else:
                gradients.append(self.new(node.outputs[0] if node.elementwise else tensor, view=node.views_gradient))
        if incoming:
            self.timeline.sample("backward", self.operator, node.backward_temporary)
        self.timeline.add(-fetched)
        if self.recomputed:
            self.free_saved(node.saved_tensors)
        for number, tensor in enumerate(targets):
            if node.passes_gradient or node.elementwise or tensor is node.added:
                gradients[number] = self.fit(gradients[number], node, tensor)
        for gradient in incoming:
            self.free_gradient(gradient)
        if not self.recomputed and not node.stored_in:
            self.free_saved(node.saved_tensors)
        for tensor, gradient in zip(targets, gradients, strict=True):
            self.add(tensor, gradient)

    def arrived(self, node: Operation) -> list[Gradient]:
        """Return the gradients of an operator's outputs. That of a leaf stays, so it is not among them."""
        found = [self.gradients.pop(tensor.origin) for tensor in node.outputs if tensor.origin in self.gradients]
        return found if any(tensor.needs_grad for tensor in node.inputs) else []

    def fetch(self, node: Operation | Checkpoint) -> Size:
        """Copy the node's saved tensors from the host, and return their bytes."""
        size: Size = total(self.timeline.size(tensor.bytes) for tensor in offloaded(node)) if self.offload else 0
        self.timeline.add(size)
        return size

    def targets(self, node: Operation) -> list[Tensor]:
        """Return the inputs that get a gradient, without the weight to whose preallocated one the kernel adds it."""
        found = [tensor for tensor in dict.fromkeys(node.inputs) if tensor.needs_grad]
        if self.preallocated and node.accumulated in found:
            found.remove(node.accumulated)
            self.readers[node.accumulated.origin] -= 1
        return found

    def boundary(self, node: Boundary) -> None:
        """Allocate and free what devices share at a boundary."""
        self.timeline.pass_boundary(Place(node.unit, node.starts, forward=False), "backward")

    def new(self, tensor: Tensor, *, view: bool = False) -> Gradient:
        """Allocate a gradient of the tensor's size."""
        size = self.timeline.gradient(tensor)
        self.timeline.add(size)
        return Gradient(size, view)

    def free_gradient(self, gradient: Gradient) -> None:
        """Remove one reference to a gradient; free it with the last."""
        gradient.references -= 1
        if not gradient.references:
            self.timeline.add(-gradient.bytes)

    def fit(self, gradient: Gradient, node: Operation, tensor: Tensor) -> Gradient:
        """Return the gradient in the tensor's dtype, summed to its shape if it was broadcast."""
        made = node.outputs[0]
        broadcast = tensor is node.added or (node.elementwise and tensor.shape != made.shape)
        if tensor.dtype == made.dtype and not broadcast:
            return gradient
        fitting = self.new(tensor)
        self.timeline.sample("backward", self.operator)
        self.free_gradient(gradient)
        return fitting

    def add(self, tensor: Tensor, gradient: Gradient) -> None:
        """Add a gradient to the one that the tensor has: in place, unless that is a view or has other references."""
        waiting = self.gradients.get(tensor.origin)
        self.waits_from.setdefault(tensor.origin, len(self.timeline.samples))
        if waiting is None:
            self.gradients[tensor.origin] = gradient
        elif waiting.references == 1 and not waiting.view:
            self.free_gradient(gradient)
        else:
            self.gradients[tensor.origin] = self.new(tensor)
            self.timeline.sample("backward", self.operator)
            self.free_gradient(waiting)
            self.free_gradient(gradient)
        if tensor.leaf:
            self.readers[tensor.origin] -= 1
            if self.readers[tensor.origin]:
                return
            if self.preallocated:
                self.free_gradient(self.gradients[tensor.origin])  # it is added to the preallocated one
                self.timeline.add(-self.gradients[tensor.origin].bytes if self.released else 0)
            if update := self.updates.get(tensor.origin):
                self.timeline.add(sum(map(self.timeline.size, update.state)))
                self.timeline.sample("backward", "update of a weight", update.temporary)
                self.free_gradient(self.gradients[tensor.origin])

    def free_saved(self, tensors: Iterable[Tensor]) -> None:
        """Remove one reference to each saved storage; free it with the last."""
        for storage, times in _storages(tensors).items():
            if storage not in self.saved or storage not in self.references or storage.throughout:
                continue
            before = _needed(self.references[storage])
            _remove(self.references[storage], times)
            size = self.timeline.size(storage.bytes) * (before - _needed(self.references[storage]))
            if size == 0:
                continue
            if storage in self.shared_by_copies:
                self.freed.append((len(self.timeline.samples), size))
            else:
                self.timeline.add(-size)
            if storage is self.saved_outside:
                self.freed.append((len(self.timeline.samples), -size))

    def checkpoint(self, node: Checkpoint) -> None:
        """Recompute the region when its first saved tensor is read, then run it backward; free its inputs after the last one is read.

        ``whole``: recompute before all else; its output, the output's gradient and the inputs stay allocated until it has run backward.
        """
        inputs = {storage for tensor in node.inputs for storage, _ in tensor.parts}
        inside = {storage: times for storage, times in saved_for_backward(node.body).times.items() if storage not in inputs}
        savers = [0, len(node.body) - 1] if node.whole else [number for number, inner in enumerate(node.body) if inner.saved_tensors]
        first, end = savers[0], savers[-1] + 1
        variables = []
        if node.whole:
            result = result_of(node.body)
            variables = [self.gradients[result.origin], self.new(result)]
            variables[0].references += 1
        references, graphs = reference_counts(node.body), stored_graphs(node)
        for graph in graphs:
            for storage in graph.saved.keys() - inputs:
                times = inside[storage] = graph.saved[storage]
                references.setdefault(storage, {}).setdefault(times, 0)
                references[storage][times] += 1  # for good
            if graph.operation.stored_in == "model":
                self.stored = self.stored + graph.bytes(self.timeline.block)
        with self.within(references, inside):
            self.go(reversed(node.body[end:]))
            fetched, offload = self.fetch(node), self.offload
            self.offload = False
            ForwardPass(self.timeline, node.body, inside, "backward").run_again(node.again, node.outputs_saved)
            self.recomputed = not node.whole
            self.go(reversed(node.body[first:end]))
            self.recomputed = False
        self.offload = offload
        self.timeline.add(-fetched)
        for variable in variables:
            self.free_gradient(variable)
        self.free_saved(node.inputs)
        for graph in graphs:
            self.timeline.add(self.timeline.size(node.inputs[0].bytes) * (node.inputs[0].storage in graph.saved))
        with self.within(references, inside):
            self.go(reversed(node.body[:first]))

    def repeat(self, node: Repeat) -> None:
        """Run one copy and extend it to all. The first copy, which runs last, frees storages from outside that only the copies save."""
        first_change, first_sample = len(self.timeline.changes), len(self.timeline.samples)
        carry = node.carry
        if carry.last.origin not in self.gradients:  # nothing before it trains
            return
        self.gradients[carry.made.origin] = self.gradients.pop(carry.last.origin)
        waiting, self.waits_from = self.gradients.copy(), {}
        own = allocated((node,)) - {carry.last.storage}
        inside = reference_counts(node.body)
        for storage, times in _storages(node.saved_tensors).items():
            if storage not in own:
                _remove(self.references[storage], times)
        stays = carry.first.storage.throughout or _needed(self.references.get(carry.first.storage, {})) != 0
        self.saved_outside = carry.inside.storage if stays else None
        self.shared_by_copies = {storage for storage in inside.keys() - own if _needed(self.references[storage]) == 0}
        self.freed = []
        with self.within({s: count for s, count in inside.items() if s in own or s in self.shared_by_copies}, self.saved):
            self.go(reversed(node.body))
        if carry.first.needs_grad:
            self.gradients[carry.first.origin] = self.gradients.pop(carry.inside.origin)
        copies = len(self.timeline.samples) - first_sample
        self.timeline.add_other_copies(self.timeline.since(first_change), first_sample, node.count)
        self.timeline.free_in_last_copy(self.freed, copies, node.count)
        outside = [tensor for tensor in self.gradients.keys() - waiting.keys() - {carry.first.origin} if not tensor.leaf]
        once = [(self.waits_from[tensor], self.gradients[tensor].bytes) for tensor in outside]
        # Layers outside read these of the last copy only, which therefore starts with their gradients.
        read_outside = waiting.keys() - self.gradients.keys() - {carry.made.origin}
        once += [(self.waits_from[tensor], -waiting[tensor].bytes) for tensor in read_outside]
        self.timeline.count_once(sorted(once, key=lambda pair: pair[0]), copies, node.count)


def result_of(nodes: Sequence[Node]) -> Tensor:
    """Return the output of the last operation."""
    return next(node for node in reversed(nodes) if node.outputs).outputs[0]


def _storages(tensors: Iterable[Tensor]) -> dict[Storage, Size]:
    """Return the storages in which the tensors may be, and 1 or 0 (a size): whether one of them is."""
    found: dict[Storage, Size] = {}
    for tensor in tensors:
        for storage, times in tensor.parts:
            found[storage] = times if storage not in found else maximum(found[storage], times)
    return found


def _needed(readers: dict[Size, int]) -> Size:
    """Return 1 or 0 (a size): whether any of the readers reads the storage."""
    return 1 if 1 in readers else maximum(*readers) if readers else 0


def _remove(readers: dict[Size, int], times: Size) -> None:
    """Remove one reader."""
    readers[times] -= 1
    if not readers[times]:
        del readers[times]


def reference_counts(nodes: Iterable[Node]) -> References:
    """Return how many nodes save each storage, by 1 or 0 (a size): whether they save this one. Equal layers count as one."""
    references: References = {}
    for node in nodes:
        for storage, times in _storages(node.saved_tensors).items():
            readers = references.setdefault(storage, {})
            readers[times] = readers.get(times, 0) + 1
    return references
