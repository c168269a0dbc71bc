"""The peak of a training step: a walk along the trace, counting what is alive.

Forward: each operator's output comes alive, and what nobody reads or keeps any more dies. Backward, in reverse: gradients of activations
come and go, kept tensors die after their last reader, gradients of weights stay. A repeated stretch is walked once; what is alive around
its other copies follows from what one copy leaves behind.

Left out: what a kernel needs inside itself, and the order in which the engine adds up gradients inside a layer: under 2 % of the peak where
the peak lies inside a layer at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from planner.capacity.activations import kept
from planner.capacity.records import Phase
from planner.trace.sizes import Size, product
from planner.trace.tape import Checkpoint, Node, Operation, Repeat, Saved
from planner.trace.tensor import Storage, Tensor


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes alive while an operator runs."""

    phase: Phase
    operator: str
    bytes: Size


@dataclass(slots=True)
class Walk:
    """Bytes alive beside the model states and the inputs, and the moments that may be the peak."""

    live: Size = 0
    moments: list[Moment] = field(default_factory=list)
    after_forward: Size = 0
    after_backward: Size = 0

    def take(self, phase: Phase, operator: str, extra: Size = 0) -> None:
        """Note what is alive now."""
        self.moments.append(Moment(phase, operator, self.live + extra))

    def extrapolate(self, live_before: Size, first_moment: int, count: Size) -> None:
        """Add to one walked copy the others: each leaves behind what the walked one did, and the last one stands on all of them."""
        others = (self.live - live_before) * (count - 1)
        self.moments += [Moment(m.phase, m.operator, m.bytes + others) for m in self.moments[first_moment:]]
        self.live = self.live + others


def walk(nodes: Sequence[Node], gradient_bytes: int | None) -> Walk:
    """Walk one forward and one backward pass.

    ``gradient_bytes`` an element of the weights come alive in the backward pass; None: their memory is there from the start.
    """
    result = Walk()
    _Forward(result, nodes, kept(nodes).times, "forward").run()
    result.after_forward = result.live
    _Backward(result, gradient_bytes).run(nodes)
    result.after_backward = result.live
    return result


