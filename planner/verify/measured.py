"""Results of measurements in PyTorch. This module does not import torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Check = Literal["parameters", "transformers", "config", "kept", "flops", "step", "optimizer", "loss", "layout", "device"]

CHECKPOINT = "checkpoint"  # in place of a function's name: a checkpoint saves its arguments outside of any function
LAYER = re.compile(r"(?<=\.layers\.)[\d,.-]*\d(?=\.[a-z]|$)")  # a number, or the ranges of a layer group


def pattern(name: str) -> str:
    """Return the name with N for the number of the layer."""
    return LAYER.sub("N", name)


@dataclass(frozen=True, slots=True)
class SavedStorage:
    """A storage that autograd saves for the backward pass."""

    path: str  # the module that saved it first: "model.layers.0.mlp.up_proj"
    function: str  # the function that was running: "linear"
    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a training step: its peak of allocated bytes, and its FLOPs."""

    phase: Literal["forward", "backward", "optimizer"]
    bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Two training steps on one device: bytes of allocated storages, and FLOPs of one forward and one backward pass."""

    params: int  # a tied tensor once
    kept: tuple[SavedStorage, ...]
    saved_bytes: int  # the sum over kept
    flops_forward: int
    flops_backward: int  # with recomputation
    start_bytes: int  # second step: weights, optimizer state, buffers, inputs
    after_forward_bytes: int
    after_backward_bytes: int
    first_phases: tuple[Phase, ...]  # first step, which starts without optimizer state
    phases: tuple[Phase, ...]  # second step, like every later one

    @property
    def first_peak_bytes(self) -> int:
        """The peak of the first step."""
        return max(phase.bytes for phase in self.first_phases)

    @property
    def peak_bytes(self) -> int:
        """The peak of the second step."""
        return max(phase.bytes for phase in self.phases)


@dataclass(frozen=True, slots=True)
class OptimizerMeasured:
    """Bytes that an optimizer uses after one step on the CPU."""

    state_bytes: int  # without step counters
    master_bytes: int  # float32 copies of the weights
    gradient_bytes: int  # in the dtype that the optimizer reads


@dataclass(frozen=True, slots=True)
class LossMeasured:
    """A forward pass on random tokens on the CPU."""

    logits_shape: tuple[int, ...]
    loss: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A value of the plan and PyTorch's. ``allowed`` is the relative tolerance: 0 if they must be equal."""

    model: str
    scenario: str
    check: Check
    figure: str
    unit: str
    ours: int | float | str | None
    pytorch: int | float | str | None
    allowed: float = 0.0

    @property
    def difference(self) -> int | float | None:
        """Ours less PyTorch's, if both are numbers."""
        if isinstance(self.ours, int | float) and isinstance(self.pytorch, int | float):
            return self.ours - self.pytorch
        return None

    @property
    def agrees(self) -> bool:
        """Whether the two are equal, or within the tolerance."""
        if self.ours == self.pytorch:
            return True
        return self.difference is not None and abs(self.difference) <= self.allowed * abs(self.pytorch)  # type: ignore[arg-type] # a number, since the difference is one
