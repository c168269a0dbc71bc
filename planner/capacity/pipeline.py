"""The step of a pipeline's stage: one microbatch's passes, as often as the schedule has them in flight.

A microbatch allocates the same whatever else is in flight. So the peak is that of few events: the last forward pass before any backward
pass, the first backward pass, and the ones after it, which add to gradients that exist. torch.distributed.pipelining (PyTorch 2.13,
schedules.py): GPipe runs all microbatches forward first; 1F1B as many as there are stages from this one on, and then one of each in turn.
"""

from __future__ import annotations

from planner.capacity.timeline import MemoryTimeline
from planner.spec.records import Layout
from planner.trace.decoder import Piped
from planner.trace.sizes import Size
from planner.trace.stages import Stage

LOSS = 4  # bytes


def in_flight(layout: Layout, stage: Stage, microbatches: int) -> int:
    """Return the largest number of microbatches whose backward pass has not begun."""
    return microbatches if layout.schedule == "gpipe" else min(microbatches, stage.of - stage.number)


def step(
    first: MemoryTimeline, again: MemoryTimeline, piped: Piped, flying: int, microbatches: int, gradients: Size, weights: Size = 0
) -> MemoryTimeline:
    """Return the timeline of a step of ``microbatches``, with the samples that may be its peak.

    ``first`` and ``again`` are those of one microbatch without gradients and with them. ``weights`` are gathered through the step. The
    gradient that a stage sends last lives until it sends the next, and the losses of microbatches until the step ends.
    """
    each = first.after_forward
    others = (flying - 1) * each + weights
    whole = MemoryTimeline(changes=[others, *first.changes], of_forward=1 + first.of_forward)
    whole.samples = [sample._replace(changes=1 + sample.changes) for sample in first.samples]
    forward = [sample for sample in whole.samples if sample.phase != "backward"]
    whole.add(-first.after_backward)
    start = len(whole.changes)
    backward = [sample._replace(changes=start + sample.changes) for sample in again.samples if sample.phase == "backward"]
    later = gradients + (0 if piped.stage.first else piped.passed)
    if microbatches > flying:
        whole.add_samples(forward, later)
        whole.add_samples(backward, later + (LOSS * (microbatches - flying) if piped.stage.last else 0))
    elif flying > 1:
        whole.add_samples(backward, later - each)
    whole.changes += again.changes
    whole.add(gradients - others - again.after_backward)
    return whole
