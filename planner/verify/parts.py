"""Parts of the modules: norms, activations, positions, soft-capping."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it

from planner.spec.records import Norm
from planner.verify import CannotMeasureError

ROTARY_BASE = 10_000.0
EPSILON = 1e-5

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_new": lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "relu_squared": lambda x: F.relu(x).square(),
    "silu": F.silu,
}


class UnbuildableError(CannotMeasureError):
    """The spec has a part that these modules cannot build; the message names it."""


class Module(nn.Module):
    """A module whose result is a tensor."""

    __call__: Callable[..., Tensor]


class LayerNorm(Module):
    """``F.layer_norm`` with or without weight and bias of shape (width,)."""

    def __init__(self, width: int, norm: Norm, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(width, device=device, dtype=dtype)) if norm.weight else None
        self.bias = nn.Parameter(torch.zeros(width, device=device, dtype=dtype)) if norm.bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x over its last dimension."""
        return F.layer_norm(x, (self.width,), self.weight, self.bias, EPSILON)


class RMSNorm(Module):
    """``F.rms_norm`` with or without a weight of shape (width,); one fused operator on CUDA."""

    def __init__(self, width: int, norm: Norm, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.width = width
        self.unit_offset = norm.unit_offset
        initial = torch.zeros if norm.unit_offset else torch.ones
        self.weight = nn.Parameter(initial(width, device=device, dtype=dtype)) if norm.weight else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x over its last dimension."""
        weight = 1.0 + self.weight if self.unit_offset and self.weight is not None else self.weight
        return F.rms_norm(x, (self.width,), weight, EPSILON)


def make_norm(width: int, norm: Norm, device: torch.device, dtype: torch.dtype) -> Module:
    """Return the norm of the record, over a last dimension of this width."""
    return (LayerNorm if norm.type == "layernorm" else RMSNorm)(width, norm, device, dtype)


def rotary_tables(n: int, rotary_dim: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of shape (n, 1, rotary_dim)."""
    inverse = ROTARY_BASE ** (-torch.arange(0, rotary_dim, 2, device=device, dtype=torch.float32) / rotary_dim)
    angles = torch.outer(torch.arange(n, device=device, dtype=torch.float32), inverse)
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first ``cos.shape[-1]`` channels of each head of x (B, n, heads, h)."""
    rotary_dim = cos.shape[-1]
    turned = x[..., :rotary_dim]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
    return turned if rotary_dim == x.shape[-1] else torch.cat((turned, x[..., rotary_dim:]), dim=-1)


def softcap(x: Tensor, cap: float | None) -> Tensor:
    """Soft-cap x, or return it without a cap. A variable names one tensor at a time, as in transformers' classes."""
    if cap is None:
        return x
    x = x / cap
    x = torch.tanh(x)
    return x * cap


def alibi_bias(n: int, n_heads: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return ALiBi's bias (1, H, n, n), minus infinity for later keys; Press et al. 2022."""
    slopes = torch.tensor([2 ** (-8 * (head + 1) / n_heads) for head in range(n_heads)], device=device, dtype=torch.float32)
    positions = torch.arange(n, device=device, dtype=torch.float32)
    distance = positions[None, :] - positions[:, None]
    distance = distance.masked_fill(distance > 0, float("inf"))
    return (slopes[:, None, None] * -distance.abs()).to(dtype)[None]


def sinusoids(n: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the position table (n, width) of Vaswani et al. 2017: sines in even channels, cosines in odd ones."""
    inverse = ROTARY_BASE ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(n, device=device, dtype=torch.float32), inverse)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width].to(dtype)
