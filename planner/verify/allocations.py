"""Allocated storages and FLOPs, operator by operator."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

aten = torch.ops.aten


def dtype_name(tensor: Tensor) -> str:
    """Return the tensor's dtype as a spec writes it: bfloat16."""
    return str(tensor.dtype).removeprefix("torch.")


def flash_forward(q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """FLOPs of the CPU's fused attention: those of the CUDA kernels."""
    return int(sdpa_flop_count(q.shape, k.shape, v.shape))  # type: ignore[no-untyped-call] # untyped in torch


def flash_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """FLOPs of its backward pass: five products for the forward pass's two."""
    return int(sdpa_backward_flop_count(gradient.shape, q.shape, k.shape, v.shape))  # type: ignore[no-untyped-call] # untyped in torch


def grouped(a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    """FLOPs of a grouped product: a [rows, K] with b [groups, K, N] row by row, or a [M, rows] with b [rows, N]."""
    return 2 * a.shape[-2] * a.shape[-1] * b.shape[-1]


def convolution_backward(gradient: Tensor, _: Tensor, weight: Tensor, *options: Any, **__: object) -> int:  # noqa: ANN401 - a list among them
    """FLOPs of a convolution's backward pass: those of its forward pass per factor. torch.utils.flop_counter ignores the groups."""
    needed = options[-1]  # of input, weight and bias
    return int(2 * gradient.numel() * weight[0].numel() * (needed[0] + needed[1]))


# Operators for which torch.utils.flop_counter has no formula, or a wrong one.
OWN_FORMULAS: dict[object, Callable[..., int]] = {
    aten.convolution_backward: convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: flash_forward,  # noqa: SLF001 - operators without a public name
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flash_backward,  # noqa: SLF001 - the same
    aten._grouped_mm: grouped,  # noqa: SLF001 - the same
}


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocated storage: the first tensor seen on it and the operator that made it."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    operator: str


class AllocationTracker(TorchDispatchMode):  # type: ignore[no-untyped-call] # untyped in torch
    """Counts FLOPs and tracks every storage that an operator makes until it is freed.

    A storage is known by its Python object, which PyTorch keeps the same as long as the storage lives; addresses are used again.
    The backward passes of indexing and of max and topk fill zeros in place, but under a mode a copy (FunctionsManual.cpp: index_backward,
    value_selecting_reduction_backward): here in place.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # untyped in torch
        self.device = device.type
        self.storages: dict[int, tuple[weakref.ref[UntypedStorage], Allocation]] = {}
        self.bytes = 0
        self.start_phase()

    def start_phase(self) -> None:
        """Start a new phase for the peak and the FLOPs."""
        self.peak_bytes, self.flops = self.bytes, 0

    def track(self, tensors: Iterable[object], operator: str) -> None:
        """Count the storages of tensors on the device that are not tracked yet."""
        for tensor in tensors:
            if not isinstance(tensor, Tensor) or tensor.device.type != self.device:
                continue
            storage = tensor.untyped_storage()
            key = id(storage)
            if key in self.storages:
                continue

            def freed(_: object, key: int = key) -> None:
                self.bytes -= self.storages.pop(key)[1].bytes

            self.storages[key] = (
                weakref.ref(storage, freed),
                Allocation(tuple(tensor.shape), dtype_name(tensor), storage.nbytes(), operator),
            )
            self.bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.bytes)

    def __torch_dispatch__(
        self, func: OpOverload, _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func is aten.index_put.default and not torch.is_grad_enabled():
            func = aten._index_put_impl_.default
        if func is aten.scatter.src and not torch.is_grad_enabled():
            func = aten.scatter_.src
        result = func(*args, **kwargs)
        self.track(tree_leaves(result), str(func))
        if own_formula := OWN_FORMULAS.get(func.overloadpacket):
            self.flops += own_formula(*args, **kwargs)
        elif formula := flop_registry.get(func.overloadpacket):
            self.flops += int(formula(*args, **kwargs, out_val=result))
        return result
