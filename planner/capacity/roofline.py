"""The least time that a device needs for a pass: each product's FLOPs at the peak rate, or the bytes that it must read at the bandwidth.

A bound and no estimate (Williams et al. 2009, Roofline, doi:10.1145/1498765.1498785). It counts nothing but products and attention, weights
once and the cached keys and values once: everything else may stay on the chip. Kernels of attention skip what a causal mask hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.devices import Device
from planner.spec.records import ServedWeights
from planner.spec.records.serving import PLAIN_WEIGHTS
from planner.trace.decoder import Trace
from planner.trace.nodes import Operation, operations
from planner.trace.sizes import Size, hinted, product
from planner.trace.tape import Parameter
from planner.trace.tensor import Storage


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds that a pass needs at least: of operators bound by the rate of products, and by the bandwidth. Its FLOPs and bytes read."""

    seconds: float
    compute: float
    memory: float
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """FLOPs per byte read."""
        return self.flops / self.bytes


def bound(
    made: Trace,
    device: Device,
    weights: ServedWeights,
    sizes: Sequence[int],
    devices: int = 1,
    *,
    queries: int = 1,
    less: Trace | None = None,
) -> Bound | None:
    """Return the bound of a pass on this many devices together; None if the device's rate or bandwidth is not known.

    ``sizes``: the bytes of all copies of each weight. ``queries``: times that products run on what is read once: tokens of a sequence after
    a cached one. ``less``: the pass over a prefix whose products are done.
    """
    rate, bandwidth = peak_rate(device, weights), device.gb_per_s
    if rate is None or bandwidth is None:
        return None
    stored = {one.tensor.storage: _active(one, size) for one, size in zip(made.parameters, sizes, strict=True)}
    joined = [tensor.storage for node, _ in operations(made.nodes) if node.name == "cat" for tensor in node.outputs]
    cached = {storage for storage in joined if storage.until_forward_ends}
    done = _products(less) if less else []
    compute = memory = flops = read = 0.0
    for number, (node, copies) in enumerate(_products(made)):
        of_prefix = hinted(done[number][0].flops.causal) if less else 0
        products = (hinted(node.flops.causal) - of_prefix) * queries * hinted(copies)
        size = sum(_read(node, stored, cached)) * hinted(copies)
        by_rate, by_bytes = products / (rate * 1e12 * devices), size / (bandwidth * 1e9 * devices)
        compute, memory = compute + by_rate * (by_rate >= by_bytes), memory + by_bytes * (by_bytes > by_rate)
        flops, read = flops + products, read + size
    return Bound(compute + memory, compute, memory, flops, read)


def _products(made: Trace) -> list[tuple[Operation, Size]]:
    """Return the operators of a pass that multiply matrices; any two passes over several tokens have as many."""
    return [(node, copies) for node, copies in operations(made.nodes) if node.flops.why]


def peak_rate(device: Device, weights: ServedWeights) -> float | None:
    """Return a device's rate for weights of a type; of packed ones, which kernels may multiply in 8 bits, the highest that it has."""
    if weights in PLAIN_WEIGHTS:
        return device.tflops.get(weights)
    return max((device.tflops[kind] for kind in ("bf16", "fp16", "fp8", "int8") if kind in device.tflops), default=None)


def _active(stored: Parameter, size: int) -> float:
    """Return the bytes of one copy of a weight that a token needs: of experts, some."""
    return size / hinted(stored.copies) * hinted(stored.active) / hinted(product(stored.tensor.shape))


def _read(node: Operation, stored: dict[Storage, float], cached: set[Storage]) -> Iterator[float]:
    """Yield the bytes of weights and of cached tensors that an operator must read: of experts, those of one token."""
    for tensor in node.inputs:
        for storage, times in tensor.parts:
            if storage in stored:
                yield stored[storage]
            elif storage in cached:
                yield hinted(tensor.bytes * times)
