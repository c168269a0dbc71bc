"""The time of fused attention kernels, as a multiple of that of the best kernel on the device.

FlashAttention 2 (Dao 2023, arXiv:2307.08691, figures 4 to 7) reaches about 190 TFLOP/s on A100 in both passes where FlashAttention 1
reaches 115, and 340 on H100, where FlashAttention 3 (Shah et al. 2024, arXiv:2407.08608, figures 5 and 6) reaches 650 forward and 550
backward. The kernel in Triton was tuned for A100; its figures are those of MPT's runs.
"""

from __future__ import annotations

from typing import Literal

Kernel = Literal["best", "flash-1", "triton", "flash-2"]
_ON_AMPERE: dict[Kernel, float] = {"best": 1.0, "flash-1": 2.0, "triton": 1.4, "flash-2": 1.3}
_ON_HOPPER: dict[Kernel, float] = {"best": 1.0, "flash-1": 3.0, "triton": 3.2, "flash-2": 1.95}
HOPPER = ("H1", "H2", "H8", "GH")


def slowdown(kernel: Kernel, device: str) -> float:
    """Return the time of a kernel's attention on a device, relative to the best kernel's."""
    return (_ON_HOPPER if device.startswith(HOPPER) else _ON_AMPERE)[kernel]
