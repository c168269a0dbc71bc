"""The backward pass, node by node, in the order of PyTorch's engine and with its rules for accumulating gradients.

PyTorch's own engine cannot be measured exactly: under a dispatch mode or on fake tensors it never adds gradients in place, and on a fake
device it does not start. This module therefore runs the autograd graph that PyTorch recorded. Every node is PyTorch's and computes its own
derivative; only the bookkeeping between nodes is ours (``torch/csrc/autograd/engine.cpp``, ``input_buffer.cpp``,
``functions/accumulate_grad.h``):

- of the ready nodes, the one recorded last runs first, and leaves run before all others;
- when a node has run, its results are reduced and cast to the shape and dtype of the node's inputs; then its gradients are freed, then
  its saved tensors;
- a second gradient for the same input is added in place if there is no other reference to the first one or its storage;
- a leaf keeps its gradient itself if the layout matches and there is no other reference to it, else a copy.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils.checkpoint import _CheckpointFrame

BACKWARDS = itertools.count(1)


class Gradients:
    """Gradients of nodes that have not run yet, by node and input."""

    def __init__(self, device: torch.device) -> None:
        self.waiting: dict[int, list[Any]] = {}
        # The counts of a tensor without other references than a list's.
        self.alone = self.reference_counts([torch.empty(1, device=device)], 0)

    @staticmethod
    def reference_counts(tensors: list[Any], place: int) -> tuple[int, int, int]:
        """Return the references to the tensor at this index in Python and in C++, and those to its storage."""
        tensor = tensors[place]
        storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)  # noqa: SLF001 - counts have no public name
        return sys.getrefcount(tensor), tensor._use_count(), storage  # noqa: SLF001 - the same

    def add(self, node: int, inputs: int, place: int, gradients: list[Any], which: int) -> None:
        """Move ``gradients[which]`` to one of the node's inputs, and add it to a gradient that is there."""
        waiting = self.waiting.setdefault(node, [None] * inputs)
        if waiting[place] is None:
            waiting[place] = gradients[which]
        elif self.reference_counts(waiting, place) == self.alone and is_dense(waiting[place]):
            waiting[place].add_(gradients[which])
        else:
            waiting[place] = waiting[place] + gradients[which]
        gradients[which] = None

    def accumulate(self, leaf: Tensor, gradients: list[Any]) -> None:
        """Accumulate a leaf's gradient."""
        fits = all(mine == its or size == 1 for mine, its, size in zip(gradients[0].stride(), leaf.stride(), leaf.shape, strict=True))
        if leaf.grad is not None:
            leaf.grad.add_(gradients[0])
        elif fits and self.reference_counts(gradients, 0)[:2] == self.alone[:2]:
            leaf.grad = gradients[0].detach()
        else:
            leaf.grad = torch.empty_like(leaf).copy_(gradients[0])
        gradients.clear()


