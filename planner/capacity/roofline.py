"""The least time that a device needs for a pass: each product's FLOPs at the peak rate, or the bytes that it must read at the bandwidth.

A bound and no estimate (Williams et al. 2009, Roofline, doi:10.1145/1498765.1498785). It counts nothing but products and attention, weights
once and the cached keys and values once: everything else may stay on the chip. Kernels of attention skip what a causal mask hides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.devices import Device
from planner.spec.precision import BYTES
from planner.spec.records import ServedWeights
from planner.trace.decoder import Trace
from planner.trace.nodes import Operation, operations
from planner.trace.sizes import Size, hinted
from planner.trace.tape import Parameter
from planner.trace.tensor import Storage


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds that a pass needs at least, and the shares of operators bound by the rate of products and by the bandwidth."""

    seconds: float
    compute: float
    memory: float


def bound(made: Trace, device: Device, weights: ServedWeights, devices: int = 1) -> Bound | None:
    """Return the bound of a pass on this many devices together; None if the device's rate or bandwidth is not known."""
    rate, bandwidth = device.tflops.get(weights), device.gb_per_s
    if rate is None or bandwidth is None:
        return None
    stored = {one.tensor.storage: one for one in made.parameters}
    joined = [tensor.storage for node, _ in operations(made.nodes) if node.name == "cat" for tensor in node.outputs]
    cached = {storage for storage in joined if storage.until_forward_ends}
    compute = memory = 0.0
    for node, copies in operations(made.nodes):
        if node.flops.why:
            by_rate = hinted(node.flops.causal * copies) / (rate * 1e12 * devices)
            by_bytes = hinted(sum(_read(node, stored, cached)) * copies) / (bandwidth * 1e9 * devices)
            compute, memory = compute + by_rate * (by_rate >= by_bytes), memory + by_bytes * (by_bytes > by_rate)
    return Bound(compute + memory, compute, memory)


def _read(node: Operation, stored: dict[Storage, Parameter], cached: set[Storage]) -> Iterator[Size]:
    """Yield the bytes of weights and of cached tensors that an operator must read: of experts, those of one token."""
    for tensor in node.inputs:
        for storage, times in tensor.parts:
            if storage in stored:
                yield stored[storage].active * BYTES[storage.dtype]
            elif storage in cached:
                yield tensor.bytes * times
