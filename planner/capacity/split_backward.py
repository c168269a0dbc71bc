"""The backward pass of a pipeline's stage in two parts: that of the input, and later that of the weights.

Read from PyTorch 2.13, torch/distributed/pipelining/_backward.py. ``stage_backward_input`` computes no gradient of a weight and frees no
saved tensor, since the graph is retained. It keeps the gradient that arrives at each operator that reads a weight. The graph above the last
one of these, such as the loss, is freed with it. ``stage_backward_weight`` runs those operators once more, on these gradients and for the
weights only, in the order in which modules register weights. An operator's saved tensors are freed after it has run, those of operators
that read no weight with the graph, at the end. The last gradients live until the next operator has run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from planner.capacity.activations import allocated, saved_for_backward
from planner.capacity.backward_pass import BackwardPass, Gradient, reference_counts, result_of
from planner.capacity.forward_pass import ForwardPass
from planner.capacity.timeline import MemoryTimeline
from planner.trace.nodes import Boundary, Node, Operation, Repeat, operations
from planner.trace.sizes import Size, total
from planner.trace.tensor import Storage, Tensor

Captured = Mapping[Tensor, Sequence[tuple[Tensor, Gradient]]]  # by the output of the operator


class Split(NamedTuple):
    """The timeline of a microbatch's passes, and its samples and allocated bytes at the end of those of the input."""

    timeline: MemoryTimeline
    forward_samples: int
    input_samples: int
    waiting: Size


class InputPass(BackwardPass):
    """Computes gradients of activations only."""

    def __init__(self, timeline: MemoryTimeline, of_weights: frozenset[Tensor]) -> None:
        super().__init__(timeline, preallocated=False, released=False, updates=MappingProxyType({}), offload=False)
        self.of_weights = of_weights
        self.captured: dict[Tensor, Sequence[tuple[Tensor, Gradient]]] = {}

    def operation(self, node: Operation) -> None:
        """Keep the gradients that arrive at an operator that reads a weight."""
        arrived = [(tensor.origin, self.gradients[tensor.origin]) for tensor in node.outputs if tensor.origin in self.gradients]
        if arrived and any(tensor.origin in self.of_weights for tensor in node.inputs if tensor.needs_grad):
            self.captured[node.outputs[0]] = arrived
            for _, gradient in arrived:
                gradient.references += 1
        super().operation(node)

    def targets(self, node: Operation) -> list[Tensor]:
        """Return the inputs that get a gradient."""
        return [tensor for tensor in super().targets(node) if tensor.origin not in self.of_weights]

    def free_saved(self, tensors: Iterable[Tensor]) -> None:
        """Free nothing."""


