"""One rank of a process group that sends nothing: PyTorch's fake process group, on the fake CUDA device.

A build of PyTorch without CUDA lacks streams: others that do nothing replace them. PyTorch's engine does not start on a fake
device, so ``torch.autograd.backward``, which pipelines call, runs the graph by ``engine.backward``, with the hooks that FSDP2 registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, UntypedStorage
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.debug import _clear_fast_path_sharding_prop_cache, _clear_python_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves

from planner.verify import engine
from planner.verify.allocations import AllocationTracker


class Stream:
    """A stream, or an event of one, that does nothing."""

    def __init__(self, **_: object) -> None: ...

    def wait(self, *_: object) -> None:
        """Do nothing."""

    def record(self, *_: object) -> Stream:
        """Return an event."""
        return self

    record_event, wait_event, wait_stream = record, wait, wait


# By the operator's name, the collective, and which argument is the whole tensor; None: the result.
COLLECTIVES: dict[str, tuple[str, int | None]] = {
    "c10d::_allgather_base_": ("all-gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce-scatter", 1),
    "c10d::allreduce_": ("all-reduce", 0),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::alltoall_base_": ("all-to-all", 1),
    "c10d::send": ("send", 0),
    "c10d::recv_": ("receive", 0),
    "_c10d_functional::all_gather_into_tensor": ("all-gather", None),
    "_c10d_functional::reduce_scatter_tensor": ("reduce-scatter", 0),
    "_c10d_functional::all_reduce": ("all-reduce", 0),
    "_c10d_functional::all_to_all_single": ("all-to-all", 0),
}


@contextmanager
def mesh(rank: int, sizes: dict[str, int]) -> Iterator[DeviceMesh]:
    """Be a rank of a mesh of devices inside."""
    dist.init_process_group("fake", rank=rank, world_size=prod(sizes.values()), store=FakeStore())
    try:
        yield init_device_mesh("cuda", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    finally:
        dist.destroy_process_group()
        _clear_fast_path_sharding_prop_cache()  # type: ignore[no-untyped-call] # of meshes whose groups no longer exist
        _clear_python_sharding_prop_cache()  # type: ignore[no-untyped-call] # untyped in torch


class RankTracker(AllocationTracker):  # type: ignore[no-untyped-call] # untyped in torch
    """Tracks the storages of a rank, which may be resized, and the bytes of its collectives.

    A DTensor runs operators on its local tensor, which is tracked. The fake tensors on which it propagates shapes use no memory.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.sent: Counter[str] = Counter()
        self.propagating = False

    def track(self, tensors: Iterable[object], operator: str) -> None:
        """Count the storages of tensors that are not tracked yet, except those without memory."""
        if not self.propagating:
            super().track((one for one in tensors if not is_traceable_wrapper_subclass(one)), operator)

    def resize(self, storage: UntypedStorage, size: int) -> None:
        """Count a tracked storage with another size."""
        if known := self.storages.get(id(storage)):
            reference, allocation = known
            self.storages[id(storage)] = (reference, replace(allocation, bytes=size))
            self.bytes += size - allocation.bytes
            self.peak_bytes = max(self.peak_bytes, self.bytes)

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> object:  # noqa: ANN401 - PyTorch's
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented
        if func is torch.ops._c10d_functional.wait_tensor.default:  # noqa: SLF001 - it returns its argument, on fake tensors another one
            return args[0]
        result = super().__torch_dispatch__(func, types, args, kwargs)
        name: str = func.name()  # type: ignore[no-untyped-call] # untyped in torch
        if not self.propagating and (known := COLLECTIVES.get(name.partition(".")[0])):
            collective, which = known
            whole = tree_leaves(result if which is None else args[which])
            self.sent[collective] += sum(one.numel() * one.element_size() for one in whole if isinstance(one, Tensor))
        return result


