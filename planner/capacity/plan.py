"""The plan of one model in one scenario, computed from its trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import log
from typing import TypeAlias, cast

from planner.capacity import deepspeed, megatron_layout
from planner.capacity.activations import OWN_LINES, SavedEntry, host_bytes, saved_for_backward
from planner.capacity.context_parallel import unlike_devices
from planner.capacity.figures import COMPONENTS, Fleet, Memory, Plan, Prediction, RankPeak, SavedStorage, ShapeLine
from planner.capacity.flops import flops
from planner.capacity.layouts import fleet, left_out, peaks_of, refuse_mixed, refuse_unmodeled
from planner.capacity.parameters import parameters
from planner.capacity.pipeline import saved
from planner.capacity.schedules import stages_of
from planner.capacity.serving import of_section
from planner.capacity.shares import Share, share
from planner.capacity.step import Step, not_counted, peaks, step, walks
from planner.spec.records import Layout, Model, MultiTokenPrediction, Scenario, Spec, Training
from planner.spec.records.layout import V_SHAPED
from planner.trace.decoder import LOSS, Trace, of_stages, trace
from planner.trace.sizes import Size, hinted, maximum, total
from planner.trace.stages import stage
from planner.trace.unsupported import UnsupportedError

PADDED_TOKENS = "padding of batches: each of the B × n tokens is assumed to be a real one"


def plan(spec: Spec, scenario: Scenario) -> Plan:
    """Return the parameters, memory and FLOPs of the spec's model in a scenario.

    Raises UnsupportedError, prefixed with the spec's path, if the trace does not support it.
    """
    made = _figures(spec, scenario)
    kind, counted = spec.model.prediction, scenario.training.count_prediction
    if kind:
        other = _figures(spec, replace(scenario, training=replace(scenario.training, count_prediction=not counted)))
        made = replace(made, prediction=prediction(kind, *((made, other) if counted else (other, made)), counted=counted))
    if scenario.name == spec.scenarios[0].name:
        made = replace(made, served=of_section(spec))
    return cast("Plan", made)  # figures of a model of integers are integers


def _figures(spec: Spec, scenario: Scenario) -> Plan[Size]:
    training, layout = scenario.training, scenario.training.layout
    try:
        refuse_unmodeled(spec.model, training)
        forward = _whole(spec.model, training)
        ranks = _ranks(forward, spec.model, training)
    except UnsupportedError as error:
        raise UnsupportedError(f"{spec.path}: error[not-modelled]: scenario {scenario.name} of {spec.name}: {error}") from None
    mine = ranks[0]
    if len(ranks) > 1 and layout:
        fullest = max(range(len(ranks)), key=lambda number: ranks[number][2].peak_bytes)
        mine = ranks[fullest]
        if layout.pipeline_parallel > 1:
            number, place = divmod(fullest, layout.pipeline_parallel)
            (mine,) = of_devices(spec.model, training, layout, [place], [context_numbers(training)[number]])  # with its own layers' numbers
    return _planned(spec, scenario, forward, mine, ranks)


def of_kinds(spec: Spec, scenario: Scenario) -> list[Plan[Size]]:
    """Return the plan of each kind of device that can have the largest peak, of a modeled layout over symbols."""
    forward = _whole(spec.model, scenario.training)
    return [_planned(spec, scenario, forward, rank, [rank]) for rank in _ranks(forward, spec.model, scenario.training)]


def _whole(model: Model, training: Training) -> Trace:
    """Return the trace of the whole model on one device."""
    return trace(model, replace(training, layout=None))


def _planned(spec: Spec, scenario: Scenario, forward: Trace, rank: Rank, ranks: Sequence[Rank]) -> Plan[Size]:
    """Return the plan with the memory of a device; ``forward`` is the trace of the whole model."""
    model, training, counted = spec.model, scenario.training, parameters(forward)
    several = left_out(training)
    mine, held, used = rank
    return Plan(
        name=spec.name,
        scenario=scenario.name,
        spec_path=spec.path,
        model=model,
        training=training,
        parameters=counted,
        memory=used,
        flops=flops(forward.nodes, counted, model, training),
        shapes=tuple(ShapeLine(line.path, line.what, line.tensor.shape, line.tensor.dtype, line.copies) for line in forward.shapes),
        initial_loss=log(hinted(model.classes if model.head_type == "classes" else model.vocab_size)),
        train_tokens=training.tokens,
        not_counted=(*spec.omits, *mine.not_counted, *not_counted(training), *several, PADDED_TOKENS),
        omits=spec.omits,
        fleet=fleet(held, used, training, ranks),
    )


Rank: TypeAlias = tuple[Trace, Share, Memory[Size]]


def _ranks(forward: Trace, model: Model, training: Training) -> list[Rank]:
    """Return what each kind of device runs and holds: one, each device of a pipeline, or devices with unlike parts of a sequence.

    If the number of a pipeline's is a symbol, these are the first two and the last one: those between are like the second one, with less
    in flight.
    """
    layout = training.layout
    if layout is None or layout.cluster.devices == 1:
        return [_rank(forward, training)]
    count: Size = layout.pipeline_parallel
    if count == 1 and (numbers := unlike_devices(training)):
        return [_rank(trace(model, training, context_rank=number), training, number) for number in numbers]
    if count == 1:
        return [_rank(trace(model, training), training)]
    return of_devices(model, training, layout, range(count) if isinstance(count, int) else (0, 1, count - 1))


def divided(model: Model, training: Training) -> Fleet[Size]:
    """Return the devices of a layout without the rest of a plan, as ``unlike`` does. Raises UnsupportedError if it is not modeled."""
    refuse_unmodeled(model, training)
    some = _outer(model, training)
    _, held, used = max(some, key=lambda one: one[2].peak_bytes)
    made = fleet(held, used, training, some)
    assert made is not None  # noqa: S101 - the training has a cluster
    return made


def unlike(model: Model, training: Training) -> tuple[RankPeak[Size], ...]:
    """Return the devices of a modeled layout that can have the largest peak or most work, in numbers or over symbols."""
    return peaks_of(_outer(model, training))


def _outer(model: Model, training: Training) -> list[Rank]:
    """Return all kinds of devices, and of a pipeline's the first two and the last one."""
    layout = training.layout
    assert layout is not None  # noqa: S101 - the caller has one
    count: Size = layout.pipeline_parallel
    if count == 1:
        return _ranks(trace(model, training), model, training)
    return of_devices(model, training, layout, sorted({0, 1, count - 1}) if isinstance(count, int) else (0, 1, count - 1))


