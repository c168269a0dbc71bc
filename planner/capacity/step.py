"""Allocated memory during a training step and its peak, for the first step and for all later ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from planner.capacity.figures import PHASES, LiveBytes, Phase, PhasePeak, Weight
from planner.capacity.peak import trace_memory
from planner.capacity.states import States, tensors_of
from planner.capacity.timeline import MemorySample
from planner.spec.precision import AVERAGES, BYTES, GRADIENTS, RECIPES, separate_gradients
from planner.spec.records import Training
from planner.trace.decoder import Trace
from planner.trace.sizes import Size, ceil_div, exceeds_one, maximum, product, undominated

PASSES = tuple(phase for phase in PHASES if phase != "optimizer")
ALLOCATION_BLOCK = 512  # bytes: kMinBlockSize of PyTorch's c10/cuda/CUDACachingAllocator


@dataclass(frozen=True, slots=True)
class Step:
    """Samples of both passes that may be the peak, and what is allocated throughout besides: without optimizer state in the first step."""

    samples: tuple[MemorySample, ...]
    first: Size
    later: Size
    update: MemorySample  # with all that is allocated
    live: LiveBytes[Size]  # of a later step


def step(forward: Trace, weights: tuple[Weight[Size], ...], training: Training, states: States) -> Step:
    """Trace the memory of a training step. Weights, optimizer state, buffers, inputs and reserved bytes are allocated from the start.

    So are gradients if they accumulate over several passes or in another dtype than the weights'.
    """
    preallocated = training.gradient_accumulation > 1 or separate_gradients(training)
    optimizer = states.optimizer + states.step_counters
    weights_bytes = states.weights + states.master_weights + states.average + (states.gradients if preallocated else 0)
    stateless = training.reserve_bytes + weights_bytes + forward.buffers_bytes + forward.inputs_bytes
    block = ALLOCATION_BLOCK if training.round_allocations else 1
    if training.round_allocations:
        of_optimizer, of_the_rest = rounded_up(weights, training, block, with_gradients=preallocated)
        optimizer, stateless = optimizer + of_optimizer, stateless + of_the_rest
    start = stateless + optimizer
    walked = trace_memory(forward.nodes, preallocated=preallocated, block=block)
    temporary = maximum(_update_temporaries(forward, weights, training), _average_temporary(weights, training))
    update = MemorySample("optimizer", f"{training.optimizer} step", [start + walked.after_backward + temporary])
    live = LiveBytes(start, start + walked.after_forward, start + walked.after_backward)
    return Step(tuple(_candidates(walked.samples)), stateless, start, update, live)


def not_counted(training: Training) -> tuple[str, ...]:
    """Return what the peak omits: temporary memory of updates that is not modeled."""
    lines = []
    if training.optimizer not in {"adamw", "adam", "lion", "sgd", "sgd-momentum"}:
        lines.append(f"temporary memory of the update of {training.optimizer}")
    if RECIPES[training.precision].master and GRADIENTS[training.gradient_dtype] != RECIPES[training.precision].moments:
        lines.append("float32 copies of the gradients that an unfused update makes")
    return tuple(lines)


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
    highest = [_highest([sample for sample in a_step.samples if sample.phase == phase]) for phase in PASSES]
    phase, operator, (update,) = _highest([a_step.update])
    later, first = (
        (*(PhasePeak(phase, operator, maximum(*(throughout + size for size in sizes))) for phase, operator, sizes in highest),
         PhasePeak(phase, operator, update))
        for throughout in (a_step.later, a_step.first)
    )  # fmt: skip
    return later, first


def _highest(samples: list[MemorySample]) -> tuple[Phase, str, list[Size]]:
    """Return the phase of the samples, and the operator and the bytes of the highest one; if that depends on symbols, of several."""
    if all(isinstance(sample.bytes, int) for sample in samples):
        (sample,) = _candidates(samples)
        return sample.phase, sample.operator, [sample.bytes]
    return samples[0].phase, "", undominated(sample.bytes for sample in samples)


def _update_temporaries(forward: Trace, weights: tuple[Weight[Size], ...], training: Training) -> Size:
    """Return the temporary bytes of an update.

    Adam: none if fused; a list of all roots (foreach); or a root and its quotient per weight, while a variable keeps the previous weight's
    quotient alive (for-loop; _single_tensor_adam in torch/optim/adam.py). Lion: a copy of the moment and its sum with the gradient, per
    weight.
    """
    if training.optimizer not in {"adamw", "adam", "lion"} or (training.optimizer != "lion" and training.optimizer_kernel == "fused"):
        return 0
    moments = [tensors_of(weight, training, with_gradients=False)[1][0] for weight in weights]
    if training.optimizer == "lion":
        return 2 * maximum(*moments)
    if training.optimizer_kernel == "foreach":
        return sum(weight.copies * moment for weight, moment in zip(weights, moments, strict=True))
    after_last = [2 * moments[first] + exceeds_one(count) * moments[end - 1] for first, end, count in forward.stacks if first < end]
    return maximum(*(2 * moment + before for moment, before in zip(moments, [0, *moments[:-1]], strict=True)), *after_last)


def _average_temporary(weights: tuple[Weight[Size], ...], training: Training) -> Size:
    """Return the bytes of the largest weight cast to the dtype of the EMA weights, if the two differ."""
    average = AVERAGES[training.ema]
    if average in (None, RECIPES[training.precision].weights):
        return 0
    return BYTES[average] * maximum(*(product(weight.shape) for weight in weights))