class Hooks:
    """Hooks of results, by their nodes, and callbacks for the end of a backward pass."""

    def __init__(self) -> None:
        self.of_results: dict[tuple[int, int], list[Callable[[Tensor], Tensor | None]]] = {}
        self.at_end: list[Callable[[], None]] = []

    def register(self, result: Tensor, hook: Callable[[Tensor], Tensor | None]) -> None:
        """Register a hook for the gradient of a result."""
        assert result.grad_fn is not None  # noqa: S101 - leaves have no such hooks here
        self.of_results.setdefault((result.grad_fn._sequence_nr(), result.output_nr), []).append(hook)  # noqa: SLF001 - no public name

    def run(self, node: Any, gradients: list[Any]) -> None:  # noqa: ANN401 - a type of PyTorch's that has no public name
        """Run the hooks of a node's results on their gradients."""
        for place, gradient in enumerate(gradients):
            for hook in self.of_results.pop((node._sequence_nr(), place), ()) if gradient is not None else ():  # noqa: SLF001 - the same
                changed = hook(gradient)
                gradients[place] = gradient if changed is None else changed

    def end(self) -> None:
        """Run the callbacks."""
        while self.at_end:
            self.at_end.pop(0)()


@contextmanager
def simulated(tracker: RankTracker, device: torch.device, *, checkpoints: bool) -> Iterator[None]:
    """Run parallel programs on a fake device inside: backward passes, hooks, streams, storages that are resized."""
    hooks = Hooks()
    resize, propagate = UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached  # noqa: SLF001 - no public name

    def resized(storage: UntypedStorage, size: int) -> object:
        tracker.resize(storage, size)
        return resize(storage, size)

    def propagated(*args: Any) -> object:  # noqa: ANN401 - PyTorch's
        before, tracker.propagating = tracker.propagating, True
        try:
            return propagate(*args)
        finally:
            tracker.propagating = before

    def backward(tensors: Any, grad_tensors: Any = None, *_: object, **__: object) -> None:  # noqa: ANN401 - PyTorch's
        (result,) = [tensors] if isinstance(tensors, Tensor) else tensors
        (seed,) = (grad_tensors or [None]) if not isinstance(grad_tensors, Tensor) else [grad_tensors]
        roots = [result.grad_fn]
        seed = torch.ones_like(result) if seed is None else seed
        result.detach_()  # PyTorch's engine frees saved tensors of nodes that have other references
        seeds = [seed]
        del seed, result
        engine.backward(roots, device, lambda _: None, checkpoints=checkpoints, seeds=seeds, before=hooks.run)
        hooks.end()

    def on_data(run: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object) -> object:
            with _disable_current_modes():
                return run(*args)

        return wrapper

    def register_hook(result: Tensor, hook: Callable[[Tensor], Tensor | None]) -> None:
        hooks.register(result, hook)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(DeviceMesh, "__getitem__", on_data(DeviceMesh.__getitem__)))
        stack.enter_context(mock.patch.object(DeviceMesh, "_concatenate", staticmethod(on_data(DeviceMesh._concatenate))))  # noqa: SLF001
        streams = {"Stream": Stream, "Event": Stream, "current_stream": Stream, "stream": lambda _: nullcontext()}
        streams |= {"get_rng_state": lambda *_: None, "set_rng_state": lambda *_: None}
        for name, stub in streams.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, stub))
        stack.enter_context(mock.patch.object(torch.cuda, "current_device", return_value=0))
        stack.enter_context(mock.patch.object(torch.accelerator, "current_stream", Stream))
        stack.enter_context(mock.patch.object(UntypedStorage, "resize_", resized))
        stack.enter_context(mock.patch.object(UntypedStorage, "data_ptr", lambda storage: storage._cdata))  # noqa: SLF001 - fake ones have none
        stack.enter_context(mock.patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", propagated))
        stack.enter_context(mock.patch.object(Tensor, "register_hook", register_hook))
        stack.enter_context(mock.patch("torch.autograd.backward", backward))
        ours = SimpleNamespace(queue_callback=hooks.at_end.append)
        stack.enter_context(mock.patch.object(torch.autograd.Variable, "_execution_engine", ours))
        yield
