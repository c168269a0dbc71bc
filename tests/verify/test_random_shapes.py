"""Small models drawn at random, planned and measured in PyTorch: bytes and FLOPs equal, peaks close.

Other seeds: ``SEEDS=200:300 pytest tests/verify/test_random_shapes.py``. One that differs stays in the list once it agrees.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from planner.capacity import plan
from planner.verify import measure
from tests.shapes import drawn

pytest.importorskip("torch", reason="the extra torch is not installed")

FIRST, LAST = map(int, os.environ.get("SEEDS", "0:60").split(":"))
PEAK_ALLOWED, PEAK_ALLOWED_RECOMPUTED = 0.005, 0.01


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # PyTorch's, where RMSNorm has no kernel
@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_a_random_shape(seed: int) -> None:
    spec = drawn(seed)
    training = spec.scenarios[0].training
    ours = plan(spec, spec.scenarios[0])
    theirs = measure(spec.model, training)
    left_out = Counter[str]()  # of PyTorch's counter
    for phase, _, flops in theirs.flops_left_out:
        left_out[phase] += flops
    hardware = next(count for count in ours.flops.by_convention if count.convention == "hardware")
    assert {
        "bytes kept": ours.memory.activations_bytes,
        "bytes at the start": ours.memory.live.start,
        "bytes after the forward pass": ours.memory.live.after_forward,
        "bytes after the backward pass": ours.memory.live.after_backward,
        "forward FLOPs": hardware.forward_per_step,
        "backward FLOPs": hardware.train_per_step - hardware.forward_per_step,
    } == {
        "bytes kept": theirs.saved_bytes,
        "bytes at the start": theirs.start_bytes,
        "bytes after the forward pass": theirs.after_forward_bytes,
        "bytes after the backward pass": theirs.after_backward_bytes,
        "forward FLOPs": theirs.flops_forward + left_out["forward"],
        "backward FLOPs": theirs.flops_backward + left_out["backward"],
    }
    peaks = {phase.phase: phase.peak_bytes for phase in ours.memory.phases}
    allowed = PEAK_ALLOWED if training.recompute == "none" else PEAK_ALLOWED_RECOMPUTED
    measured = {phase.phase: phase.bytes for phase in theirs.phases}
    assert max(peaks["forward"], peaks["loss"]) == pytest.approx(measured["forward"], rel=allowed)
    assert peaks["backward"] == pytest.approx(measured["backward"], rel=allowed)
