"""What PyTorch was measured to do, as frozen records. No torch here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Check = Literal["parameters", "transformers", "config", "kept", "flops", "step", "optimizer", "loss", "device"]

CHECKPOINT = "checkpoint"  # stands where a function's name stands: a checkpoint holds its arguments under none
LAYER = re.compile(r"(?<=\.layers\.)[\d,.-]*\d(?=\.[a-z]|$)")  # a number, or the ranges that we write for runs of layers


def pattern(name: str) -> str:
    """Return the name with N for the number of the layer."""
    return LAYER.sub("N", name)


@dataclass(frozen=True, slots=True)
class SavedStorage:
    """One storage that autograd holds between the forward and the backward pass."""

    path: str  # the module that saved it first: "model.layers.0.mlp.up_proj"
    function: str  # the function that was running: "linear"
    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True, slots=True)
class State:
    """One storage that an optimizer holds."""

    path: str  # the parameter's name; "" where parameters share it
    key: str  # the optimizer's own name for it: "exp_avg"
    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a training step: the most bytes alive at once, the operator that reached them, and its FLOPs."""

    phase: Literal["forward", "backward", "optimizer"]
    operator: str  # "" where the phase starts with its peak
    bytes: int
    flops: int  # by the formulas of torch.utils.flop_counter
    flops_left_out: tuple[tuple[str, int], ...]  # operators that have no formula there, and their FLOPs


@dataclass(frozen=True, slots=True)
class Measured:
    """Two training steps on one device; bytes are those of live storages, FLOPs those of one forward and one backward pass."""

    params: int  # elements, a tied tensor once
    kept: tuple[SavedStorage, ...]
    saved_bytes: int  # the sum over kept
    flops_forward: int  # by the formulas of torch.utils.flop_counter
    flops_backward: int  # the same; recomputation included
    flops_left_out: tuple[tuple[str, str, int], ...]  # phase, operator, FLOPs: what that counter passes over
    start_bytes: int  # second step: weights, optimizer state, buffers, inputs
    after_forward_bytes: int
    after_backward_bytes: int
    after_optimizer_bytes: int
    first_phases: tuple[Phase, ...]  # of the first step, which starts without optimizer state
    phases: tuple[Phase, ...]  # of the second step

    @property
    def first_peak(self) -> Phase:
        """The phase of the first step in which most bytes are alive."""
        return max(self.first_phases, key=lambda phase: phase.bytes)

    @property
    def peak(self) -> Phase:
        """The same of the second step, and of every step after it."""
        return max(self.phases, key=lambda phase: phase.bytes)


@dataclass(frozen=True, slots=True)
class OptimizerMeasured:
    """What one optimizer holds after one step on real CPU tensors."""

    state: tuple[State, ...]
    state_bytes: int  # the sum over state
    shared_bytes: int  # of them, tables that all parameters share
    step_counter_bytes: int  # counters that are tensors, one a parameter; not in state_bytes
    master_bytes: int  # float32 copies of the weights
    gradient_bytes: int  # as the optimizer sees them


@dataclass(frozen=True, slots=True)
class LossMeasured:
    """One forward pass with real numbers on the CPU."""

    logits_shape: tuple[int, ...]
    logits_dtype: str
    loss: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure beside PyTorch's. ``allowed`` is how far they may be apart, as a part of PyTorch's: 0 where they must be equal."""

    model: str
    scenario: str
    check: Check
    figure: str
    unit: str
    ours: int | float | str | None
    pytorch: int | float | str | None  # None: it has none
    allowed: float = 0.0

    @property
    def difference(self) -> int | float | None:
        """Ours less PyTorch's, where both are numbers."""
        if isinstance(self.ours, int | float) and isinstance(self.pytorch, int | float):
            return self.ours - self.pytorch
        return None

    @property
    def agrees(self) -> bool:
        """Whether they are equal, or as near as allowed."""
        if self.ours == self.pytorch:
            return True
        return self.difference is not None and abs(self.difference) <= self.allowed * abs(self.pytorch)  # type: ignore[arg-type] # a number, since the difference is one