class _Forward:
    """The forward pass: what dies when nobody reads or keeps it any more."""

    def __init__(self, result: Walk, nodes: Sequence[Node], stays: dict[Storage, Size], phase: Phase) -> None:
        self.result, self.nodes, self.stays, self.phase = result, nodes, stays, phase
        self.readers: dict[Storage, int] = {}
        self.alive: dict[Storage, Size] = {}
        self.cast_copies: Size = 0  # autocast's copies of weights that nobody keeps: alive until the forward pass ends
        self.count_readers(nodes)

    def run(self) -> None:
        self.steps(self.nodes)
        self.result.live = self.result.live - self.cast_copies

    def count_readers(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if not isinstance(node, Operation):
                self.count_readers(node.body)
            tensors = (node.carry.first, node.carry.made) if isinstance(node, Repeat) else node.inputs
            for tensor in tensors:
                for storage, _ in tensor.parts:
                    self.readers[storage] = self.readers.get(storage, 0) + 1

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
        for tensor in node.outputs:
            storage = tensor.parts[0][0]
            self.alive[storage] = storage.bytes
            self.result.live = self.result.live + storage.bytes
            if storage.until_forward_ends and storage not in self.stays:
                self.cast_copies = self.cast_copies + storage.bytes
        phase: Phase = "loss" if node.component == "logits" else self.phase
        self.result.take(phase, f"{node.name} at {node.path}", node.temporary)
        self.read(node.inputs)
        for tensor in node.outputs:
            if tensor.parts[0][0] not in self.readers:
                self.die(tensor.parts[0][0])

    def read(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            for storage, _ in tensor.parts:
                self.readers[storage] -= 1
                if not self.readers[storage]:
                    self.die(storage)

    def die(self, storage: Storage) -> None:
        if storage in self.alive and not storage.until_forward_ends and not storage.throughout:
            self.result.live = self.result.live - self.alive.pop(storage) * (1 - self.stays.get(storage, 0))

    def repeat(self, node: Repeat) -> None:
        live_before, first_moment, casts_before = self.result.live, len(self.result.moments), self.cast_copies
        storages = (tensor.parts[0][0] for tensor in (node.carry.first, node.carry.inside, node.carry.made, node.carry.last))
        first, inside, made, last = storages
        self.alive[inside] = self.alive.pop(first, 0)
        self.steps(node.body)
        self.alive[last] = self.alive.pop(made, 0)
        self.cast_copies = self.cast_copies + (self.cast_copies - casts_before) * (node.count - 1)
        self.result.extrapolate(live_before, first_moment, node.count)


class _Backward:
    """The backward pass, in reverse order: gradients come alive, kept tensors die after their last reader."""

    def __init__(self, result: Walk, gradient_bytes: int | None) -> None:
        self.result, self.gradient_bytes = result, gradient_bytes
        self.gradients: dict[Storage, Size] = {}
        self.weights_done: set[Storage] = set()

    def run(self, nodes: Sequence[Node]) -> None:
        made = _made(nodes)
        self.steps(nodes, _holders(nodes), {storage: times for storage, times in kept(nodes).times.items() if storage in made})

    def steps(self, nodes: Sequence[Node], holders: dict[Storage, int], stays: dict[Storage, Size]) -> None:
        for node in reversed(nodes):
            if isinstance(node, Operation):
                self.operation(node)
                self.release(node.saved, holders, stays)
            elif isinstance(node, Checkpoint):
                self.recompute(node)
                self.release([Saved(tensor, "") for tensor in node.inputs], holders, stays)
            else:
                self.repeat(node, holders, stays)

    def operation(self, node: Operation) -> None:
        """Make the gradients of an operator's inputs, and let go of its output's."""
        result = self.result
        if not any(tensor.needs_grad for tensor in node.outputs):
            return
        incoming: Size = 0
        for tensor in node.outputs:
            incoming = incoming + self.gradients.pop(tensor.parts[0][0], 0)
        passed = incoming if node.passes_gradient else 0  # the first input takes the output's gradient over as its own
        temporary = node.backward_temporary
        for tensor in dict.fromkeys(node.inputs):
            if not tensor.needs_grad:
                continue
            if tensor.leaf:
                temporary = temporary + self.weight(tensor)
                continue
            shares = node.passes_gradient and tensor.dtype == node.outputs[0].dtype
            storage = tensor.parts[0][0]
            if shares and storage not in self.gradients:
                self.gradients[storage], passed, incoming = passed, 0, incoming - passed
            elif not shares and (storage not in self.gradients or len(tensor.parts) > 1 or tensor.bytes != storage.bytes):
                self.gradients[storage] = self.gradients.get(storage, 0) + tensor.bytes
                result.live = result.live + tensor.bytes
            elif not shares:
                temporary = temporary + tensor.bytes  # added to the gradient that is there
        result.take("backward", f"{node.name} backward at {node.path}", temporary)
        result.live = result.live - incoming

    def weight(self, tensor: Tensor) -> Size:
        """Add a weight's gradient; return the bytes that are alive only until it is added to one that is there."""
        if self.gradient_bytes is None:
            return tensor.bytes
        storage = tensor.parts[0][0]
        size = product(tensor.shape) * self.gradient_bytes
        if storage in self.weights_done:
            # the engine adds in place only to a gradient that autocast's cast made, not to a linear's, which is a transposed view
            return size if tensor.cast_copy else 2 * size
        self.weights_done.add(storage)
        self.result.live = self.result.live + size
        return 0

    def release(self, saved: Iterable[Saved], holders: dict[Storage, int], stays: dict[Storage, Size]) -> None:
        for storage in {storage: None for item in saved for storage, _ in item.tensor.parts if storage in stays and storage in holders}:
            holders[storage] -= 1
            if not holders[storage]:
                self.result.live = self.result.live - storage.bytes * stays[storage]

    def recompute(self, node: Checkpoint) -> None:
        """Run the stretch again up to the last operator that keeps something, then backward."""
        stays = kept(node.body).times
        needed = recomputed(node)
        inputs = {storage for tensor in node.inputs for storage, _ in tensor.parts}
        inside = {storage: times for storage, times in stays.items() if storage not in inputs}
        _Forward(self.result, needed, inside, "backward").run()
        self.steps(node.body, _holders(node.body), inside)

    def repeat(self, node: Repeat, holders: dict[Storage, int], stays: dict[Storage, Size]) -> None:
        live_before, first_moment = self.result.live, len(self.result.moments)
        first, inside, made, last = (t.parts[0][0] for t in (node.carry.first, node.carry.inside, node.carry.made, node.carry.last))
        self.gradients[made] = self.gradients.pop(last, 0)
        own = _made((node,)) - {last}
        self.steps(node.body, {storage: count for storage, count in _holders(node.body).items() if storage in own}, stays)
        self.gradients[first] = self.gradients.pop(inside, 0)
        self.result.extrapolate(live_before, first_moment, node.count)
        for storage in _holders(node.body):
            if storage not in own and storage in stays:
                holders[storage] -= 1
                if not holders[storage]:
                    self.result.live = self.result.live - storage.bytes * stays[storage]


def recomputed(node: Checkpoint) -> tuple[Node, ...]:
    """Return the operations that the backward pass runs again: PyTorch stops once the last kept tensor is there.

    An operator that keeps only its inputs hands them over before its kernel runs, so that the last one's kernel is spared.
    """
    operations = [inner for inner in node.body if isinstance(inner, Operation)]
    savers = [number for number, inner in enumerate(operations) if inner.saved]
    if not savers:
        return ()
    last = operations[savers[-1]]
    made = {storage for tensor in last.outputs for storage, _ in tensor.parts}
    keeps_output = any(storage in made for saved in last.saved for storage, _ in saved.tensor.parts)
    return tuple(operations[: savers[-1] + (1 if keeps_output else 0)])


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
