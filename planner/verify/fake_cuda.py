"""A fake CUDA device: fake tensors on it use the operators and autocast rules of a GPU.

PyTorch's fake tensors have shapes, dtypes and storages without data, and dispatch like their device. A PyTorch build without CUDA lacks
three things, which this module replaces during a measurement:

- the device guard, which every operator on the device needs: the registry's empty entry gets the guard of the meta device, which does
  nothing (builds with CUDA have their own guard for fake tensors);
- the kernels of operators that are otherwise decomposed: RMS norm and the derivative of SiLU;
- the choice of the fused attention kernel, for which PyTorch queries the GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from planner.spec.records import AttentionKernel
from planner.verify import CannotMeasureError

# Values of c10::DeviceType. They never change, since saved models contain them.
CUDA, META, DEVICE_TYPES = 1, 14, 21
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"

Generation = Literal["a100", "h100"]
ORDER: dict[Generation, tuple[AttentionKernel, ...]] = {
    "a100": ("flash", "efficient", "math"),
    "h100": ("cudnn", "flash", "efficient", "math"),
}
CAPABILITY: dict[Generation, tuple[int, int]] = {"a100": (8, 0), "h100": (9, 0)}
FLASH_MAX_HEAD_DIM, CUDNN_MAX_HEAD_DIM = 256, 128
FLASH_ALIGNMENT = 8  # head_dim is padded to a multiple
MASK_ALIGNMENT = 8  # elements of a row: preprocess_mask in attention.cpp
HALF = (torch.float16, torch.bfloat16)

# Operators with a CUDA kernel and, for devices without one, a composite: torchgen's native_functions.yaml names them.
COMPOSITE_WITHOUT_CUDA = ("_fused_rms_norm", "_fused_rms_norm_backward", "silu_backward")

aten = torch.ops.aten
SDPA = F.scaled_dot_product_attention  # before context_parallel replaces it

HAS_CUDA: bool = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call] # untyped in torch


class FakeCudaUnavailableError(CannotMeasureError):
    """The installed build of PyTorch cannot simulate a CUDA device; the message gives the reason."""


@contextmanager
def device_guard() -> Iterator[None]:
    """Allow operators on CUDA devices in a build of PyTorch without CUDA."""
    try:
        library = ctypes.CDLL(str(next(Path(torch.__file__).parent.glob("lib/libc10.*"))))
        guards = (ctypes.c_void_p * DEVICE_TYPES).in_dll(library, GUARDS)
    except (StopIteration, OSError, ValueError) as error:
        raise FakeCudaUnavailableError(f"this PyTorch build cannot simulate a CUDA device ({error}); use a build with CUDA") from error
    before = guards[CUDA]
    guards[CUDA] = guards[META]
    try:
        yield
    finally:
        guards[CUDA] = before


@contextmanager
def native_kernels() -> Iterator[None]:
    """Register CUDA kernels with the dispatcher; fake tensors never run them."""

    def never(*_: object) -> None:
        raise FakeCudaUnavailableError("a kernel of the fake CUDA device was run on data")

    library = torch.library.Library("aten", "IMPL", "CUDA")  # type: ignore[no-untyped-call] # untyped in torch
    for operator in COMPOSITE_WITHOUT_CUDA:
        library.impl(operator, never)  # type: ignore[no-untyped-call] # the same
    try:
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call] # noqa: SLF001 - the only way to remove a registration


class FusedAttention(TorchFunctionMode):
    """Runs ``F.scaled_dot_product_attention`` by the kernel that a GPU selects, or by the one that is forced (``auto``: none)."""

    def __init__(self, order: tuple[AttentionKernel, ...], forced: AttentionKernel) -> None:
        super().__init__()
        self.order, self.forced = order, forced

    def __torch_function__(
        self, func: Callable[..., object], _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        run = self.attend if func is SDPA else func
        return run(*args, **(kwargs or {}))

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> AttentionKernel:
        """Return the kernel that runs for q (B, H, n, h), k and v (B, K, n, h).

        By PyTorch 2.13's ``sdp_utils``: of the kernels that support the inputs, the first in order runs. Raises
        ``CannotMeasureError`` if the selected kernel does not support them.
        """
        width, same = q.shape[-1], v.shape[-1] == q.shape[-1]
        half, alignment = q.dtype in HALF, 16 // q.element_size()
        supports: dict[AttentionKernel, bool] = {
            "cudnn": half and same and width % 8 == 0 and width <= CUDNN_MAX_HEAD_DIM and k.shape[2] > 1 and (dropout * 16).is_integer(),
            "flash": half and same and mask is None and width <= FLASH_MAX_HEAD_DIM,
            "efficient": q.shape[1] == k.shape[1] and width % alignment == 0 and v.shape[-1] % alignment == 0,
            "math": True,
        }
        if self.forced != "auto":
            if not supports[self.forced]:
                raise CannotMeasureError(f"attention kernel {self.forced} does not support {q.dtype} heads of width {width} here")
            return self.forced
        return next(name for name in self.order if supports[name])

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        *,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """``F.scaled_dot_product_attention`` as CUDA runs it."""
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
            attn_mask = attn_mask.to(dtype) if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
        with torch._C._DisableAutocast():  # noqa: SLF001 - as the operator does after its casts
            kernel = self.kernel(q, k, v, attn_mask, dropout_p) if enable_gqa or q.shape[1] == k.shape[1] else "math"
            if kernel == "math":
                return aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]  # noqa: SLF001 - what CUDA dispatches to
                    q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
                )[0]
            return FUSED[kernel](q, k, v, attn_mask, dropout_p, is_causal, scale)


def flash(q: Tensor, k: Tensor, v: Tensor, _: Tensor | None, dropout: float, causal: bool, scale: float | None) -> Tensor:
    """Flash attention, with heads padded to a multiple of 8."""
    width = q.shape[-1]
    if padding := -width % FLASH_ALIGNMENT:
        q, k, v = (F.pad(x, (0, padding)) for x in (q, k, v))
    scale = width**-0.5 if scale is None else scale
    out: Tensor = aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False, scale=scale)[0]  # noqa: SLF001 - what CUDA runs
    return out[..., :width] if padding else out


def efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, scale: float | None) -> Tensor:
    """Memory-efficient attention, with rows of the mask padded to a multiple of 8 elements."""
    if mask is not None:
        n = mask.shape[-1]
        padded = F.pad(mask, (0, padding))[..., :n] if (padding := -n % MASK_ALIGNMENT) else mask
        mask = padded.expand(*q.shape[:3], k.shape[2])
    run = aten._scaled_dot_product_efficient_attention  # noqa: SLF001 - what CUDA runs
    return run(q, k, v, mask, torch.is_grad_enabled(), dropout, causal, scale=scale)[0]  # type: ignore[no-any-return]


def cudnn(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, scale: float | None) -> Tensor:
    """Attention by cuDNN."""
    run = aten._scaled_dot_product_cudnn_attention  # noqa: SLF001 - what CUDA runs
    return run(q, k, v, mask, torch.is_grad_enabled(), dropout, causal, False, scale=scale)[0]  # type: ignore[no-any-return]


FUSED = {"flash": flash, "efficient": efficient, "cudnn": cudnn}


class MissingOperators(TorchDispatchMode):  # type: ignore[no-untyped-call] # untyped in torch
    """Runs operators that a GPU supports and fake tensors do not.

    ``Tensor.item``, which Adafactor calls on norms, returns 1.0: no size depends on it. Grouped products support only bf16.
    """

    def __torch_dispatch__(
        self, func: OpOverload, _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        if func is aten._local_scalar_dense.default:  # noqa: SLF001 - what Tensor.item() calls
            return 1.0
        if func is aten._grouped_mm.default and args[0].dtype != torch.bfloat16:  # noqa: SLF001 - what F.grouped_mm calls
            a, b, *others = args
            return func(a.bfloat16(), b.bfloat16(), *others, **(kwargs or {})).to(a.dtype)
        return func(*args, **(kwargs or {}))


@contextmanager
def cuda(
    generation: Generation = "a100", forced: AttentionKernel = "auto", order: tuple[AttentionKernel, ...] | None = None
) -> Iterator[None]:
    """Use fake tensors inside the context; ``device="cuda"`` is a fake GPU of this generation. ``order``: of its attention kernels."""
    with ExitStack() as stack:
        if not HAS_CUDA:
            stack.enter_context(device_guard())
            stack.enter_context(native_kernels())
        # Autocast disables itself if no GPU supports the dtype.
        stack.enter_context(mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False))
        stack.enter_context(mock.patch("torch.cuda.is_bf16_supported", return_value=True))
        stack.enter_context(mock.patch("torch.cuda.get_device_capability", return_value=CAPABILITY[generation]))
        stack.enter_context(mock.patch("torch.cuda.synchronize"))  # bitsandbytes' optimizers wait for their kernels
        stack.enter_context(FakeTensorMode())
        stack.enter_context(MissingOperators())  # type: ignore[no-untyped-call] # untyped in torch
        stack.enter_context(FusedAttention(order or ORDER[generation], forced))
        yield
