"""The forward pass of a training step: outputs are allocated, and freed once no operator reads or saves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.capacity.activations import saved_for_backward
from planner.capacity.figures import Phase
from planner.capacity.stored import StoredGraph, stored_graphs
from planner.capacity.timeline import MemoryTimeline, Place
from planner.trace.nodes import Boundary, Checkpoint, Node, Operation, Repeat, Visitor, operations, visit
from planner.trace.sizes import Size, maximum, total
from planner.trace.tensor import Storage, Tensor


class ForwardPass(Visitor):
    """Visits operators in order. ``saved`` maps storages to 1 or 0 (a size): whether they are saved for backward.

    ``phase`` is the phase of its samples: the backward pass recomputes checkpointed regions with another one.
    """

    def __init__(
        self, timeline: MemoryTimeline, nodes: Sequence[Node], saved: Mapping[Storage, Size], phase: Phase, *, first_step: bool = False
    ) -> None:
        self.timeline, self.saved, self.phase, self.first_step = timeline, saved, phase, first_step
        self.graphs: list[StoredGraph] = []  # of the previous step, which modules keep until the current region replaces them
        self.storages: dict[Storage, Size] = {}  # allocated bytes of each
        self.until_the_end: Size = 0  # bytes not saved that are freed when the pass ends, e.g. autocast's casts of weights
        # Storages from outside equal layers. The last copy frees them, at the samples in ``freed``.
        self.shared_by_copies: set[Storage] = set()
        self.freed: list[tuple[int, Size]] = []
        # The placeholder for a copy's input, and 1 or 0 (a size): whether only operators outside save the first copy's input, or read it
        # later. It then stays allocated, counted once, in the first copy from the sample in ``once`` on.
        self.entering: Storage | None = None
        self.saved_outside: Size = 0
        self.once: list[tuple[int, Size]] = []
        self.saved_by_copies: dict[Storage, Size] = {}  # of first copies' inputs that are read later: whether copies save them
        self.allocated: set[Storage] = set()  # from the start: outputs that a recomputed region has saved
        # How many operators have yet to read a storage, by 1 or 0 (a size): whether they read this one of a tensor's possible storages.
        self.readers: dict[Storage, dict[Size, int]] = {}
        regions = (node for node, _ in visit(nodes) if isinstance(node, Checkpoint))
        self.without_graph = {id(one) for region in regions for one, _ in operations(region.body) if one.of_graph}
        for node, _ in visit(nodes):
            for tensor in () if id(node) in self.without_graph else node.inputs:
                for storage, times in tensor.parts:
                    readers = self.readers.setdefault(storage, {})
                    readers[times] = readers.get(times, 0) + 1

    def run(self, nodes: Sequence[Node]) -> None:
        """Run the whole pass."""
        self.go(nodes)
        self.timeline.add(-self.until_the_end)

    def run_again(self, nodes: Sequence[Node], outputs_saved: Iterable[Tensor]) -> None:
        """Recompute a checkpointed region, except for saved outputs. When it stops, everything but saved tensors is freed."""
        self.allocated = {tensor.storage for tensor in outputs_saved}
        self.go(nodes)
        for storage, size in self.storages.items():
            self.timeline.add(self.timeline.size(storage.bytes) * self.saved.get(storage, 0) - size)

    def operation(self, node: Operation) -> None:
        """Allocate the outputs, and free inputs without further readers."""
        read = {storage for tensor in node.inputs for storage, _ in tensor.parts}
        for storage in dict.fromkeys(tensor.storage for tensor in node.outputs if tensor.storage not in read):
            self.storages[storage] = self.timeline.size(storage.bytes)
            self.timeline.add(0 if storage in self.allocated else self.storages[storage])
            if storage.until_forward_ends:
                self.until_the_end = self.until_the_end + self.storages[storage] * (1 - self.saved.get(storage, 0))
        if node.outputs:  # else it marks the end of a variable's scope
            phase: Phase = "loss" if node.component == "logits" else self.phase
            self.timeline.sample(phase, f"{node.name} at {node.path}", node.temporary)
        if node.stored_in:
            self.store(node)
        self.read(() if id(node) in self.without_graph else node.inputs)
        for tensor in node.outputs:
            if tensor.storage not in self.readers:
                self.shrink(tensor.storage)

    def boundary(self, node: Boundary) -> None:
        """Allocate and free what devices share at a boundary."""
        self.timeline.pass_boundary(Place(node.unit, node.starts, forward=True), self.phase)

    def read(self, tensors: Iterable[Tensor]) -> None:
        """Count down the readers of the tensors' storages."""
        for tensor in tensors:
            for storage, times in tensor.parts:
                readers = self.readers[storage]
                readers[times] -= 1
                if not readers[times]:
                    del readers[times]
                    self.shrink(storage)

    def shrink(self, storage: Storage) -> None:
        """Free the storage, unless further readers or the backward pass need it."""
        readers = self.readers.get(storage, {})
        if storage in self.storages and 1 not in readers and not storage.until_forward_ends and not storage.throughout:
            saved = self.saved.get(storage, 0)
            left = self.timeline.size(storage.bytes) * (
                maximum(saved, *readers) if readers else saved - self.saved_by_copies.get(storage, 0)
            )
            if storage is self.entering and not readers:
                beside = self.timeline.size(storage.bytes) * self.saved_outside
                self.once.append((len(self.timeline.samples), beside))
                left = left + beside
            if storage in self.shared_by_copies:
                self.freed.append((len(self.timeline.samples), self.storages[storage] - left))
            else:
                self.timeline.add(left - self.storages[storage])
            self.storages[storage] = left

    def store(self, node: Operation) -> None:
        """Free what the operation replaces: the graph of the previous step, or the tensors of the forward pass."""
        freed: Size = 0
        if self.phase == "forward" and node.stored_in == "module" and not self.first_step:
            freed = total(graph.bytes(self.timeline.block) for graph in self.graphs if graph.operation is node)
        elif node.stored_in == "cache":
            freed = total(self.timeline.size(tensor.bytes) for tensor in node.inputs)
        elif self.phase == "backward" and node.stored_in == "model":
            freed = total(self.timeline.size(storage.bytes) for storage in dict.fromkeys(tensor.storage for tensor in node.inputs))
        self.timeline.add(-freed)

    def checkpoint(self, node: Checkpoint) -> None:
        """Run a checkpointed region, which saves nothing inside. Its inputs stay allocated until it has run."""
        self.graphs = stored_graphs(node)
        self.go(node.body)
        self.read(node.inputs)

    def repeat(self, node: Repeat) -> None:
        """Run one copy, whose input is the previous copy's output, and extend it to all."""
        first_change, first_sample, until_the_end_before = len(self.timeline.changes), len(self.timeline.samples), self.until_the_end
        carry = node.carry
        entering = self.storages.pop(carry.first.storage, 0)
        self.read([carry.first])
        read_later = 1 if self.readers[carry.first.storage] else 0
        outside = set(self.storages)
        self.shared_by_copies, self.freed, self.once = outside, [], []
        self.entering = carry.inside.storage
        saved_inside = self.saved.get(self.entering, 0)
        self.saved_outside = maximum(self.saved.get(carry.first.storage, 0), saved_inside, read_later) - saved_inside
        self.storages[self.entering] = entering
        self.go(node.body)
        self.shared_by_copies, self.entering = set(), None
        self.storages[carry.last.storage] = self.storages.pop(carry.made.storage, 0)
        self.until_the_end = self.until_the_end + (self.until_the_end - until_the_end_before) * (node.count - 1)
        # Of what is left for operators outside, the other copies leave only what they save themselves.
        left_outside = [storage for storage in self.storages.keys() - outside - {carry.last.storage} if self.readers.get(storage)]
        saved_by_copies = saved_for_backward(node.body).times if left_outside else {}
        left = self.timeline.since(first_change)
        for storage in left_outside:
            times = saved_by_copies.get(storage, 0) if storage in self.saved else 0  # not if it is copied to the host
            left = left - self.storages[storage] + self.timeline.size(storage.bytes) * times
        copies = len(self.timeline.samples) - first_sample
        self.timeline.add_other_copies(left, first_sample, node.count)
        self.timeline.free_in_last_copy(self.freed, copies, node.count)
        self.timeline.count_once(self.once, copies, node.count)
        if read_later:
            self.storages[carry.first.storage] = self.timeline.size(carry.first.storage.bytes) * self.saved_outside
            self.saved_by_copies[carry.first.storage] = saved_inside
        if self.freed:  # the last copy but one, which frees nothing from outside, may be the peak
            self.timeline.add_samples(self.timeline.samples[first_sample : first_sample + copies], left * (node.count - 2))
