"""The passes of one microbatch through a stage of a pipeline."""

from __future__ import annotations

from functools import partial

from planner.capacity.optimizers import ElementBytes
from planner.capacity.peak import trace_memory
from planner.capacity.pipeline import LOSS, Passes
from planner.capacity.schedules import Kind
from planner.capacity.shares import Gathered, Share
from planner.capacity.split_backward import Split, outputs, trace_split
from planner.capacity.timeline import MemorySample, MemoryTimeline
from planner.spec.records import Training
from planner.trace.decoder import Piped, Trace
from planner.trace.sizes import total

Samples = dict[tuple[Kind, bool, bool], tuple[int, list[MemorySample]]]


def passes(part: Trace, piped: Piped, whole: Gathered | None, share: Share, training: Training) -> Passes:
    """Return the passes of a stage: with the parts of a divided backward pass if the schedule has them, ``whole`` if it shares weights."""
    stage = piped.stage
    timelines, samples = _whole(part, piped, whole, share)
    waiting = timelines[0].after_forward
    divides = any(moment.step.kind == "input" for moment in share.moments)
    if divides and stage.first:  # the backward pass of its input does nothing, that of its weights is whole
        samples |= {("weight", False, exist): samples["backward", False, exist] for exist in (False, True)}
    elif divides:
        parts = _divided(part, piped, training)
        waiting = parts[0].waiting
        for exist, one in enumerate(parts):
            number, each = len(timelines), one.timeline.samples
            samples["input", False, exist > 0] = number, each[one.forward_samples : one.input_samples]
            samples["weight", False, exist > 0] = number, each[one.input_samples :]
            timelines.append(one.timeline)
    elements = 0 if share.preallocated else sum(stored.gradient * stored.copies for stored in part.parameters)
    gradients = ElementBytes.by_recipe(training).gradient * elements
    keeps = divides and not stage.first and not stage.follows_own
    # Variables of the schedules of one stage per device hold the output of the last microbatch until the step ends, and the gradient that
    # was sent last: 1F1B until the next one is sent, GPipe until the next one is received.
    schedule = training.layout.schedule if training.layout else ""
    sent = 0 if stage.first or schedule not in ("gpipe", "1f1b") else piped.passed
    held = total(storage.bytes for storage in outputs(part.nodes, piped.output)) if schedule in ("gpipe", "1f1b") else 0
    if whole:
        losses = LOSS * stage.last * training.gradient_accumulation  # which schedules of one stage drop before
        reduction = MemoryTimeline(changes=[sent * (schedule == "gpipe") + held - losses * (schedule in ("gpipe", "1f1b"))])
        for change in whole.reduction:
            reduction.add(change.bytes)
            reduction.sample("backward", change.why)
        samples["reduce", False, True] = len(timelines), reduction.samples
        timelines.append(reduction)
    return Passes(
        timelines,
        samples,
        whole.weights if whole else 0,
        whole.gradients if whole else gradients,
        whole.shard if whole else gradients,
        timelines[0].after_forward,
        waiting,
        piped.passed if keeps else 0,
        LOSS * stage.last,
        sent if schedule == "1f1b" else 0,
    )


def _whole(part: Trace, piped: Piped, whole: Gathered | None, share: Share) -> tuple[list[MemoryTimeline], Samples]:
    """Return the timelines and samples of forward and whole backward passes."""
    replaced = piped.passed if piped.stage.precedes_own else 0
    walk = partial(trace_memory, part.nodes, output=piped.output)
    timelines: list[MemoryTimeline] = []
    samples: Samples = {}
    for gathers, exist in whole.passes if whole else ((False, False), (False, True)):
        changes = whole.passes[gathers, exist] if whole else share.changes
        freed = whole.resharded if whole else 0
        made = walk(
            preallocated=share.preallocated or (exist and (whole is None or whole.adds_in_place)),
            changes=changes,
            between=(-freed * gathers, freed - replaced, -freed * gathers),
        )
        samples["backward", gathers, exist] = len(timelines), [one for one in made.samples if one.phase == "backward"]
        if not exist:
            samples["forward", gathers, False] = len(timelines), [one for one in made.samples if one.phase != "backward"]
        timelines.append(made)
    return timelines, samples


def _divided(part: Trace, piped: Piped, training: Training) -> list[Split]:
    """Return the passes with a divided backward pass, without gradients and with them."""
    walk = partial(trace_split, part.nodes, output=piped.output, norms_last=training.implementation != "pytorch", arrived=piped.passed)
    replaced = piped.passed if piped.stage.precedes_own else 0
    return [walk(accumulates=exist, replaced=replaced) for exist in (False, True)]