def is_dense(tensor: Tensor) -> bool:
    """Whether the tensor's elements fill a block of memory without gaps or overlaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def run(nodes: list[Any], gradients: list[Any]) -> list[Any]:
    """Run the one node in the list on its gradients, and fit its results; then free the gradients, and with the node its saved tensors."""
    node = nodes.pop()
    edges = node.next_functions
    if all(gradient is None for gradient in gradients):
        return [None] * len(edges)
    needs: tuple[bool, ...] = ()
    if not callable(node):  # a node written in Python, which gets zeros for missing gradients, and has results for arguments of any type
        node, inputs, needs = node.apply, node._input_metadata, node.needs_input_grad  # noqa: SLF001 - no public name
        gradients[:] = [zeros(of) if one is None else one for one, of in zip(gradients, inputs, strict=True)]
    result = node(*gradients)
    results = list(result) if isinstance(result, tuple) else [result]
    del result
    if needs:
        needed = [one for one, need in zip(results, needs, strict=False) if need]
        results[:] = [needed.pop(0) if following else None for following, _ in edges]
    for which, (following, place) in enumerate(edges):
        if following and results[which] is not None:
            conform(results, which, following._input_metadata[place])  # noqa: SLF001 - no public name
    gradients.clear()
    return results


def zeros(metadata: Any) -> Tensor:  # noqa: ANN401 - a type of PyTorch's that has no public name
    """Return zeros of the shape and dtype described."""
    return torch.zeros(tuple(metadata.shape), dtype=metadata.dtype, device=metadata.device)


def conform(results: list[Any], which: int, metadata: Any) -> None:  # noqa: ANN401 - a type of PyTorch's that has no public name
    """Reduce and cast a gradient to the shape and dtype of the tensor it belongs to."""
    if results[which].shape != torch.Size(metadata.shape):
        results[which] = results[which].sum_to_size(tuple(metadata.shape))
    if results[which].dtype != metadata.dtype:
        results[which] = results[which].to(metadata.dtype)


def graph(root: Any) -> tuple[dict[int, Any], dict[int, int]]:  # noqa: ANN401 - nodes have members without public names
    """Return all nodes reachable from ``root``, and how many others must run before each."""
    nodes, waits_for, pending = {id(root): root}, {id(root): 0}, [root]
    while pending:
        for following, _ in pending.pop().next_functions:
            if following is None:
                continue
            if id(following) not in nodes:
                nodes[id(following)] = following
                waits_for[id(following)] = 0
                pending.append(following)
            waits_for[id(following)] += 1
    return nodes, waits_for


def released(frame: _CheckpointFrame, number: int) -> bool:
    """Whether the nodes of a checkpointed region have read all that was recomputed; then release what the checkpoint holds.

    PyTorch's engine releases the saved tensors of nodes that have run, and so the checkpoint, even if recomputed tensors refer to them.
    """
    done = frame.is_recomputed[number] and not frame.recomputed[number]
    if done:
        vars(frame).update(recompute_fn=None, saved_args=[])
    return done


def backward(
    roots: list[Any],
    device: torch.device,
    arrived: Callable[[Tensor], None],
    *,
    checkpoints: bool = False,
    seeds: list[Tensor] | None = None,
    before: Callable[[Any, list[Any]], None] | None = None,
) -> None:
    """Run the graph of ``roots[0]``, the node of a scalar loss, and call ``arrived`` with every leaf that has its gradient.

    ``checkpoints``: whether the graph has checkpointed regions. ``seeds``: the gradient of the root's first result, by default 1.
    ``before`` is called with each node and the gradients of its results, which it may replace.

    The node is removed from the list. With another reference to it, or to the loss, its saved tensors would not be freed in time.
    """
    gradients = Gradients(device)
    # Allocated until the end, as in loss.backward().
    seeds = seeds or [torch.ones((), device=device, dtype=roots[0]._input_metadata[0].dtype)]  # noqa: SLF001 - no public name
    gradients.waiting[id(roots[0])] = [*seeds, *[None] * (len(roots[0]._input_metadata) - 1)]  # noqa: SLF001 - the same
    ready = [(0, id(roots[0]))]
    nodes, waits_for = graph(roots.pop())
    # checkpoint recomputes once per backward pass, which it identifies by the engine's number.
    number = next(BACKWARDS)
    frames = [frame for frame in gc.get_objects() if type(frame) is _CheckpointFrame] if checkpoints else []
    with torch.no_grad(), mock.patch("torch._C._current_graph_task_id", lambda: number):  # noqa: PT008 - a Mock would record each call
        while ready:
            _, key = heapq.heappop(ready)
            waiting = gradients.waiting.pop(key, [])
            if hasattr(nodes[key], "variable"):
                leaf = nodes.pop(key).variable
                gradients.accumulate(leaf, waiting)
                arrived(leaf)
                continue
            edges = nodes[key].next_functions
            if before:
                before(nodes[key], waiting)
            results = run([nodes.pop(key)], waiting)
            frames = [frame for frame in frames if not released(frame, number)]
            for which, (following, place) in enumerate(edges):
                if not following:
                    continue
                if results[which] is not None:
                    inputs = len(following._input_metadata)  # noqa: SLF001 - no public name
                    gradients.add(id(following), inputs, place, results, which)
                waits_for[id(following)] -= 1
                if waits_for[id(following)] == 0:
                    heapq.heappush(ready, (-following._sequence_nr(), id(following)))  # noqa: SLF001 - no public name