class WeightPass(BackwardPass):
    """Computes gradients of weights only. ``accumulates``: they are added to some that exist."""

    def __init__(self, timeline: MemoryTimeline, before: InputPass, nodes: Sequence[Node], *, accumulates: bool, norms_last: bool) -> None:
        super().__init__(timeline, preallocated=False, released=False, updates=MappingProxyType({}), offload=False)
        self.captured: Captured = before.captured
        self.of_weights, self.accumulates, self.norms_last = before.of_weights, accumulates, norms_last
        self.made_by = {made.origin: node for node, _ in operations(nodes) for made in node.outputs if made.origin in self.of_weights}
        self.before: list[Gradient] = []
        self.made: list[Gradient] = []

    def run_weights(self, nodes: Sequence[Node], saved: Mapping[Storage, Size]) -> None:
        """Run the whole pass."""
        with self.within(reference_counts(nodes), {storage: times for storage, times in saved.items() if storage in allocated(nodes)}):
            self.go(self.ordered(nodes))

    def ordered(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """Yield nodes in the order of their weights: the norms of a layer of transformers are registered after its projections."""
        layer: list[Node] = []
        for node in nodes:
            layer.append(node)
            if isinstance(node, Boundary):
                yield from sorted(layer, key=lambda one: self.norms_last and isinstance(one, Operation) and one.component == "norm")
                layer = []
        yield from layer

    def operation(self, node: Operation) -> None:
        """Run an operator that reads a weight, and those that made what it reads of weights alone."""
        if not node.outputs or node.outputs[0] not in self.captured:
            return
        self.gradients.update(self.captured[node.outputs[0]])
        self.compute(node)
        for gradient in self.before if self.accumulates else ():
            self.free_gradient(gradient)
        self.before, self.made = self.made, []

    def compute(self, node: Operation) -> None:
        """Run an operator backward for its weights."""
        super().operation(node)
        for tensor in node.inputs:
            if tensor.origin in self.gradients and tensor.origin in self.made_by:
                self.compute(self.made_by[tensor.origin])

    def targets(self, node: Operation) -> list[Tensor]:
        """Return the inputs that get a gradient."""
        return [tensor for tensor in super().targets(node) if tensor.origin in self.of_weights]

    def add(self, tensor: Tensor, gradient: Gradient) -> None:
        """Hold the gradient of a weight."""
        if tensor.leaf:
            self.made.append(gradient)
        else:
            super().add(tensor, gradient)

    def repeat(self, node: Repeat) -> None:
        """Run one copy and extend it to all."""
        first_change, first_sample = len(self.timeline.changes), len(self.timeline.samples)
        own = allocated((node,)) - {node.carry.last.storage}
        with self.within({storage: counts for storage, counts in reference_counts(node.body).items() if storage in own}, self.saved):
            self.go(self.ordered(node.body))
        self.timeline.add_other_copies(self.timeline.since(first_change), first_sample, node.count)


def of_weights(nodes: Iterable[Node]) -> frozenset[Tensor]:
    """Return weights, and tensors that are computed of weights alone."""
    found: set[Tensor] = set()
    for node, _ in operations(nodes):
        read = [tensor for tensor in node.inputs if tensor.needs_grad]
        found |= {tensor.origin for tensor in read if tensor.leaf}
        if read and all(tensor.origin in found for tensor in read):
            found |= {tensor.origin for tensor in node.outputs}
    return frozenset(found)


def outputs(nodes: Sequence[Node], output: Tensor | None) -> set[Storage]:
    """Return the storages that hold the output of a stage; None: of the last stage, which has the loss besides."""
    held = {tensor.storage for node, _ in operations(nodes) for tensor in node.outputs if tensor.storage.throughout}
    return held if output else held - {result_of(nodes).storage}


def freed_with_graph(nodes: Sequence[Node], captured: Captured, output: Tensor | None) -> Size:
    """Return the bytes of saved tensors that are freed after the backward pass of the input, and of the output of the last stage."""
    every = [node for node, _ in operations(nodes) if node.outputs]
    last = max(number for number, node in enumerate(every) if node.outputs[0] in captured)
    below, above = ({tensor.storage for node in part for tensor in node.saved_tensors} for part in (every[: last + 1], every[last + 1 :]))
    freed = above - below
    freed |= outputs(nodes, output) if output is None else set()
    return total(storage.bytes for storage in freed & allocated(nodes))


def trace_split(
    nodes: Sequence[Node], *, accumulates: bool, output: Tensor | None, norms_last: bool, arrived: Size, replaced: Size
) -> Split:
    """Return the timeline of a forward pass and of the two backward passes.

    ``output`` is that of a stage without the loss, ``replaced`` the bytes of the buffer that it replaces. ``arrived``: bytes of the input's
    gradient, which is left out from then on.
    """
    timeline, times = MemoryTimeline(), saved_for_backward(nodes).times
    ForwardPass(timeline, nodes, times, "forward").run(nodes)
    timeline.add(-replaced)
    timeline.of_forward, forward_samples = len(timeline.changes), len(timeline.samples)
    of_input = InputPass(timeline, of_weights(nodes))
    of_input.run(nodes, times, output)
    timeline.add(-freed_with_graph(nodes, of_input.captured, output) - arrived)
    waiting, input_samples = timeline.since(0), len(timeline.samples)
    WeightPass(timeline, of_input, nodes, accumulates=accumulates, norms_last=norms_last).run_weights(nodes, times)
    return Split(timeline, forward_samples, input_samples, waiting)
