"""Which storages are alive, operator by operator."""

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


def flash_forward(q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """FLOPs of the CPU's fused attention: those of the CUDA kernels."""
    return int(sdpa_flop_count(q.shape, k.shape, v.shape))  # type: ignore[no-untyped-call] # untyped in torch


def flash_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """FLOPs of its backward pass, likewise: five products to the forward's two."""
    return int(sdpa_backward_flop_count(gradient.shape, q.shape, k.shape, v.shape))  # type: ignore[no-untyped-call] # untyped in torch


def grouped(a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    """Count the FLOPs of products by group: a [rows, K] with b [groups, K, N] row by row, or a [M, rows] with b [rows, N]."""
    return 2 * a.shape[-2] * a.shape[-1] * b.shape[-1]


# Operators with matrix products in them for which PyTorch's counter has no formula.
LEFT_OUT: dict[object, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: flash_forward,  # noqa: SLF001 - operators without a public name
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flash_backward,  # noqa: SLF001 - the same
    aten._grouped_mm: grouped,  # noqa: SLF001 - the same
}


@dataclass(frozen=True, slots=True)
class Made:
    """A live storage: the first tensor seen on it and the operator that made it."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    operator: str


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call] # untyped in torch
    """Counts FLOPs and follows every storage that an operator makes until its last holder lets go of it.

    A storage is known by its Python object, which PyTorch keeps the same as long as the storage lives; addresses are used again.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # untyped in torch
        self.device = device.type
        self.storages: dict[int, tuple[weakref.ref[UntypedStorage], Made]] = {}
        self.bytes = 0
        self.start_phase()

    def start_phase(self) -> None:
        """From here on, peak and FLOPs are those of a new phase."""
        self.peak_bytes, self.peak_operator = self.bytes, ""
        self.flops = 0  # by the formulas of torch.utils.flop_counter
        self.flops_left_out: dict[str, int] = {}  # by operator

    def follow(self, tensors: Iterable[object], operator: str) -> None:
        """Count the storages of tensors on the device that are not yet known."""
        for tensor in tensors:
            if not isinstance(tensor, Tensor) or tensor.device.type != self.device:
                continue
            storage = tensor.untyped_storage()
            key = id(storage)
            if key in self.storages:
                continue
            made = Made(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), storage.nbytes(), operator)

            def forget(_: object, key: int = key) -> None:
                self.bytes -= self.storages.pop(key)[1].bytes

            self.storages[key] = (weakref.ref(storage, forget), made)
            self.bytes += made.bytes
        if self.bytes > self.peak_bytes:
            self.peak_bytes, self.peak_operator = self.bytes, operator

    def __torch_dispatch__(
        self, func: OpOverload, _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.follow(tree_leaves(result), str(func))
        self.count(func, args, kwargs or {}, result)
        return result

    def count(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: object) -> None:
        """Add the operator's FLOPs, if it multiplies matrices."""
        operator = func.overloadpacket
        if formula := flop_registry.get(operator):
            self.flops += int(formula(*args, **kwargs, out_val=result))
        elif left_out := LEFT_OUT.get(operator):
            name = str(operator)
            self.flops_left_out[name] = self.flops_left_out.get(name, 0) + left_out(*args, **kwargs)