def of_devices(
    model: Model, training: Training, layout: Layout, devices: Iterable[Size], numbers: Sequence[int] | None = None
) -> list[Rank]:
    """Return what devices of a pipeline run and hold, by their numbers, for each of the ``numbers`` among those that share sequences.

    These are by default those of devices that differ.
    """
    every, found = tuple(devices), list[Rank]()
    for number in context_numbers(training) if numbers is None else numbers:
        ranks = _of_stages(model, training, layout, every, number)
        where = f", number {number} of the devices that share a sequence" if unlike_devices(training) else ""
        found += [(forward, replace(held, which=held.which + where), used) for forward, held, used in ranks]
    return found


def context_numbers(training: Training) -> tuple[int, ...]:
    """Return the numbers of devices that differ among those that share a sequence, the first one if all are equal."""
    return unlike_devices(training) or (0,)


def _of_stages(model: Model, training: Training, layout: Layout, devices: Iterable[Size], context_rank: int) -> list[Rank]:
    """Return what devices of a pipeline run and hold. Equal stages share a trace, whose layers may have other numbers."""
    traced: dict[tuple[object, ...], Trace] = {}

    def part(number: Size, of_device: tuple[Size, ...]) -> Trace:
        neighbors = of_device if layout.schedule in V_SHAPED else ()
        mine = stage(model, layout, number, neighbors)
        kind = mine.first, mine.last, mine.follows_own, mine.precedes_own, mine.runs, training.recompute_every > 1 and mine.first_layer
        if kind not in traced:
            traced[kind] = trace(model, training, mine, context_rank=context_rank)
        made = traced[kind]
        return replace(made, piped=made.piped and replace(made.piped, stage=mine))

    every = (stages_of(layout, device) for device in devices)
    return [_rank(of_stages(tuple(part(number, mine) for number in mine)), training) for mine in every]


def device(model: Model, training: Training, layout: Layout, stage: int, number: int) -> tuple[Share, Memory[Size]]:
    """Return what a device of PyTorch's parallelism holds, by its numbers in the pipeline and among those that share weights."""
    if layout.pipeline_parallel > 1:
        ((forward, _, _),) = of_devices(model, training, layout, [stage], [number % layout.context_parallel])
    else:
        forward = trace(model, training, context_rank=number % layout.context_parallel)
    _, held, used = _rank(forward, training, number)
    return held, used


def _rank(forward: Trace, training: Training, number: int | None = None) -> Rank:
    weights = parameters(forward).weights
    refuse_mixed(weights, training)
    layout = training.layout
    if layout and layout.engine == "deepspeed" and layout.data_degree > 1:
        held = deepspeed.share(forward, weights, training, layout)
    elif training.by_megatron:
        held = megatron_layout.share(forward, weights, training)
    else:
        held = share(forward, weights, training, number)
    return forward, held, memory(forward, held, training)


