"""Full rates of a device and its links. A device without the rate that a training requires is refused with the rates that it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.devices import Device
from planner.spec.precision import Dtype
from planner.trace.unsupported import UnsupportedError

MEASURED = 0.8  # of the peak rate: what the best measured products reach where nobody measured the device's (median of the catalog)
FAR = 50e9  # bytes a second between nodes where none is given: a link of 400 Gb/s per device
Low = Literal["fp8", "nvfp4", "int8"]
_SHORT: dict[Dtype, str] = {"float32": "tf32", "bfloat16": "bf16", "float16": "fp16"}
_LOW_MEASURED: dict[Low, float] = {"fp8": MEASURED, "nvfp4": 0.7, "int8": MEASURED}


@dataclass(frozen=True, slots=True)
class Rates:
    """FLOPs a second of products, in ``low`` bits too, and bytes a second of memory, of links in a node (near) and between nodes (far).

    ``products`` are rates that somebody measured, or a share of the peak. ``peak`` is the dense peak rate in 16 or 32
    bits, to which MFU refers.
    """

    products: float
    low: float
    peak: float
    memory: float
    near: float
    far: float


def rates(device: Device, dtype: Dtype, far: float | None, low: Low | None = None) -> Rates:
    """Return the rates for products in a dtype. Raises UnsupportedError if the device lacks one."""
    kind = _SHORT.get(dtype, dtype)
    for needed in (kind, *([low] if low else [])):
        if needed not in device.tflops:
            known = ", ".join(f"{name} {rate:g}" for name, rate in device.tflops.items()) or "none"
            raise UnsupportedError(f"{device.name} has no rate of {needed} products; known TFLOP/s: {known}")
    if device.gb_per_s is None or device.link_gb_per_s is None:
        missing = "memory" if device.gb_per_s is None else "link"
        raise UnsupportedError(f"the bandwidth of the {missing} of {device.name} is not known")
    return Rates(
        _measured(device, kind, MEASURED),
        _measured(device, low, _LOW_MEASURED[low]) if low else 0.0,
        device.tflops[kind] * 1e12,
        device.gb_per_s * 1e9,
        device.link_gb_per_s * 1e9,
        far or FAR,
    )


def _measured(device: Device, kind: str, share: float) -> float:
    """Return the measured rate of a kind, or of bf16 if its peak is the same, else a share of the peak."""
    alike = device.tflops.get("bf16") == device.tflops[kind]
    return device.matmul_tflops.get(kind, device.matmul_tflops.get("bf16" if alike else kind, share * device.tflops[kind])) * 1e12
