"""Allocated memory during a training step and its peak, for the first step and for all later ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from planner.capacity.backward_pass import Update, Updates
from planner.capacity.figures import PHASES, LiveBytes, Phase, PhasePeak, Weight
from planner.capacity.peak import trace_memory
from planner.capacity.shares import Share
from planner.capacity.states import tensors_of
from planner.capacity.timeline import MemorySample
from planner.capacity.update import alone, not_modeled, update_temporaries
from planner.spec.precision import AVERAGES, BYTES, RECIPES
from planner.spec.records import Training
from planner.trace.decoder import Trace
from planner.trace.sizes import Size, ceil_div, maximum, product, undominated

PASSES = tuple(phase for phase in PHASES if phase != "optimizer")
ALLOCATION_BLOCK = 512  # bytes: kMinBlockSize of PyTorch's c10/cuda/CUDACachingAllocator


@dataclass(frozen=True, slots=True)
class Step:
    """Samples of both passes that may be the peak, and what is allocated throughout besides: without optimizer state in the first step."""

    samples: tuple[MemorySample, ...]
    first_samples: tuple[MemorySample, ...]  # the same, but for optimizer state that the backward pass creates
    first: Size
    later: Size
    updates: tuple[MemorySample, ...]  # of a later step and of the first one, with all that is allocated
    live: LiveBytes[Size]  # of a later step


def step(forward: Trace, share: Share, training: Training) -> Step:
    """Trace the memory of a training step. Weights, optimizer state, buffers, inputs and reserved bytes are allocated from the start."""
    weights, states, preallocated = share.weights, share.states, share.preallocated
    optimizer = states.optimizer - states.paged + states.step_counters
    weights_bytes = states.weights + states.master_weights + states.average + share.held
    stateless = training.reserve_bytes + weights_bytes + forward.buffers_bytes + forward.inputs_bytes
    block = ALLOCATION_BLOCK if training.round_allocations else 1
    if training.round_allocations:
        of_optimizer, of_the_rest = rounded_up(weights, training, block, with_gradients=preallocated)
        optimizer, stateless = optimizer + of_optimizer, stateless + of_the_rest
    start = stateless + optimizer
    average = _average_temporary(weights, training)
    temporaries = update_temporaries(forward.stacks, weights, training, states.optimizer - states.paged + states.step_counters)
    walk = partial(trace_memory, forward.nodes, preallocated=preallocated, released=share.released, block=block, changes=share.changes)
    walked = first = walk(updates=_updates_in_backward(forward, weights, training, creating=False))
    if training.optimizer_in_backward:
        first = walk(updates=_updates_in_backward(forward, weights, training, creating=True))
    updates = tuple(
        MemorySample(
            "optimizer", f"{training.optimizer} step", [start + walked.after_backward + share.updating, maximum(temporary, average)]
        )
        for temporary in temporaries
    )
    live = LiveBytes(start, start + walked.after_forward, start + walked.after_backward)
    samples = tuple(tuple(_candidates(timeline.samples)) for timeline in (walked, first))
    return Step(samples[0], samples[1], stateless, start, updates, live)


def not_counted(training: Training) -> tuple[str, ...]:
    """Return what the peak omits."""
    paged = "paged optimizer state: in unified memory, outside PyTorch's allocator"
    return (*([paged] if training.paged else []), *not_modeled(training))


def rounded_up(weights: tuple[Weight[Size], ...], training: Training, block: int, *, with_gradients: bool) -> tuple[Size, Size]:
    """Return the bytes that rounding to blocks adds to the optimizer's tensors, and to weights, master weights, EMA weights and gradients.

    Buffers and inputs are few tensors and are not rounded.
    """

    def padding(part: int) -> Size:
        tensors = ((weight.copies, size) for weight, parts in every for size in parts[part])
        return sum(copies * (ceil_div(size, block) * block - size) for copies, size in tensors)

    every = [(weight, tensors_of(weight, training, with_gradients=with_gradients)) for weight in weights]
    return padding(1), padding(0)


def _candidates(samples: Sequence[MemorySample]) -> Sequence[MemorySample]:
    """Return the highest sample of each phase; all samples if that depends on symbols."""
    if not all(isinstance(sample.bytes, int) for sample in samples):
        return samples
    phases = dict.fromkeys(sample.phase for sample in samples)
    return [max((sample for sample in samples if sample.phase == phase), key=attrgetter("bytes")) for phase in phases]


def peaks(a_step: Step) -> tuple[tuple[PhasePeak[Size], ...], tuple[PhasePeak[Size], ...]]:
    """Return the peak of each phase, of a later step and of the first one."""
    later = _peaks(a_step.samples, a_step.later, a_step.updates[0])
    return later, _peaks(a_step.first_samples, a_step.first, a_step.updates[1])


def _peaks(samples: Sequence[MemorySample], throughout: Size, update: MemorySample) -> tuple[PhasePeak[Size], ...]:
    highest = (_highest([sample for sample in samples if sample.phase == phase]) for phase in PASSES)
    passes = (PhasePeak(phase, operator, maximum(*(throughout + size for size in sizes))) for phase, operator, sizes in highest)
    return (*passes, PhasePeak(update.phase, update.operator, update.bytes))


def _highest(samples: list[MemorySample]) -> tuple[Phase, str, list[Size]]:
    """Return the phase of the samples, and the operator and the bytes of the highest one; if that depends on symbols, of several."""
    if all(isinstance(sample.bytes, int) for sample in samples):
        (sample,) = _candidates(samples)
        return sample.phase, sample.operator, [sample.bytes]
    return samples[0].phase, "", undominated(sample.bytes for sample in samples)


def _updates_in_backward(forward: Trace, weights: tuple[Weight[Size], ...], training: Training, *, creating: bool) -> Updates:
    """Return the updates of weights in the backward pass, which creates the state if it is the first one."""
    if not training.optimizer_in_backward:
        return {}
    states = (tensors_of(weight, training, with_gradients=False)[1] if creating else () for weight in weights)
    updates = (Update(alone(weight, training), state) for weight, state in zip(weights, states, strict=True))
    return {stored.tensor.origin: update for stored, update in zip(forward.parameters, updates, strict=True)}


def _average_temporary(weights: tuple[Weight[Size], ...], training: Training) -> Size:
    """Return the bytes of the largest weight cast to the dtype of the EMA weights, if the two differ."""
    average = AVERAGES[training.ema]
    if average in (None, RECIPES[training.precision].weights):
        return 0
    return BYTES[average] * maximum(*(product(weight.shape) for weight in weights))
