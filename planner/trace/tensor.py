"""Tensors without data: a shape, a dtype, and the storages that hold them."""

from __future__ import annotations

from planner.spec.precision import BYTES, Dtype
from planner.trace.sizes import Size, product


class Storage:
    """A block of memory. Two tensors that share one count once.

    ``copies`` is how many there are of it, where the trace stands for several equal layers; ``leaf`` marks a parameter's own storage;
    ``until_forward_ends`` marks autocast's cached copy of a weight, which lives until the autocast context is left; ``throughout`` marks
    what a variable of the training loop names until the step ends.
    """

    __slots__ = ("bytes", "component", "copies", "dtype", "leaf", "path", "shape", "throughout", "until_forward_ends")

    def __init__(self, shape: tuple[Size, ...], dtype: Dtype, path: str, component: str, copies: Size = 1) -> None:
        self.shape, self.dtype, self.path, self.component, self.copies = shape, dtype, path, component, copies
        self.bytes: Size = product(shape) * BYTES[dtype]
        self.leaf = False
        self.until_forward_ends = False
        self.throughout = False


class Tensor:
    """A shape and a dtype over one storage, or over another where sizes decide which.

    ``parts`` pairs each storage with 1 or 0 (a size): whether the tensor lies in it. A view shares its base's storage; one of all its
    elements shares its gradient too, and names it as its ``origin``. Heads [B, H, n, h] lie in memory as [B, n, H, h], the way projections
    make them, unless ``by_head``; ``interleaved`` ones are every few of the heads of a wider tensor.
    """

    __slots__ = ("by_head", "cast_copy", "dtype", "interleaved", "needs_grad", "origin", "parts", "shape")

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
        self.origin: Tensor = origin or self
        self.by_head = self.interleaved = False
        self.cast_copy: Tensor | None = None  # autocast's cached copy of a weight

    @property
    def leaf(self) -> bool:
        """Whether this is a parameter itself, not a copy of one."""
        return self.storage.leaf

    @property
    def storage(self) -> Storage:
        """The storage in which it lies, or may lie: the first."""
        return self.parts[0][0]

    @property
    def bytes(self) -> Size:
        """Bytes of the elements, wherever they lie."""
        return product(self.shape) * BYTES[self.dtype]

    def view(self, *shape: Size) -> Tensor:
        """Return the same elements in another shape and in the same storage."""
        seen = Tensor(shape, self.dtype, self.parts, needs_grad=self.needs_grad, origin=self.origin)
        seen.interleaved = self.interleaved
        return seen
