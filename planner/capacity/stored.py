"""Recomputed graphs that a variable outside a checkpointed region keeps alive.

PyTorch's non-reentrant checkpoint recomputes a region to get its saved tensors, and records a graph of it that nothing runs backward
(torch/utils/checkpoint.py). If the region stores a tensor outside, that graph stays alive with the tensor, and so does all that it saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from planner.capacity.activations import outermost, saved_for_backward
from planner.trace.nodes import Checkpoint, Node, Operation, operations
from planner.trace.sizes import Size, ceil_div, total
from planner.trace.tensor import Storage


class StoredGraph(NamedTuple):
    """An operation that stores a tensor outside its region, and what its recomputed graph saves: storages, each 1 or 0 (a size) times."""

    operation: Operation
    saved: dict[Storage, Size]

    def bytes(self, block: int) -> Size:
        """Allocated bytes of the storages."""
        return total(ceil_div(storage.bytes, block) * block * times for storage, times in self.saved.items())


def stored_graphs(region: Checkpoint) -> list[StoredGraph]:
    """Return the recomputed graphs that outlive a region."""
    stores = [node for node, _ in operations(region.again) if node.stored_in]
    if not stores:
        return []
    shared = {storage for tensor in region.inputs[1:] for storage, _ in tensor.parts}  # by regions, which keep it alive
    times = {storage: times for storage, times in saved_for_backward(region.body).times.items() if storage not in shared}
    return [StoredGraph(node, dict(_saved(region.body, node, times))) for node in stores]


def _saved(body: Sequence[Node], store: Operation, times: dict[Storage, Size]) -> Iterator[tuple[Storage, Size]]:
    """Yield what the operators save from which the stored tensors are computed, and the tensors if the module has no buffer for them."""
    graph = {tensor.origin for tensor in store.inputs}
    for node, _ in reversed(list(operations(body))):
        if any(tensor.origin in graph for tensor in node.outputs):
            graph |= {tensor.origin for tensor in node.inputs if tensor.needs_grad}
            yield from ((part, times[part]) for tensor in node.saved_tensors for part, _ in tensor.parts if part in times)
    if store.stored_in == "model":
        yield from ((tensor.storage, 1) for tensor in store.inputs)


def bytes_between_steps(nodes: Iterable[Node], block: int) -> Size:
    """Return the bytes of graphs that modules keep until the next forward pass."""
    regions = ((node, copies) for node, copies in outermost(nodes) if isinstance(node, Checkpoint))
    return total(
        copies * graph.bytes(block) for node, copies in regions for graph in stored_graphs(node) if graph.operation.stored_in == "module"
    )
