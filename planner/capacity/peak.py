"""The peak of a training step: a walk along the trace, counting what is alive.

Forward: each operator's output comes alive, and what nobody reads or keeps any more dies. Backward, in reverse: gradients of activations
come and go, kept tensors die after their last reader, gradients of weights stay. A repeated stretch is walked once; what is alive around
its other copies follows from what one copy leaves behind.

Left out: what a kernel needs inside itself. The rest is held to PyTorch byte by byte, for plain modules in all that they do
(tests/verify/test_random_shapes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.capacity.activations import kept
from planner.capacity.records import Phase
from planner.trace.sizes import Size, divide_up, exceeds_one, maximum
from planner.trace.tape import Checkpoint, Node, Operation, Repeat
from planner.trace.tensor import Storage, Tensor


class Moment(NamedTuple):
    """Bytes alive while an operator runs."""

    phase: Phase
    operator: str
    bytes: Size


@dataclass(slots=True)
class Walk:
    """Bytes alive beside the model states and the inputs, and the moments that may be the peak."""

    block: int = 1  # bytes that the allocator rounds a tensor up to
    live: Size = 0
    moments: list[Moment] = field(default_factory=list)
    after_forward: Size = 0
    after_backward: Size = 0

    def sized(self, bytes_of_a_tensor: Size) -> Size:
        """Return the bytes that a tensor takes of the allocator."""
        return bytes_of_a_tensor if self.block == 1 else divide_up(bytes_of_a_tensor, self.block) * self.block

    def take(self, phase: Phase, operator: str, extra: Size = 0) -> None:
        """Note what is alive now."""
        self.moments.append(Moment(phase, operator, self.live + extra))

    def extrapolate(self, live_before: Size, first_moment: int, count: Size) -> None:
        """Add to one walked copy the others: each leaves behind what the walked one did, and the last one stands on all of them."""
        others = (self.live - live_before) * (count - 1)
        self.moments += [Moment(m.phase, m.operator, m.bytes + others) for m in self.moments[first_moment:]]
        self.live = self.live + others

    def let_go(self, freed: Sequence[tuple[int, Size]], copies: int, count: Size) -> None:
        """Take bytes off from a moment of the walked copy on: in its last copy, and in itself if it is the only one.

        ``freed`` pairs the moment with the bytes; the walked copy and the last one have the latest ``copies`` moments each.
        """
        for moment, size in freed:
            for number in range(moment, len(self.moments) - copies):
                walked, last = self.moments[number], self.moments[number + copies]
                self.moments[number] = walked._replace(bytes=walked.bytes - size * (1 - exceeds_one(count)))
                self.moments[number + copies] = last._replace(bytes=last.bytes - size)
            self.live = self.live - size


def walk(nodes: Sequence[Node], *, preallocated: bool = False, block: int = 1) -> Walk:
    """Walk one forward and one backward pass.

    ``preallocated``: the memory of the weights' gradients is there from the start. Each tensor takes a multiple of ``block`` bytes.
    """
    result = Walk(block)
    _Forward(result, nodes, kept(nodes).times, "forward").run()
    result.after_forward = result.live
    _Backward(result, preallocated=preallocated).run(nodes)
    result.after_backward = result.live
    return result


class _Forward:
    """The forward pass: what dies when nobody reads or keeps it any more."""

    def __init__(self, result: Walk, nodes: Sequence[Node], stays: dict[Storage, Size], phase: Phase) -> None:
        self.result, self.nodes, self.stays, self.phase = result, nodes, stays, phase
        self.readers: dict[Storage, dict[Size, int]] = {}  # how many are to come, by whether (1 or 0, a size) they read this storage
        self.alive: dict[Storage, Size] = {}
        self.held_to_the_end: Size = 0  # what nobody keeps and yet lives until the forward pass ends, as autocast's copies of weights do
        self.count_readers(nodes)

    def run(self) -> None:
        self.steps(self.nodes)
        self.result.live = self.result.live - self.held_to_the_end

    def run_first(self, count: int) -> None:
        """Run the first nodes only; then all variables go at once."""
        self.steps(self.nodes[:count])
        for storage, size in self.alive.items():
            self.result.live = self.result.live - size + self.result.sized(storage.bytes) * self.stays.get(storage, 0)

    def count_readers(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if not isinstance(node, Operation):
                self.count_readers(node.body)
            tensors = (node.carry.first, node.carry.made) if isinstance(node, Repeat) else node.inputs
            for tensor in tensors:
                for storage, times in tensor.parts:
                    readers = self.readers.setdefault(storage, {})
                    readers[times] = readers.get(times, 0) + 1

    def steps(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if isinstance(node, Operation):
                self.operation(node)
            elif isinstance(node, Checkpoint):
                self.steps(node.body)
                self.read(node.inputs)
            else:
                self.repeat(node)

    def operation(self, node: Operation) -> None:
        read = {storage for tensor in node.inputs for storage, _ in tensor.parts}
        for storage in {tensor.parts[0][0]: None for tensor in node.outputs if tensor.parts[0][0] not in read}:
            self.alive[storage] = self.result.sized(storage.bytes)
            self.result.live = self.result.live + self.alive[storage]
            if storage.until_forward_ends:
                self.held_to_the_end = self.held_to_the_end + self.alive[storage] * (1 - self.stays.get(storage, 0))
        if node.outputs:
            phase: Phase = "loss" if node.component == "logits" else self.phase
            self.result.take(phase, f"{node.name} at {node.path}", node.temporary)
        self.read(node.inputs)
        for tensor in node.outputs:
            if tensor.parts[0][0] not in self.readers:
                self.let_go(tensor.parts[0][0])

    def read(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            for storage, times in tensor.parts:
                readers = self.readers[storage]
                readers[times] -= 1
                if not readers[times]:
                    del readers[times]
                    self.let_go(storage)

    def let_go(self, storage: Storage) -> None:
        """Let the storage live as far as readers to come, or the backward pass, want it."""
        readers = self.readers.get(storage, {})
        if storage in self.alive and 1 not in readers and not storage.until_forward_ends and not storage.throughout:
            stays = self.stays.get(storage, 0)
            left = self.result.sized(storage.bytes) * (maximum(stays, *readers) if readers else stays)
            self.result.live = self.result.live - self.alive[storage] + left
            self.alive[storage] = left

    def repeat(self, node: Repeat) -> None:
        live_before, first_moment, held_before = self.result.live, len(self.result.moments), self.held_to_the_end
        storages = (tensor.parts[0][0] for tensor in (node.carry.first, node.carry.inside, node.carry.made, node.carry.last))
        first, inside, made, last = storages
        self.alive[inside] = self.alive.pop(first, 0)
        self.steps(node.body)
        self.alive[last] = self.alive.pop(made, 0)
        self.held_to_the_end = self.held_to_the_end + (self.held_to_the_end - held_before) * (node.count - 1)
        self.result.extrapolate(live_before, first_moment, node.count)


@dataclass(slots=True, eq=False)
class _Gradient:
    """A gradient in memory, and how many hold it. A ``view`` shares its storage with the tensor that a kernel made."""

    bytes: Size
    view: bool = False
    holders: int = 1


class _Backward:
    """The backward pass, in reverse order: gradients come alive, kept tensors die after their last reader.

    As PyTorch's engine does it (torch/csrc/autograd/engine.cpp, input_buffer.cpp): an operator's incoming gradients are dropped when it has
    run, then its kept tensors; then its results are summed and cast to fit what they are gradients of; then each is added to what waits
    there, in place if nothing else holds that.
    """

    def __init__(self, result: Walk, *, preallocated: bool) -> None:
        self.result, self.preallocated = result, preallocated
        self.gradients: dict[Tensor, _Gradient] = {}
        self.readers: dict[Tensor, int] = {}  # of parameters: their gradient is taken over when the last reader's is there
        self.last_held_by_copies: set[Storage] = set()  # from outside of a repeated stretch: gone in the copy that runs last
        self.freed: list[tuple[int, Size]] = []
        self.operator = ""

    def run(self, nodes: Sequence[Node]) -> None:
        made = _made(nodes)
        self.count_readers(nodes)
        loss = _result(nodes)
        seed = self.gradients[loss.origin] = self.new(loss)
        seed.holders += 1
        self.steps(nodes, _holders(nodes), {storage: times for storage, times in kept(nodes).times.items() if storage in made})
        self.drop(seed)

    def count_readers(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if not isinstance(node, Operation):
                self.count_readers(node.body)
                continue
            for tensor in dict.fromkeys(node.inputs):
                if tensor.leaf:
                    self.readers[tensor.origin] = self.readers.get(tensor.origin, 0) + 1

    def steps(self, nodes: Sequence[Node], holders: dict[Storage, int], stays: dict[Storage, Size]) -> None:
        for node in reversed(nodes):
            if isinstance(node, Operation):
                self.operation(node, holders, stays)
            elif isinstance(node, Checkpoint):
                self.checkpoint(node, holders, stays)
            else:
                self.repeat(node, holders, stays)

    def operation(self, node: Operation, holders: dict[Storage, int], stays: dict[Storage, Size]) -> None:
        """Make the gradients of an operator's inputs, and let go of its outputs' and of what it kept."""
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
            self.result.take("backward", self.operator, node.backward_temporary)
        for gradient in incoming:
            self.drop(gradient)
        self.release([saved.tensor for saved in node.saved], holders, stays)
        for number, tensor in enumerate(targets):
            if node.passes_gradient or node.elementwise or tensor is node.added:
                gradients[number] = self.fit(gradients[number], node, tensor)
        for tensor, gradient in zip(targets, gradients, strict=True):
            self.add(tensor, gradient)

    def new(self, tensor: Tensor, *, view: bool = False) -> _Gradient:
        """Return a gradient with the tensor's bytes."""
        size = self.result.sized(tensor.bytes)
        self.result.live = self.result.live + size
        return _Gradient(size, view)

    def drop(self, gradient: _Gradient) -> None:
        gradient.holders -= 1
        if not gradient.holders:
            self.result.live = self.result.live - gradient.bytes

    def fit(self, gradient: _Gradient, node: Operation, tensor: Tensor) -> _Gradient:
        """Return the gradient in the tensor's dtype and, summed over what was broadcast, in its shape."""
        made = node.outputs[0]
        broadcast = tensor is node.added or (node.elementwise and tensor.shape != made.shape)
        if tensor.dtype == made.dtype and not broadcast:
            return gradient
        fitting = self.new(tensor)
        self.result.take("backward", self.operator)
        self.drop(gradient)
        return fitting

    def add(self, tensor: Tensor, gradient: _Gradient) -> None:
        """Add a gradient to the tensor's; a parameter's is added up before it is taken over."""
        waiting = self.gradients.get(tensor.origin)
        if waiting is None:
            self.gradients[tensor.origin] = gradient
        elif waiting.holders == 1 and not waiting.view:
            self.drop(gradient)
        else:
            self.gradients[tensor.origin] = self.new(tensor)
            self.result.take("backward", self.operator)
            self.drop(waiting)
            self.drop(gradient)
        if tensor.leaf:
            self.readers[tensor.origin] -= 1
            if self.preallocated and not self.readers[tensor.origin]:
                self.drop(self.gradients[tensor.origin])

    def release(self, tensors: Iterable[Tensor], holders: dict[Storage, int], stays: dict[Storage, Size]) -> None:
        for storage in {storage: None for tensor in tensors for storage, _ in tensor.parts if storage in stays and storage in holders}:
            holders[storage] -= 1
            if holders[storage]:
                continue
            size = self.result.sized(storage.bytes) * stays[storage]
            if storage in self.last_held_by_copies:
                self.freed.append((len(self.result.moments), size))
            else:
                self.result.live = self.result.live - size

    def checkpoint(self, node: Checkpoint, holders: dict[Storage, int], stays: dict[Storage, Size]) -> None:
        """Run the stretch again when the first kept tensor is asked for, then backward; its inputs go when the last one is handed over.

        As a whole: again before all else; its output, the output's gradient and the inputs are variables until it has run backward.
        """
        inputs = {storage for tensor in node.inputs for storage, _ in tensor.parts}
        inside = {storage: times for storage, times in kept(node.body).times.items() if storage not in inputs}
        inside_holders = _holders(node.body)
        first, last = (0, len(node.body) - 1) if node.whole else _keepers(node.body)
        held = []
        if node.whole:
            result = _result(node.body)
            incoming = self.gradients[result.origin]
            incoming.holders += 1
            held = [incoming, self.new(result)]
        self.steps(node.body[last + 1 :], inside_holders, inside)
        _Forward(self.result, node.body, inside, "backward").run_first(len(recomputed(node)))
        self.steps(node.body[first : last + 1], inside_holders, inside)
        for gradient in held:
            self.drop(gradient)
        self.release(node.inputs, holders, stays)
        self.steps(node.body[:first], inside_holders, inside)

    def repeat(self, node: Repeat, holders: dict[Storage, int], stays: dict[Storage, Size]) -> None:
        live_before, first_moment = self.result.live, len(self.result.moments)
        carry = node.carry
        self.gradients[carry.made.origin] = self.gradients.pop(carry.last.origin)
        own = _made((node,)) - {carry.last.parts[0][0]}
        inside = _holders(node.body)
        for storage in inside.keys() - own:
            holders[storage] -= 1
        self.last_held_by_copies, self.freed = {storage for storage in inside.keys() - own if not holders[storage]}, []
        self.steps(node.body, {s: count for s, count in inside.items() if s in own or s in self.last_held_by_copies}, stays)
        if carry.first.needs_grad:
            self.gradients[carry.first.origin] = self.gradients.pop(carry.inside.origin)
        copies = len(self.result.moments) - first_moment
        self.result.extrapolate(live_before, first_moment, node.count)
        self.result.let_go(self.freed, copies, node.count)


