"""Small random models, planned and measured in PyTorch: every byte and FLOP is equal, peaks included.

Other seeds: ``SEEDS=200:300 pytest tests/verify/test_random_shapes.py``. Seeds that once differed stay in the list.
"""

from __future__ import annotations

import os

import pytest

import planner
from tests.shapes import buildable

pytest.importorskip("torch", reason="the extra torch is not installed")

from planner.verify.step import measure

FIRST, LAST = map(int, os.environ.get("SEEDS", "0:40").split(":"))
FOUND = (80, 113)  # tensors that stay allocated during soft-capping


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # PyTorch's, where RMSNorm has no kernel
@pytest.mark.parametrize("seed", sorted({*range(FIRST, LAST), *FOUND}))
def test_a_random_shape(seed: int) -> None:
    spec = buildable(seed)
    training = spec.scenarios[0].training
    ours = planner.plan(spec)
    theirs = measure(spec.model, training)
    hardware = next(count for count in ours.flops.by_convention if count.convention == "hardware")
    a_pass = hardware.train_per_step // training.gradient_accumulation
    of_phases = {phase.phase: phase.peak_bytes for phase in ours.memory.phases}
    of_first_phases = {phase.phase: phase.peak_bytes for phase in ours.memory.first_step_phases}
    # The peak of the update cannot be compared if the plan lists parts of it as not counted.
    whole = not any("update" in line for line in ours.not_counted)
    assert {
        "parameters": ours.parameters.total,
        "bytes kept": ours.memory.activations_bytes,
        "forward FLOPs": hardware.forward_per_step,
        "backward FLOPs": a_pass - hardware.forward_per_step,
        "bytes at the start": ours.memory.live.start,
        "bytes after the forward pass": ours.memory.live.after_forward,
        "bytes after the backward pass": ours.memory.live.after_backward,
        "peaks": [max(of_phases["forward"], of_phases["loss"]), of_phases["backward"], *([of_phases["optimizer"]] if whole else [])],
        "peaks of the first step": [max(of_first_phases["forward"], of_first_phases["loss"]), of_first_phases["backward"]],
    } == {
        "parameters": theirs.params,
        "bytes kept": theirs.saved_bytes,
        "forward FLOPs": theirs.flops_forward,
        "backward FLOPs": theirs.flops_backward,
        "bytes at the start": theirs.start_bytes,
        "bytes after the forward pass": theirs.after_forward_bytes,
        "bytes after the backward pass": theirs.after_backward_bytes,
        "peaks": [phase.bytes for phase in theirs.phases[: 3 if whole else 2]],
        "peaks of the first step": [phase.bytes for phase in theirs.first_phases[:2]],
    }
