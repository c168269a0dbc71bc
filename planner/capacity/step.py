"""Allocated memory during a training step and its peak, for the first step and for all later ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from planner.capacity import pipeline
from planner.capacity.backward_pass import Update, Updates
from planner.capacity.context_parallel import sequences
from planner.capacity.figures import LiveBytes, Phase, PhasePeak, Weight
from planner.capacity.passes import passes
from planner.capacity.peak import trace_memory
from planner.capacity.shares import Share
from planner.capacity.states import tensors_of
from planner.capacity.stored import bytes_between_steps
from planner.capacity.timeline import PASSES, MemoryTimeline
from planner.capacity.update import alone, not_modeled, update_temporaries
from planner.spec.precision import AVERAGES, BYTES, RECIPES
from planner.spec.records import Training
from planner.trace.decoder import Trace
from planner.trace.nodes import operations
from planner.trace.sizes import Size, ceil_div, maximum, product

ALLOCATION_BLOCK = 512  # bytes: kMinBlockSize of PyTorch's c10/cuda/CUDACachingAllocator


@dataclass(frozen=True, slots=True)
class Step:
    """Both passes of a later step and of the first one, and what is allocated throughout besides: without optimizer state in the first one.

    In the backward pass of the first one, updates of weights create their state.
    """

    later: MemoryTimeline
    first: MemoryTimeline  # the same timeline if no weight is updated in the backward pass
    throughout_later: Size
    throughout_first: Size
    update: str  # the operator of the optimizer phase
    temporaries: tuple[Size, Size]  # of the update in a later step, and in the first one
    left: Size = 0  # by the step before, freed as the step starts

    @property
    def live(self) -> LiveBytes[Size]:
        """Allocated bytes between the phases of a later step."""
        start = self.throughout_later
        return LiveBytes(start + self.left, start + self.later.after_forward, start + self.later.after_backward)

    @property
    def updates(self) -> tuple[Size, Size]:
        """All that is allocated in the update, of a later step and of the first one."""
        before = self.throughout_later + self.later.after_backward
        return before + self.temporaries[0], before + self.temporaries[1]


@dataclass(frozen=True, slots=True)
class Walks:
    """Both passes of a later step and of the first one, and the bytes that the step before leaves."""

    later: MemoryTimeline
    first: MemoryTimeline
    left: Size


def walks(forward: Trace, share: Share, training: Training) -> Walks:
    """Trace the memory of both passes. They depend on the optimizer only if it updates weights in the backward pass."""
    weights, block = _weights(share), _block(training)
    walk = partial(trace_memory, forward.nodes, preallocated=share.preallocated, released=share.released, block=block)
    walk = partial(walk, changes=share.changes, offload=training.offload_activations)
    left: Size = 0
    if forward.piped:
        alike: dict[int, pipeline.Passes] = {}  # by trace
        for part, whole in zip_longest(forward.parts, share.gathered):
            if part.piped and id(part.nodes) not in alike:
                alike[id(part.nodes)] = passes(part, part.piped, whole, share, training)
        stages = [alike[id(part.nodes)] for part in forward.parts]
        left = pipeline.input_gradients(stages, share.moments)
        walked = first = pipeline.step(stages, share.moments, sequences(training))
    else:
        walked = first = walk(updates=_updates_in_backward(forward, weights, training, creating=False))
    if training.optimizer_in_backward or any(node.stored_in == "module" for node, _ in operations(forward.nodes)):
        first = walk(updates=_updates_in_backward(forward, weights, training, creating=True), first_step=True)
    return Walks(walked, first, left)


def step(forward: Trace, share: Share, training: Training, walked: Walks | None = None) -> Step:
    """Trace the memory of a training step. Weights, optimizer state, buffers, inputs and reserved bytes are allocated from the start.

    ``walked``: its passes if they are known.
    """
    weights, states, preallocated, block = _weights(share), share.states, share.preallocated, _block(training)
    optimizer = states.optimizer - states.paged + states.step_counters
    weights_bytes = states.weights + states.master_weights + states.average + share.held
    stateless = training.reserve_bytes + weights_bytes + forward.buffers_bytes + forward.inputs_bytes
    if training.round_allocations:
        of_optimizer, of_the_rest = rounded_up(weights, training, block, with_gradients=preallocated)
        optimizer, stateless = optimizer + of_optimizer, stateless + of_the_rest
    start = stateless + optimizer
    found = walked or walks(forward, share, training)
    between = bytes_between_steps(forward.nodes, block)
    average = _average_temporary(weights, training)
    later, earliest = update_temporaries(forward.stacks, weights, training, states.optimizer - states.paged + states.step_counters)
    temporaries = share.updating + maximum(later, average), share.updating + maximum(earliest, average)
    throughout_first = start if share.has_state else stateless
    update = f"{training.optimizer} step"
    return Step(found.later, found.first, start + between, throughout_first, update, temporaries, found.left)


def _weights(share: Share) -> tuple[Weight[Size], ...]:
    return () if share.host else share.weights


def _block(training: Training) -> int:
    return ALLOCATION_BLOCK if training.round_allocations else 1


def not_counted(training: Training) -> tuple[str, ...]:
    """Return what the peak omits."""
    streams = "the last tensors copied to the host, which programs with streams hold until the copy has ended (torchtune: at most 5)"
    paged = "paged optimizer state: in unified memory, outside PyTorch's allocator"
    return (*([paged] if training.paged else []), *([streams] if training.offload_activations else []), *not_modeled(training))


def rounded_up(weights: tuple[Weight[Size], ...], training: Training, block: int, *, with_gradients: bool) -> tuple[Size, Size]:
    """Return the bytes that rounding to blocks adds to the optimizer's tensors, and to weights, master weights, EMA weights and gradients.

    Buffers and inputs are few tensors and are not rounded.
    """

    def padding(part: int) -> Size:
        tensors = ((weight.copies, size) for weight, parts in every for size in parts[part])
        return sum(copies * (ceil_div(size, block) * block - size) for copies, size in tensors)

    every = [(weight, tensors_of(weight, training, with_gradients=with_gradients)) for weight in weights]
    return padding(1), padding(0)


Peaks = tuple[PhasePeak[Size], ...]  # by phase


def peaks(a_step: Step) -> tuple[Peaks, Peaks]:
    """Return the peak of each phase, of a later step and of the first one."""
    highest = a_step.later.highest()
    later = _peaks(highest, a_step.throughout_later, a_step.update, a_step.updates[0])
    if a_step.first is not a_step.later:
        highest = a_step.first.highest()
    return later, _peaks(highest, a_step.throughout_first, a_step.update, a_step.updates[1])


def _peaks(highest: Iterable[tuple[Phase, str, Size]], throughout: Size, update: str, in_update: Size) -> Peaks:
    tops = {phase: PhasePeak(phase, operator, throughout + size) for phase, operator, size in highest}
    passes = (tops.get(phase, PhasePeak(phase, "", 0)) for phase in PASSES)
    return (*passes, PhasePeak("optimizer", update, in_update))


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
    if not weights or average in (None, RECIPES[training.precision].weights):
        return 0
    return BYTES[average] * maximum(*(product(weight.shape) for weight in weights))
