"""The backward pass, node by node, in the order of PyTorch's engine and with its rules for adding gradients up.

PyTorch's own engine cannot be watched exactly: while a dispatch mode looks on, or on fake tensors, it never adds gradients in place, and on
a device that is not there it does not start at all. So the autograd graph that PyTorch recorded is walked here. Every node is PyTorch's and
computes its own derivative; only the bookkeeping between nodes is ours (``torch/csrc/autograd/engine.cpp``, ``input_buffer.cpp``,
``functions/accumulate_grad.h``):

- the ready node that was recorded last runs first, leaves before all others;
- a node's gradients are dropped when it has run, then its saved tensors; then its results are reduced to the shape and cast to the dtype of
  what they are gradients of;
- a second gradient for the same input is added in place if nothing else holds the first one or its storage;
- a leaf takes its gradient as it is if its layout fits and nothing else holds it, else it takes a copy.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from typing import Any
from unittest import mock

import torch
from torch import Tensor

BACKWARDS = itertools.count(1)


class Buffers:
    """Gradients that wait for their node, by node and input."""

    def __init__(self, device: torch.device) -> None:
        self.waiting: dict[int, list[Tensor | None]] = {}
        # What a tensor looks like that only its place in a list holds.
        self.alone = (sys.maxsize, sys.maxsize, sys.maxsize)
        self.alone = self.holders([torch.empty(1, device=device)], 0)

    @staticmethod
    def holders(tensors: list[Tensor | None], place: int) -> tuple[int, int, int]:
        """How many hold the tensor in this place: in Python, in C++, and its storage."""
        tensor = tensors[place]
        assert tensor is not None  # noqa: S101 - the caller looked
        storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)  # noqa: SLF001 - counts have no public name
        return sys.getrefcount(tensor), tensor._use_count(), storage  # noqa: SLF001

    def sole(self, tensors: list[Tensor | None], place: int, *, storage: bool) -> bool:
        """Whether nothing but this place holds the tensor (and, if asked, its storage)."""
        held = self.holders(tensors, place)
        return held == self.alone if storage else held[:2] == self.alone[:2]

    def add(self, node: int, inputs: int, place: int, gradients: list[Tensor | None], which: int) -> None:
        """Move ``gradients[which]`` to the node's input, adding it to what waits there."""
        waiting = self.waiting.setdefault(node, [None] * inputs)
        if waiting[place] is None:
            waiting[place], gradients[which] = gradients[which], None
            return
        if self.sole(waiting, place, storage=True) and dense(waiting[place]):
            waiting[place].add_(gradients[which])  # type: ignore[union-attr]
        else:
            waiting[place] = waiting[place] + gradients[which]  # type: ignore[operator]
        gradients[which] = None


def dense(tensor: Tensor | None) -> bool:
    """Whether the tensor's elements fill a block of memory without gaps or overlaps, in any order of dimensions."""
    assert tensor is not None  # noqa: S101 - the caller looked
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def accumulate(variable: Tensor, gradients: list[Tensor | None], buffers: Buffers) -> None:
    """Give a leaf its gradient."""
    gradient = gradients[0]
    assert gradient is not None  # noqa: S101 - a leaf is reached by a gradient or not at all
    strides = [(s, t) for s, t, size in zip(gradient.stride(), variable.stride(), gradient.shape, strict=True) if size != 1]
    fits = all(s == t for s, t in strides)
    del gradient
    if variable.grad is not None:
        variable.grad.add_(gradients[0])  # type: ignore[arg-type]
    elif fits and buffers.sole(gradients, 0, storage=False):
        variable.grad = gradients[0].detach()  # type: ignore[union-attr]
    else:
        variable.grad = torch.empty_like(variable).copy_(gradients[0])  # type: ignore[arg-type]
    gradients.clear()


def backward(roots: list[Any], device: torch.device) -> None:
    """Run the graph behind ``roots[0]``, the node that made a scalar loss, and give every leaf its gradient.

    The node is taken out of the list: no other reference to it, or to the loss, may be held, or its saved tensors outlive their use.
    """
    root = roots.pop()
    nodes: dict[int, Any] = {id(root): root}
    waits_for: dict[int, int] = {id(root): 0}
    pending = [root]
    while pending:
        for following, _ in pending.pop().next_functions:
            if following is None:
                continue
            if id(following) not in nodes:
                nodes[id(following)] = following
                waits_for[id(following)] = 0
                pending.append(following)
            waits_for[id(following)] += 1
    buffers = Buffers(device)
    seed = torch.ones((), device=device, dtype=root._input_metadata[0].dtype)  # noqa: SLF001 - alive until the end, as in loss.backward()
    buffers.waiting[id(root)] = [seed]
    ready = [(-root._sequence_nr(), id(root))]  # noqa: SLF001
    del root
    # Recomputation under checkpoint happens once in each backward pass, which it knows by the engine's number for it.
    this = next(BACKWARDS)
    with torch.no_grad(), mock.patch.object(torch._C, "_current_graph_task_id", return_value=this):  # noqa: SLF001
        while ready:
            _, key = heapq.heappop(ready)
            node = nodes.pop(key)
            gradients = buffers.waiting.pop(key, [])
            if hasattr(node, "variable"):
                accumulate(node.variable, gradients, buffers)
                continue
            edges = node.next_functions
            if any(gradient is not None for gradient in gradients):
                arguments = tuple(gradients)
                gradients.clear()
                result = node(*arguments)
                del arguments
                results = list(result) if isinstance(result, tuple) else [result]
                del result
            else:
                results = [None] * len(edges)
            del node
            for which, (following, place) in enumerate(edges):
                if following is None:
                    results[which] = None
                    continue
                if results[which] is not None:
                    metadata = following._input_metadata  # noqa: SLF001
                    conform(results, which, metadata[place])
            for which, (following, place) in enumerate(edges):
                if following is None:
                    continue
                if results[which] is not None:
                    buffers.add(id(following), len(following._input_metadata), place, results, which)  # noqa: SLF001
                waits_for[id(following)] -= 1
                if waits_for[id(following)] == 0:
                    heapq.heappush(ready, (-following._sequence_nr(), id(following)))  # noqa: SLF001


def conform(results: list[Tensor | None], which: int, metadata: Any) -> None:
    """Reduce a gradient to the shape and cast it to the dtype of what it is a gradient of."""
    gradient = results[which]
    assert gradient is not None  # noqa: S101 - the caller looked
    if gradient.shape != torch.Size(metadata.shape):
        results[which] = gradient = gradient.sum_to_size(tuple(metadata.shape))
    if gradient.dtype != metadata.dtype:
        results[which] = gradient.to(metadata.dtype)