def prediction(kind: MultiTokenPrediction, full: Plan[Size], main: Plan[Size], *, counted: bool) -> Prediction[Size]:
    """Return what prediction layers add: the difference between the plans with and without them."""
    model = main.model
    width = model.d_model if model.embedding_dim is None else model.embedding_dim
    copies = 2 * model.padded_vocab_size * width * kind.count if kind.copies_embedding else 0
    biases = full.parameters.correction_biases - main.parameters.correction_biases
    params = full.parameters.total - main.parameters.total
    return Prediction(
        counted=counted,
        stored_params=params + biases + copies,
        params=params,
        active_params=full.parameters.active - main.parameters.active,
        model_states_bytes=full.memory.model_states_bytes - main.memory.model_states_bytes,
        activations_bytes=full.memory.activations_bytes - main.memory.activations_bytes,
        peak_bytes=full.memory.peak_bytes - main.memory.peak_bytes,
        forward_flops_per_token=full.flops.chosen.forward_per_token - main.flops.chosen.forward_per_token,
        train_flops_per_token=full.flops.chosen.train_per_token - main.flops.chosen.train_per_token,
    )


def plans(spec: Spec) -> tuple[Plan, ...]:
    """Plan every scenario, the base scenario first."""
    return tuple(plan(spec, scenario) for scenario in spec.scenarios)


def with_optimizers(model: Model, trainings: Sequence[Training]) -> Iterator[tuple[Memory[Size], Share, Step]]:
    """Yield the memory of trainings on one device that differ only in the optimizer: from one trace and one walk of it.

    The optimizer must not update weights in the backward pass.
    """
    first = trainings[0]
    forward = _whole(model, first)
    weights = parameters(forward).weights
    held = share(forward, weights, first)
    kept, walked = _saved(forward, held, first), walks(forward, held, first)
    for training in trainings:
        held = share(forward, weights, training)
        a_step = step(forward, held, training, walked)
        yield _memory(forward, held, training, kept, a_step), held, a_step


def memory(forward: Trace, held: Share, training: Training) -> Memory[Size]:
    """Return the bytes of a training step on a device that holds this share of the model."""
    return _memory(forward, held, training, _saved(forward, held, training), step(forward, held, training))


def _saved(forward: Trace, held: Share, training: Training) -> Saved:
    """Return what is saved for backward, and its bytes by component."""
    parts = zip(forward.parts, *saved(held.moments), strict=True) if held.moments else [(forward, 1, 0)]
    entries = [
        replace(entry, copies=entry.copies * (flying + waiting * (entry.path != LOSS)))
        for part, flying, waiting in parts
        for entry in saved_for_backward(part.nodes, offload=training.offload_activations).entries
    ]
    lines = tuple(line for line in map(_line, entries) if line.bytes_each != 0 and line.copies != 0)
    return lines, sum_by_component(entries)


Saved: TypeAlias = tuple[tuple[SavedStorage[Size], ...], dict[str, Size]]


def _memory(forward: Trace, held: Share, training: Training, kept: Saved, a_step: Step) -> Memory[Size]:
    model_states, (lines, by_component) = held.states, kept
    phases, first_phases = peaks(a_step)
    return Memory(
        states=model_states.lines,
        weights_bytes=model_states.weights,
        master_weights_bytes=model_states.master_weights,
        gradients_bytes=model_states.gradients,
        optimizer_bytes=model_states.optimizer,
        model_states_bytes=model_states.total,
        kept=lines,
        activations_bytes=total(by_component.values()),
        activations_by_component=by_component,
        logits_bytes=by_component["logits"],
        phases=phases,
        peak_bytes=maximum(*(phase.peak_bytes for phase in phases)),
        first_step_phases=first_phases,
        first_step_peak_bytes=maximum(*(phase.peak_bytes for phase in first_phases)),
        live=a_step.live,
        average_bytes=model_states.average,
        step_counters_bytes=model_states.step_counters,
        buffers_bytes=forward.buffers_bytes,
        host_bytes=host_bytes(forward.nodes) if training.offload_activations else 0,
    )


def sum_by_component(entries: Iterable[SavedEntry]) -> dict[str, Size]:
    """Return the saved bytes by component, including those outside the model."""
    by_component: dict[str, list[Size]] = {name: [] for name in (*COMPONENTS, *OWN_LINES)}
    for entry in entries:
        by_component[entry.component].append(entry.bytes)
    return {name: total(sizes) for name, sizes in by_component.items()}


def _line(entry: SavedEntry) -> SavedStorage[Size]:
    storage = entry.storage
    each = storage.bytes * entry.times
    return SavedStorage(entry.path, entry.what, storage.shape, storage.dtype, each, entry.copies, entry.component)
