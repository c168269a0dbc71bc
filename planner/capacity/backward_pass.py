"""The backward pass of a training step, in reverse order: gradients come alive, kept tensors die after their last reader.

As PyTorch's engine does it (torch/csrc/autograd/engine.cpp, input_buffer.cpp): an operator's incoming gradients are dropped when it has
run, then its kept tensors. Then its results are summed and cast to fit the tensors that they are gradients of. Then each is added to the
gradient that waits there, in place if nothing else holds that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from planner.capacity.activations import kept
from planner.capacity.alive import Alive
from planner.capacity.forward_pass import ForwardPass
from planner.trace.sizes import Size
from planner.trace.tape import Checkpoint, Node, Operation, Repeat, Visitor, operations, visit
from planner.trace.tensor import Storage, Tensor


@dataclass(slots=True, eq=False)
class _Gradient:
    """A gradient in memory, and how many hold it. A ``view`` shares its storage with the tensor that a kernel made."""

    bytes: Size
    view: bool = False
    holders: int = 1


class BackwardPass(Visitor):
    """Walks operators from the last to the first. ``preallocated``: weights' gradients have memory of their own from the start.

    ``holders`` counts for each storage the nodes of the stretch now walked that still need it; at zero it is freed. ``kept`` maps it to 1
    or 0 (a size): whether it is there at all.
    """

    def __init__(self, alive: Alive, *, preallocated: bool) -> None:
        self.alive, self.preallocated = alive, preallocated
        self.gradients: dict[Tensor, _Gradient] = {}
        self.readers: dict[Tensor, int] = {}  # of weights: the gradient of one is final when its last reader's has come
        self.holders: dict[Storage, int] = {}
        self.kept: Mapping[Storage, Size] = {}
        # Storages from outside of equal layers that no other node holds. All copies need them: they go in the copy that runs last, at the
        # moments in ``freed``.
        self.shared_by_copies: set[Storage] = set()
        self.freed: list[tuple[int, Size]] = []
        self.held_outside: Storage | None = None  # the stand-in for what enters a copy, where others hold what enters the first one
        self.waits_from: dict[Tensor, int] = {}  # the moment from which the gradient of a tensor waits
        self.operator = ""

    def run(self, nodes: Sequence[Node], kept: Mapping[Storage, Size]) -> None:
        """Walk the whole pass, from the gradient of the loss, which the caller holds throughout."""
        for operation, _ in operations(nodes):
            for tensor in dict.fromkeys(operation.inputs):
                if tensor.leaf and operation.outputs:  # one without outputs runs no kernel and gets no gradient
                    self.readers[tensor.origin] = self.readers.get(tensor.origin, 0) + 1
        made = _made(nodes)
        loss = _result(nodes)
        seed = self.gradients[loss.origin] = self.new(loss)
        seed.holders += 1
        with self.within(_holders(nodes), {storage: times for storage, times in kept.items() if storage in made}):
            self.go(reversed(nodes))
        self.drop(seed)

    @contextmanager
    def within(self, holders: dict[Storage, int], kept: Mapping[Storage, Size]) -> Iterator[None]:
        """Walk a stretch with holders and kept storages of its own."""
        outer = self.holders, self.kept
        self.holders, self.kept = holders, kept
        yield
        self.holders, self.kept = outer

    def operation(self, node: Operation) -> None:
        """Make the gradients of an operator's inputs, and free its outputs' and what it kept."""
        self.operator = f"{node.name} backward at {node.path}"
        incoming = [self.gradients.pop(tensor.origin) for tensor in node.outputs if tensor.origin in self.gradients]
        targets = [tensor for tensor in dict.fromkeys(node.inputs) if tensor.needs_grad] if incoming else []
        gradients = []
        for tensor in targets:
            if node.passes_gradient or tensor is node.added:
                incoming[0].holders += 1
                incoming[0].view = incoming[0].view or (node.passes_gradient and node.views_gradient)
                gradients.append(incoming[0])
            else:
                gradients.append(self.new(node.outputs[0] if node.elementwise else tensor, view=node.views_gradient))
        if incoming:
            self.alive.note("backward", self.operator, node.backward_temporary)
        for gradient in incoming:
            self.drop(gradient)
        self.release(node.held)
        for number, tensor in enumerate(targets):
            if node.passes_gradient or node.elementwise or tensor is node.added:
                gradients[number] = self.fit(gradients[number], node, tensor)
        for tensor, gradient in zip(targets, gradients, strict=True):
            self.add(tensor, gradient)

    def new(self, tensor: Tensor, *, view: bool = False) -> _Gradient:
        """Return a gradient with the tensor's bytes."""
        size = self.alive.size(tensor.bytes)
        self.alive.add(size)
        return _Gradient(size, view)

    def drop(self, gradient: _Gradient) -> None:
        """Let one holder of a gradient go; with the last one it is freed."""
        gradient.holders -= 1
        if not gradient.holders:
            self.alive.add(-gradient.bytes)

    def fit(self, gradient: _Gradient, node: Operation, tensor: Tensor) -> _Gradient:
        """Return the gradient in the tensor's dtype and, summed over what was broadcast, in its shape."""
        made = node.outputs[0]
        broadcast = tensor is node.added or (node.elementwise and tensor.shape != made.shape)
        if tensor.dtype == made.dtype and not broadcast:
            return gradient
        fitting = self.new(tensor)
        self.alive.note("backward", self.operator)
        self.drop(gradient)
        return fitting

    def add(self, tensor: Tensor, gradient: _Gradient) -> None:
        """Add a gradient to the tensor's: in place unless a view or somebody else would see the change. A weight's may then be final."""
        waiting = self.gradients.get(tensor.origin)
        if waiting is None:
            self.gradients[tensor.origin] = gradient
            self.waits_from[tensor.origin] = len(self.alive.moments)
        elif waiting.holders == 1 and not waiting.view:
            self.drop(gradient)
        else:
            self.gradients[tensor.origin] = self.new(tensor)
            self.alive.note("backward", self.operator)
            self.drop(waiting)
            self.drop(gradient)
        if tensor.leaf:
            self.readers[tensor.origin] -= 1
            if self.preallocated and not self.readers[tensor.origin]:
                self.drop(self.gradients[tensor.origin])  # it is added to the memory that was there from the start

    def release(self, tensors: Iterable[Tensor]) -> None:
        """Let one holder of each kept storage go; with the last one it is freed."""
        storages = dict.fromkeys(storage for tensor in tensors for storage, _ in tensor.parts)
        for storage in storages:
            if storage not in self.kept or storage not in self.holders:
                continue
            self.holders[storage] -= 1
            if self.holders[storage]:
                continue
            size = self.alive.size(storage.bytes) * self.kept[storage]
            if storage in self.shared_by_copies:
                self.freed.append((len(self.alive.moments), size))
            else:
                self.alive.add(-size)
            if storage is self.held_outside:
                self.freed.append((len(self.alive.moments), -size))

    def checkpoint(self, node: Checkpoint) -> None:
        """Run the stretch again when the first kept tensor is wanted, then backward; its inputs go when the last one is handed over.

        As a whole: again before all else. Its output, the output's gradient and the inputs are variables until it has run backward.
        """
        inputs = {storage for tensor in node.inputs for storage, _ in tensor.parts}
        inside = {storage: times for storage, times in kept(node.body).times.items() if storage not in inputs}
        keepers = [0, len(node.body) - 1] if node.whole else [number for number, inner in enumerate(node.body) if inner.held]
        first, end = keepers[0], keepers[-1] + 1
        variables = []
        if node.whole:
            result = _result(node.body)
            variables = [self.gradients[result.origin], self.new(result)]
            variables[0].holders += 1
        holders = _holders(node.body)
        with self.within(holders, inside):
            self.go(reversed(node.body[end:]))
            ForwardPass(self.alive, node.body, inside, "backward").run_again(node.again)
            self.go(reversed(node.body[first:end]))
        for variable in variables:
            self.drop(variable)
        self.release(node.inputs)
        with self.within(holders, inside):
            self.go(reversed(node.body[:first]))

    def repeat(self, node: Repeat) -> None:
        """Walk one copy and extend it to all. What only the copies hold from outside goes in the first one, which runs last."""
        bytes_before, first_moment = self.alive.bytes, len(self.alive.moments)
        carry, waiting = node.carry, set(self.gradients)
        self.gradients[carry.made.origin] = self.gradients.pop(carry.last.origin)
        own = _made((node,)) - {carry.last.storage}
        inside = _holders(node.body)
        for storage in inside.keys() - own:
            self.holders[storage] -= 1
        self.held_outside = carry.inside.storage if self.holders.get(carry.first.storage) else None
        self.shared_by_copies, self.freed = {storage for storage in inside.keys() - own if not self.holders[storage]}, []
        with self.within({s: count for s, count in inside.items() if s in own or s in self.shared_by_copies}, self.kept):
            self.go(reversed(node.body))
        if carry.first.needs_grad:
            self.gradients[carry.first.origin] = self.gradients.pop(carry.inside.origin)
        copies = len(self.alive.moments) - first_moment
        self.alive.add_other_copies(bytes_before, first_moment, node.count)
        self.alive.free_in_last_copy(self.freed, copies, node.count)
        outside = [tensor for tensor in self.gradients.keys() - waiting - {carry.first.origin} if not tensor.leaf]
        once = [(self.waits_from[tensor], self.gradients[tensor].bytes) for tensor in outside]
        self.alive.count_once(sorted(once, key=lambda pair: pair[0]), copies, node.count)


def _result(nodes: Sequence[Node]) -> Tensor:
    """Return what the last operation makes."""
    return next(node for node in reversed(nodes) if node.outputs).outputs[0]


def _holders(nodes: Iterable[Node]) -> dict[Storage, int]:
    """Return for each storage how many nodes hold it; equal layers count as one."""
    holders: dict[Storage, int] = {}
    for node in nodes:
        for storage in {storage for tensor in node.held for storage, _ in tensor.parts}:
            holders[storage] = holders.get(storage, 0) + 1
    return holders


def _made(nodes: Iterable[Node]) -> set[Storage]:
    """Return the storages that come alive in the nodes: not those of inputs and parameters, nor of views of what was made before."""
    made: set[Storage] = set()
    for node, _ in visit(nodes):
        made |= {tensor.storage for tensor in node.outputs} - {storage for tensor in node.inputs for storage, _ in tensor.parts}
    return made
