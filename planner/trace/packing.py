"""How a weight is stored in few bits per element, with scales per block: bitsandbytes 0.50.2, functional.py (QuantState)."""

from __future__ import annotations

from dataclasses import dataclass

from planner.trace.sizes import Size, ceil_div

BLOCK = 64  # elements that share a scale
NESTED = 256  # scales that share a scale
FLOAT32 = 4  # bytes


@dataclass(frozen=True, slots=True)
class Packing:
    """Four bits per element; ``nested``: the scales are quantized too (double quantization). ``whole``: elements with scales."""

    format: str
    nested: bool
    whole: Size | None = None

    @property
    def name(self) -> str:
        """The name in reports."""
        return f"{self.format} with quantized scales" if self.nested else self.format

    def tensors(self, elements: Size) -> list[Size]:
        """Return the bytes of elements, scales and the table of 16 values; of nested scales their scales, table of 256 and offset."""
        blocks = ceil_div(elements if self.whole is None else self.whole, BLOCK)
        scales = [blocks, FLOAT32 * ceil_div(blocks, NESTED), FLOAT32 * 256, FLOAT32] if self.nested else [FLOAT32 * blocks]
        return [ceil_div(elements, 2), *scales, FLOAT32 * 16]

    def bytes(self, elements: Size) -> Size:
        """Return the bytes of a weight."""
        return sum(self.tensors(elements))

    def scales(self, elements: Size) -> Size:
        """Return the bytes of float32 scales, which nested ones are turned into before a weight is unpacked; 0 if they are not nested."""
        return FLOAT32 * ceil_div(elements, BLOCK) if self.nested else 0
