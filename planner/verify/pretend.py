"""A CUDA device that is not there: fake tensors on it take the operators and autocast rules that a GPU of the A100's class takes.

PyTorch's fake tensors carry shapes, dtypes and storages without data, and dispatch as their device does. Three things a build without CUDA
lacks are put in their place here, for as long as a measurement lasts:

- the device guard, without which no operator on the device starts: the registry's empty entry gets the guard of the meta device, which
  does nothing (builds with CUDA bring a guard of their own for fake tensors);
- the kernels of operators that fall apart into others where there is no kernel, RMS norm and the derivative of SiLU;
- the choice of the fused attention kernel, which PyTorch makes by asking the GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from planner.verify import CannotMeasureError

# Places in c10::DeviceType, which PyTorch keeps for good: they are written into saved models.
CUDA, META, DEVICE_TYPES = 1, 14, 21
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"

FLASH_MAX_HEAD_DIM = 256
FLASH_ALIGNMENT = 8  # head_dim is padded to a multiple
HALF = (torch.float16, torch.bfloat16)

# Operators with a CUDA kernel and, for devices without one, a composite: torchgen's native_functions.yaml names them.
COMPOSITE_WITHOUT_CUDA = ("_fused_rms_norm", "_fused_rms_norm_backward", "silu_backward")

aten = torch.ops.aten

HAS_CUDA: bool = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call] # untyped in torch


class CannotPretendError(CannotMeasureError):
    """No fake CUDA device can be made in this build of PyTorch; the message says why."""


@contextmanager
def device_guard() -> Iterator[None]:
    """Let operators on CUDA devices start although this build of PyTorch has no CUDA."""
    if HAS_CUDA:
        yield
        return
    try:
        library = ctypes.CDLL(str(next(Path(torch.__file__).parent.glob("lib/libc10.*"))))
        guards = (ctypes.c_void_p * DEVICE_TYPES).in_dll(library, GUARDS)
    except (StopIteration, OSError, ValueError) as error:
        raise CannotPretendError(f"no CUDA device can be made up in this build of PyTorch ({error}); use a build with CUDA") from error
    before = guards[CUDA]
    guards[CUDA] = guards[META]
    try:
        yield
    finally:
        guards[CUDA] = before


@contextmanager
def native_kernels() -> Iterator[None]:
    """Make the dispatcher believe that CUDA has its kernels; fake tensors never run them."""
    if HAS_CUDA:
        yield
        return

    def never(*_: object) -> None:
        raise CannotPretendError("a kernel of the fake CUDA device was run on data")

    library = torch.library.Library("aten", "IMPL", "CUDA")  # type: ignore[no-untyped-call] # untyped in torch
    for operator in COMPOSITE_WITHOUT_CUDA:
        library.impl(operator, never)  # type: ignore[no-untyped-call] # the same
    try:
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call] # noqa: SLF001 - the only way to take a registration back


def attention_kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> str:
    """Which kernel a GPU of the A100's class picks for (B, heads, n, h) inputs.

    Read from PyTorch 2.13's ``sdp_utils``: flash for 16-bit inputs without a mask and heads of at most 256; else the memory-efficient
    kernel, if the heads are as many for keys as for queries and their width is aligned to 16 bytes; else plain matrix products.
    """
    head_dim = q.shape[-1]
    if q.dtype in HALF and mask is None and head_dim <= FLASH_MAX_HEAD_DIM and v.shape[-1] == head_dim:
        return "flash"
    alignment = 16 // q.element_size()
    if q.shape[1] == k.shape[1] and head_dim % alignment == 0 and v.shape[-1] % alignment == 0:
        return "efficient"
    return "math"


def attend(
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
    """``F.scaled_dot_product_attention`` as CUDA runs it, the kernel chosen by ``attention_kernel``."""
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        attn_mask = None if attn_mask is None else attn_mask.to(dtype)
    with torch._C._DisableAutocast():  # noqa: SLF001 - what the operator itself does below its casts
        kernel = attention_kernel(q, k, v, attn_mask)
        if kernel == "flash":
            head_dim = q.shape[-1]
            padding = -head_dim % FLASH_ALIGNMENT
            if padding:
                q, k, v = (F.pad(x, (0, padding)) for x in (q, k, v))
            scale = head_dim**-0.5 if scale is None else scale
            out: Tensor = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]  # noqa: SLF001
            return out[..., :head_dim] if padding else out
        if kernel == "efficient":
            mask = None if attn_mask is None else padded_mask(attn_mask, q, k)
            efficient = aten._scaled_dot_product_efficient_attention  # noqa: SLF001 - the operator that CUDA dispatches to
            return efficient(q, k, v, mask, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]
        math = aten._scaled_dot_product_attention_math  # noqa: SLF001 - the operator that CUDA dispatches to
        return math(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]  # type: ignore[no-any-return]


def padded_mask(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Rows of the mask padded to a multiple of 16 elements and cut back, then expanded to (B, H, n, n), as the kernel wants them."""
    n = mask.shape[-1]
    padding = -n % 16
    if padding:
        mask = F.pad(mask, (0, padding))[..., :n]
    return mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])


class Numbers(TorchDispatchMode):  # type: ignore[no-untyped-call] # untyped in torch
    """Answer a program that asks a fake tensor for its number, as Adafactor does for norms: no size depends on it."""

    def __torch_dispatch__(
        self, func: OpOverload, _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        if func is aten._local_scalar_dense.default:  # noqa: SLF001 - what Tensor.item() calls
            return 1.0
        return func(*args, **(kwargs or {}))


class FusedAttention(TorchFunctionMode):
    """Send ``F.scaled_dot_product_attention`` to ``attend``."""

    def __torch_function__(
        self, func: Callable[..., object], _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        if func is F.scaled_dot_product_attention:
            return attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def cuda() -> Iterator[None]:
    """Everything inside runs on fake tensors; ``device="cuda"`` means a made-up GPU of the A100's class."""
    with ExitStack() as stack:
        stack.enter_context(device_guard())
        stack.enter_context(native_kernels())
        # Autocast asks whether there is a GPU that knows the dtype, and turns itself off where there is none.
        stack.enter_context(mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False))
        stack.enter_context(mock.patch("torch.cuda.is_bf16_supported", return_value=True))
        stack.enter_context(FakeTensorMode())
        stack.enter_context(Numbers())  # type: ignore[no-untyped-call] # untyped in torch
        stack.enter_context(FusedAttention())
        yield
