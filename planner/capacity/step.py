"""A training step from start to end: what is alive, and where it peaks, in the first step and in every later one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.capacity.alive import Moment
from planner.capacity.figures import PHASES, LiveBytes, Phase, PhasePeak, Weight
from planner.capacity.peak import walk
from planner.capacity.states import States, tensors_of
from planner.spec.precision import AVERAGES, BYTES, GRADIENTS, RECIPES, separate_gradients
from planner.spec.records import Training
from planner.trace.decoder import Trace
from planner.trace.sizes import Size, ceil_div, exceeds_one, maximum, product, undominated

ALLOCATION_BLOCK = 512  # bytes: kMinBlockSize of PyTorch's c10/cuda/CUDACachingAllocator


@dataclass(frozen=True, slots=True)
class Step:
    """Moments that can be the highest: of the first step, which starts without optimizer state, and of every later one."""

    first: tuple[Moment, ...]
    later: tuple[Moment, ...]
    live: LiveBytes[Size]  # of a later step


def step(forward: Trace, weights: tuple[Weight[Size], ...], training: Training, states: States) -> Step:
    """Walk a training step on top of what is there from its start: weights, optimizer state, buffers, inputs, and what the spec reserves.

    Gradients are there from the start, too, where they are added up over several passes or in another dtype than the weights'.
    """
    preallocated = training.gradient_accumulation > 1 or separate_gradients(training)
    optimizer = states.optimizer + states.step_counters
    stateless = (
        training.reserve_bytes + states.weights + states.master_weights + states.average + forward.buffers_bytes + forward.inputs_bytes
    )
    stateless = stateless + (states.gradients if preallocated else 0)
    block = ALLOCATION_BLOCK if training.round_allocations else 1
    if training.round_allocations:
        of_optimizer, of_the_rest = rounded_up(weights, training, block, with_gradients=preallocated)
        optimizer, stateless = optimizer + of_optimizer, stateless + of_the_rest
    start = stateless + optimizer
    walked = walk(forward.nodes, preallocated=preallocated, block=block)
    temporary = maximum(_update_temporaries(forward, weights, training), _average_temporary(weights, training))
    update = Moment("optimizer", f"{training.optimizer} step", start + walked.after_backward + temporary)
    moments = _candidates(walked.moments)
    return Step(
        (*(Moment(moment.phase, moment.operator, stateless + moment.bytes) for moment in moments), update),
        (*(Moment(moment.phase, moment.operator, start + moment.bytes) for moment in moments), update),
        LiveBytes(start, start + walked.after_forward, start + walked.after_backward),
    )


def not_counted(training: Training) -> tuple[str, ...]:
    """Return what the step leaves out of its peak: what updates need beside the optimizer's state, where it is not known."""
    lines = []
    if training.optimizer not in {"adamw", "adam", "lion", "sgd", "sgd-momentum"}:
        lines.append(f"what the update of {training.optimizer} needs beside its state while it runs")
    if RECIPES[training.precision].master and GRADIENTS[training.gradient_dtype] != RECIPES[training.precision].moments:
        lines.append("float32 copies of the gradients, which an update that is not fused makes")
    return tuple(lines)


def rounded_up(weights: tuple[Weight[Size], ...], training: Training, block: int, *, with_gradients: bool) -> tuple[Size, Size]:
    """Return the bytes that fill the allocator's blocks: of the optimizer's tensors, and of weights, masters, averages, gradients.

    Buffers and inputs are a few tensors and are left as they are.
    """
    of_optimizer: Size = 0
    of_the_rest: Size = 0
    for weight in weights:
        rest, moments = tensors_of(weight, training, with_gradients=with_gradients)
        of_optimizer = of_optimizer + weight.copies * sum(ceil_div(size, block) * block - size for size in moments)
        of_the_rest = of_the_rest + weight.copies * sum(ceil_div(size, block) * block - size for size in rest)
    return of_optimizer, of_the_rest


def _candidates(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Return the highest moment of each phase; all moments where it depends on symbols which one that is."""
    if not all(isinstance(moment.bytes, int) for moment in moments):
        return moments
    of_phases = {phase: [moment for moment in moments if moment.phase == phase] for phase in PHASES}
    peaks = [_highest(phase, of_phase) for phase, of_phase in of_phases.items() if of_phase]
    return [Moment(peak.phase, peak.operator, peak.peak_bytes) for peak in peaks]


def highest(moments: Iterable[Moment]) -> tuple[PhasePeak[Size], ...]:
    """Return for each phase the moment at which most bytes are alive."""
    return tuple(_highest(phase, [moment for moment in moments if moment.phase == phase]) for phase in PHASES)


def _highest(phase: Phase, moments: list[Moment]) -> PhasePeak[Size]:
    sizes = [moment.bytes for moment in moments]
    values = [size for size in sizes if isinstance(size, int)]
    if len(values) < len(sizes):  # which one it is depends on the symbols
        return PhasePeak(phase, "", maximum(*undominated(sizes)))
    highest_value = max(values)
    return PhasePeak(phase, moments[values.index(highest_value)].operator, highest_value)


def _update_temporaries(forward: Trace, weights: tuple[Weight[Size], ...], training: Training) -> Size:
    """Return the bytes that an update needs beside its state.

    Adam's: none where it is fused; a list of all roots in one go (foreach); or a root and its quotient, weight by weight, while a variable
    still names the quotient of the weight before (for-loop; _single_tensor_adam in torch/optim/adam.py).
    Lion's: the moment's copy and its sum with the gradient, one weight after the other.
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
    """Return the bytes of the largest weight's copy in the dtype of the average, which is made where the two differ."""
    average = AVERAGES[training.ema]
    return 0 if average in (None, RECIPES[training.precision].weights) else BYTES[average] * _largest(weights)


def _largest(weights: tuple[Weight[Size], ...]) -> Size:
    """Return the elements of the largest weight."""
    return maximum(*(product(weight.shape) for weight in weights))
