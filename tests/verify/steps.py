"""Metrics of a training step as planned and as measured, by the same names."""

from __future__ import annotations

from planner.capacity.figures import Plan
from planner.verify.measured import Measured


def planned(plan: Plan) -> dict[str, object]:
    """Return the planned metrics."""
    hardware = next(count for count in plan.flops.by_convention if count.convention == "hardware")
    of_phases = {phase.phase: phase.peak_bytes for phase in plan.memory.phases}
    of_first_phases = {phase.phase: phase.peak_bytes for phase in plan.memory.first_step_phases}
    return {
        "parameters": plan.parameters.total,
        "bytes kept": plan.memory.activations_bytes,
        "forward FLOPs": hardware.forward_per_step,
        "backward FLOPs": hardware.train_per_step // plan.training.gradient_accumulation - hardware.forward_per_step,
        "bytes at the start": plan.memory.live.start,
        "bytes after the forward pass": plan.memory.live.after_forward,
        "bytes after the backward pass": plan.memory.live.after_backward,
        "peaks": [max(of_phases["forward"], of_phases["loss"]), of_phases["backward"], *([of_phases["optimizer"]] if whole(plan) else [])],
        "peaks of the first step": [max(of_first_phases["forward"], of_first_phases["loss"]), of_first_phases["backward"]],
    }


def measured(plan: Plan, step: Measured) -> dict[str, object]:
    """Return the measured metrics."""
    return {
        "parameters": step.params,
        "bytes kept": step.saved_bytes,
        "forward FLOPs": step.flops_forward,
        "backward FLOPs": step.flops_backward,
        "bytes at the start": step.start_bytes,
        "bytes after the forward pass": step.after_forward_bytes,
        "bytes after the backward pass": step.after_backward_bytes,
        "peaks": [phase.bytes for phase in step.phases[: 3 if whole(plan) else 2]],
        "peaks of the first step": [phase.bytes for phase in step.first_phases[:2]],
    }


def whole(plan: Plan) -> bool:
    """Return whether the peak of the update can be compared: the plan does not list parts of it as not counted."""
    return not any("update" in line for line in plan.not_counted)
