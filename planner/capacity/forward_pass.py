"""The forward pass of a training step: an output comes alive, and dies when nobody reads or keeps it any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.capacity.alive import Alive
from planner.capacity.figures import Phase
from planner.trace.sizes import Size, maximum
from planner.trace.tape import Checkpoint, Node, Operation, Repeat, Visitor, visit
from planner.trace.tensor import Storage, Tensor


class ForwardPass(Visitor):
    """Walks operators in their order. ``kept`` maps what stays for the backward pass to 1 or 0 (a size): whether it does.

    ``phase`` is what its moments are noted under: the backward pass runs recomputed stretches forward once more.
    """

    def __init__(self, alive: Alive, nodes: Sequence[Node], kept: Mapping[Storage, Size], phase: Phase) -> None:
        self.alive, self.kept, self.phase = alive, kept, phase
        self.storages: dict[Storage, Size] = {}  # bytes that each one now holds
        self.until_the_end: Size = 0  # of what nobody keeps and yet lives until the pass ends, such as autocast's copies of weights
        # Storages from outside of equal layers: what their copies read goes in the last one, at the moments in ``freed``.
        self.shared_by_copies: set[Storage] = set()
        self.freed: list[tuple[int, Size]] = []
        # The stand-in for what enters a copy, and whether (1 or 0, a size) others alone keep what enters the first one: it then stays, in
        # the first copy from the moment in ``once`` on.
        self.entering: Storage | None = None
        self.kept_beside: Size = 0
        self.once: list[tuple[int, Size]] = []
        # How many readers of a storage are still to come, by whether (1 or 0, a size) they read this one: sizes may decide in which of two
        # storages a tensor lies.
        self.readers: dict[Storage, dict[Size, int]] = {}
        for node, _ in visit(nodes):
            for tensor in node.inputs:
                for storage, times in tensor.parts:
                    readers = self.readers.setdefault(storage, {})
                    readers[times] = readers.get(times, 0) + 1

    def run(self, nodes: Sequence[Node]) -> None:
        """Walk the whole pass."""
        self.go(nodes)
        self.alive.add(-self.until_the_end)

    def run_again(self, nodes: Sequence[Node]) -> None:
        """Walk what is recomputed. Its variables go all at once when it stops, so that only what is kept stays."""
        self.go(nodes)
        for storage, size in self.storages.items():
            self.alive.add(self.alive.size(storage.bytes) * self.kept.get(storage, 0) - size)

    def operation(self, node: Operation) -> None:
        """Make the outputs, and free inputs that have no further readers."""
        read = {storage for tensor in node.inputs for storage, _ in tensor.parts}
        for storage in dict.fromkeys(tensor.storage for tensor in node.outputs if tensor.storage not in read):
            self.storages[storage] = self.alive.size(storage.bytes)
            self.alive.add(self.storages[storage])
            if storage.until_forward_ends:
                self.until_the_end = self.until_the_end + self.storages[storage] * (1 - self.kept.get(storage, 0))
        if node.outputs:  # else it only marks the end of a variable's scope
            phase: Phase = "loss" if node.component == "logits" else self.phase
            self.alive.note(phase, f"{node.name} at {node.path}", node.temporary)
        self.read(node.inputs)
        for tensor in node.outputs:
            if tensor.storage not in self.readers:
                self.shrink(tensor.storage)

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
        """Free the storage as far as neither readers to come nor the backward pass need it."""
        readers = self.readers.get(storage, {})
        if storage in self.storages and 1 not in readers and not storage.until_forward_ends and not storage.throughout:
            kept = self.kept.get(storage, 0)
            left = self.alive.size(storage.bytes) * (maximum(kept, *readers) if readers else kept)
            if storage is self.entering and not readers:
                beside = self.alive.size(storage.bytes) * self.kept_beside
                self.once.append((len(self.alive.moments), beside))
                left = left + beside
            if storage in self.shared_by_copies:
                self.freed.append((len(self.alive.moments), self.storages[storage] - left))
            else:
                self.alive.add(left - self.storages[storage])
            self.storages[storage] = left

    def checkpoint(self, node: Checkpoint) -> None:
        """Run the stretch: inside, nothing is kept; its inputs are held until it has run."""
        self.go(node.body)
        self.read(node.inputs)

    def repeat(self, node: Repeat) -> None:
        """Walk one copy, whose input is what the copy before made, and extend it to all."""
        bytes_before, first_moment, until_the_end_before = self.alive.bytes, len(self.alive.moments), self.until_the_end
        carry = node.carry
        entering = self.storages.pop(carry.first.storage, 0)
        self.shared_by_copies, self.freed, self.once = set(self.storages), [], []
        self.entering = carry.inside.storage
        kept_inside = self.kept.get(self.entering, 0)
        self.kept_beside = maximum(self.kept.get(carry.first.storage, 0), kept_inside) - kept_inside
        self.storages[self.entering] = entering
        self.go(node.body)
        self.shared_by_copies, self.entering = set(), None
        self.storages[carry.last.storage] = self.storages.pop(carry.made.storage, 0)
        self.until_the_end = self.until_the_end + (self.until_the_end - until_the_end_before) * (node.count - 1)
        copies, left = len(self.alive.moments) - first_moment, self.alive.bytes - bytes_before
        self.alive.add_other_copies(bytes_before, first_moment, node.count)
        self.alive.free_in_last_copy(self.freed, copies, node.count)
        self.alive.count_once(self.once, copies, node.count)
        if self.freed:  # the last copy but one, which frees nothing from outside, may be the peak
            walked = self.alive.moments[first_moment : first_moment + copies]
            self.alive.moments += [moment._replace(bytes=moment.bytes + left * (node.count - 2)) for moment in walked]