def recomputed(node: Checkpoint) -> tuple[Node, ...]:
    """Return the operations that the backward pass runs again: all, or with PyTorch's early stop those up to the last kept tensor.

    An operator that keeps only its inputs hands them over before its kernel runs, so that the last one's kernel is spared.
    """
    operations = [inner for inner in node.body if isinstance(inner, Operation)]
    if node.whole:
        return tuple(operations)
    _, last = _keepers(operations)
    if last < 0:
        return ()
    made = {storage for tensor in operations[last].outputs for storage, _ in tensor.parts}
    keeps_output = any(storage in made for saved in operations[last].saved for storage, _ in saved.tensor.parts)
    return tuple(operations[: last + (1 if keeps_output else 0)])


def _result(nodes: Sequence[Node]) -> Tensor:
    """Return what the last operation makes."""
    return next(node for node in reversed(nodes) if isinstance(node, Operation) and node.outputs).outputs[0]


def _keepers(nodes: Sequence[Node]) -> tuple[int, int]:
    """Return the places of the first and of the last operation that keeps something; 0 and -1 where none does."""
    places = [number for number, node in enumerate(nodes) if isinstance(node, Operation) and node.saved]
    return (places[0], places[-1]) if places else (0, -1)


def _holders(nodes: Iterable[Node]) -> dict[Storage, int]:
    """Return for each storage how many nodes hold it; a repeated stretch counts as one."""
    holders: dict[Storage, int] = {}
    for node in nodes:
        if isinstance(node, Operation):
            held = {storage for saved in node.saved for storage, _ in saved.tensor.parts}
        elif isinstance(node, Checkpoint):
            held = {storage for tensor in node.inputs for storage, _ in tensor.parts}
        else:
            held = set(_holders(node.body))
        for storage in held:
            holders[storage] = holders.get(storage, 0) + 1
    return holders


def _made(nodes: Iterable[Node]) -> set[Storage]:
    """Return the storages that come alive: all but the inputs and the parameters."""
    made: set[Storage] = set()
    for node in nodes:
        if isinstance(node, Operation):
            made |= {tensor.parts[0][0] for tensor in node.outputs}
        else:
            made |= _made(node.body)
            if isinstance(node, Repeat):
                made |= {tensor.parts[0][0] for tensor in (node.carry.inside, node.carry.last)}
    return made
