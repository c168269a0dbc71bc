"""Tensors without data: a shape, a dtype and the storages of their elements."""

from __future__ import annotations

from typing import Literal

from planner.spec.precision import BYTES, Dtype
from planner.trace.sizes import Size, product

CacheKind = Literal["full attention", "window", "latent", "state", "shared"]


class Storage:
    """A block of memory. Tensors that share one count once.

    ``copies``: how many equal layers have one. ``leaf``: it holds a parameter. ``until_forward_ends``: it lives until the autocast context
    ends, like cached casts of weights. ``throughout``: a variable of the training loop keeps it alive until the step ends.
    ``cache_kind`` and ``token_bytes``: if a cache keeps it, the kind of its layer, and how many bytes one token of a sequence adds.
    """

    __slots__ = (
        "bytes", "cache_kind", "component", "copies", "dtype", "leaf", "path", "shape", "throughout", "token_bytes", "until_forward_ends",
    )  # fmt: skip

    def __init__(self, shape: tuple[Size, ...], dtype: Dtype, path: str, component: str, copies: Size = 1) -> None:
        self.shape, self.dtype, self.path, self.component, self.copies = shape, dtype, path, component, copies
        self.bytes: Size = product(shape) * BYTES[dtype]
        self.leaf = False
        self.until_forward_ends = False
        self.throughout = False
        self.cache_kind: CacheKind = "state"
        self.token_bytes: Size = 0


class Tensor:
    """A shape and a dtype over a storage.

    ``parts`` pairs each possible storage with 1 or 0 (a size): whether the tensor is in it. A view shares its base's storage; ``origin`` is
    the tensor with which a view of all elements shares its gradient. Heads [B, H, n, h] are stored as [B, n, H, h], as projections return
    them, unless ``by_head``. ``interleaved`` heads are slices of a wider tensor's heads.
    """

    __slots__ = ("base", "by_head", "cast_copy", "dtype", "interleaved", "needs_grad", "parts", "shape")

    def __init__(
        self,
        shape: tuple[Size, ...],
        dtype: Dtype,
        parts: tuple[tuple[Storage, Size], ...],
        *,
        needs_grad: bool = True,
        origin: Tensor | None = None,
    ) -> None:
        self.shape, self.dtype, self.parts, self.needs_grad = shape, dtype, parts, needs_grad
        self.base = origin  # None: itself, without a cycle of references, which only the garbage collector would free
        self.by_head = self.interleaved = False
        self.cast_copy: Tensor | None = None  # autocast's cached copy of a weight

    @property
    def origin(self) -> Tensor:
        """The tensor with which it shares its gradient."""
        return self.base or self

    @property
    def leaf(self) -> bool:
        """Whether this is a parameter, not a copy of one."""
        return self.storage.leaf

    @property
    def storage(self) -> Storage:
        """The first storage in which it may be."""
        return self.parts[0][0]

    @property
    def bytes(self) -> Size:
        """Bytes of the elements."""
        return product(self.shape) * BYTES[self.dtype]

    def view(self, *shape: Size) -> Tensor:
        """Return a view of the same elements in another shape."""
        seen = Tensor(shape, self.dtype, self.parts, needs_grad=self.needs_grad, origin=self.origin)
        seen.interleaved = self.interleaved
        return seen
