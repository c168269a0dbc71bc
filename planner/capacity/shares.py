"""What one device holds of a model's weights and states, and what it allocates around a step: alone, and by data parallelism of PyTorch.

Read from PyTorch 2.13: torch/distributed/fsdp/_fully_shard (FSDP2), torch/nn/parallel/distributed.py and
torch/csrc/distributed/c10d/reducer.cpp (DDP), torch/distributed/optim/zero_redundancy_optimizer.py (ZeRO-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from itertools import islice
from types import MappingProxyType

from planner.capacity import fully_shard
from planner.capacity.context_parallel import with_sequences
from planner.capacity.figures import Traffic, Weight
from planner.capacity.optimizers import ElementBytes
from planner.capacity.pipeline import Moment, in_flight, moments
from planner.capacity.schedule_events import events, gathering
from planner.capacity.schedules import order, reduced, resharded
from planner.capacity.states import States, states
from planner.capacity.timeline import Change, Changes
from planner.capacity.traffic import traffic
from planner.capacity.weight_parts import own_part, scales_of
from planner.spec.precision import separate_gradients
from planner.spec.records import Layout, Training
from planner.trace.decoder import Piped, Trace
from planner.trace.nodes import operations
from planner.trace.sizes import Size, maximum, product, structure, total


@dataclass(frozen=True, slots=True)
class Gathered:
    """The whole weights and gradients of a stage, from its first microbatch until the last one has run, and their reduction to ``shard``.

    ``passes``: what happens in the passes of a microbatch, by whether they gather weights, and whether the stage has gradients.
    ``resharded``: bytes of the weights that are freed after each forward pass. ``adds_in_place``: gradients accumulate in its dtype.
    """

    weights: Size
    gradients: Size
    shard: Size
    passes: Mapping[tuple[bool, bool], Changes]
    resharded: Size
    adds_in_place: bool
    reduction: Sequence[Change]


@dataclass(frozen=True, slots=True)
class Share:
    """One device's share of the weights and states.

    ``weights`` are those that its optimizer updates. ``held`` is allocated throughout besides its states but gradients: gradients that
    exist before the last pass, and DDP's buckets. ``preallocated``: gradients are added to some that exist. ``released``: those are freed
    once the gradient is in a bucket. ``updating`` is allocated while the optimizer runs. ``buffers`` are listed in reports.
    """

    weights: tuple[Weight[Size], ...]
    states: States
    held: Size
    preallocated: bool
    released: bool = False
    changes: Changes = field(default_factory=lambda: MappingProxyType({}))
    stored: tuple[Weight[Size], ...] = ()  # with padding
    buffers: tuple[tuple[str, Size], ...] = ()
    traffic: tuple[Traffic[Size], ...] = ()
    which: str = "any of the equal devices"
    updating: Size = 0
    moments: Sequence[Moment] = ()  # of a pipeline's schedule
    gathered: Sequence[Gathered] = ()  # of each of a pipeline's stages, if they share weights
    host: States | None = None  # what is in host memory instead
    has_state: bool = False  # whether the optimizer's state exists before the first step


def share(forward: Trace, weights: tuple[Weight[Size], ...], training: Training, number: int | None = None) -> Share:
    """Return the share of a data-parallel device, by its number; None: the one with the largest."""
    layout = training.layout
    if layout and layout.data_parallel in ("fsdp", "hsdp"):
        return fully_sharded(forward, weights, training, layout, number or 0)
    if layout is None or layout.data_degree == 1:
        made = alone(forward, weights, training)
        return made if number is None else replace(made, which=f"number {number} of the devices that share a sequence")
    return replicated(forward, weights, training, layout, number)


def alone(forward: Trace, weights: tuple[Weight[Size], ...], training: Training) -> Share:
    """Return the share of a device that shares no weight with others.

    Gradients exist from the start if they accumulate over several passes, or have another dtype than the weights. The gradient of a whole
    table stays, since that of the device's part is a view of it.
    """
    whole, buffered = states(weights, training), training.implementation == "megatron-core"  # DistributedDataParallel's buffers
    preallocated = buffered or training.gradient_accumulation > 1 or separate_gradients(training)
    elements = ElementBytes.by_recipe(training).gradient
    tables = [stored for stored in forward.parameters if stored.gradient != product(stored.tensor.shape)]
    if tables:
        more = elements * sum((stored.gradient - product(stored.tensor.shape)) * stored.copies for stored in tables)
        lines = tuple(replace(line, total_bytes=line.total_bytes + more * (line.part == "gradients")) for line in whole.lines)
        whole = replace(whole, lines=lines, gradients=whole.gradients + more)
    parts = elements * sum(product(stored.tensor.shape) * stored.copies for stored in tables)
    held, sent = whole.gradients if preallocated else 0, traffic(forward.nodes, training)
    changes = {} if forward.piped else with_sequences(training, {})
    mine = Share(weights, whole, held, preallocated, changes=changes, stored=weights, traffic=sent, updating=parts + _sums(forward))
    return _piped(forward, mine, training) if forward.piped else mine


def _piped(forward: Trace, share: Share, training: Training) -> Share:
    """Return the share of a device of a pipeline, which receives every microbatch in buffers of its own. No gradients exist before."""
    layout, microbatches, pipes = training.layout, training.gradient_accumulation, [part.piped for part in forward.parts if part.piped]
    assert layout is not None  # noqa: S101 - a stage has one
    found, which = schedule(pipes, layout, microbatches, share.gathered)
    buffers = sum(pipe.stage.buffers(microbatches, pipe.passed) for pipe in pipes)
    listed = (*share.buffers, ("buffers that receive microbatches and gradients", buffers))
    return replace(share, held=buffers, preallocated=False, buffers=listed, which=which, moments=found)


def schedule(pipes: Sequence[Piped], layout: Layout, microbatches: Size, gathered: Sequence[Gathered] = ()) -> tuple[Sequence[Moment], str]:
    """Return the moments of a device with these stages, and its description. ``gathered``: what they gather under FSDP2."""
    device, again = pipes[0].stage.number, any(one.resharded != 0 for one in gathered)
    found = events(layout, device, microbatches, reduces=bool(gathered), reshards=again)
    if found is None:
        steps, several = order(layout, structure(device), structure(microbatches)), structure(microbatches)
        steps = resharded(steps) if again else steps
        found = moments(reduced(steps, several) if gathered else steps, len(pipes))
    flying, stages = sum(in_flight(found)), ", ".join(str(pipe.stage.number) for pipe in pipes)
    return found, f"stage{'s' * (len(pipes) > 1)} {stages} of {pipes[0].stage.of}, with {flying} microbatch{'es' * (flying > 1)} in flight"


def _sums(forward: Trace) -> Size:
    """Return the bytes of the gradients that are summed over devices for the optimizer: all sums, and one gradient to send.

    DTensor.redistribute of the arguments of the fused optimizer; of a divided table, it copies the device's part as well.
    """
    found = [(sent.bytes, copies) for node, copies in operations(forward.nodes) for sent in node.sends if sent.when == "step"]
    return sum(size * copies for size, copies in found) + maximum(*(size for size, _ in found)) if found else 0


def replicated(forward: Trace, weights: tuple[Weight[Size], ...], training: Training, layout: Layout, number: int | None) -> Share:
    """Return the share of a device under DDP, whose buckets are as large as all gradients, and under ZeRO-1 with it.

    Gradients are tensors besides the buckets, or views of them (gradient_as_bucket_view). Passes before the last one do not use the
    buckets (no_sync): their gradients are freed as they enter them. Under expert parallelism, the experts have a wrapper of their own for
    the devices with the same ones, if there are several.
    """
    whole, several, view = states(weights, training), training.gradient_accumulation > 1, layout.gradient_as_bucket_view
    of_experts = states(experts(weights), training).gradients if layout.expert_parallel > 1 else 0
    of_others, bucketed = whole.gradients - of_experts, of_experts if layout.data_degree > layout.expert_parallel else 0
    sent = [Traffic("all-reduce", of_others, layout.cluster.devices)]
    sent += (
        [Traffic("all-reduce", bucketed, layout.cluster.devices - layout.expert_parallel + 1, "data of experts")] if bucketed != 0 else []
    )
    sent += traffic(forward.nodes, training)
    bucketed = bucketed + of_others
    held = bucketed + (whole.gradients if several else 0)  # what earlier passes have left
    which = f"any of {layout.data_degree} equal ones" if layout.imbalance == 1 else "the one whose experts get the most tokens"
    updated = weights
    if layout.data_parallel == "zero1":
        trained = tuple(weight for weight in weights if weight.trains)
        tensors = sum(_integer(weight.copies) for weight in trained)
        of_each = partition(trained, min(layout.data_degree, tensors))  # the others have none
        most = max(range(len(of_each)), key=lambda one: sum(_integer(weight.params) for weight in of_each[one]))
        device = most if number is None else number
        updated, which = of_each[device] if device < tensors else (), f"number {device}, with the most optimizer state"
        own = states(updated, training)
        whole = replace(whole, lines=_with_optimizer(whole, own), optimizer=own.optimizer, paged=own.paged, step_counters=own.step_counters)
        sent.append(Traffic("broadcast", states(trained, training).weights, layout.cluster.devices))
    buckets = (("gradient buckets of DDP", 0 if view and not several else bucketed),)
    return Share(updated, whole, held, several or view, several and view, MappingProxyType({}), weights, buckets, tuple(sent), which)


def experts(weights: tuple[Weight[Size], ...]) -> tuple[Weight[Size], ...]:
    """Return the weights of routed experts."""
    return tuple(weight for weight in weights if weight.component == "experts")


def partition(weights: Iterable[Weight[Size]], degree: int) -> list[tuple[Weight[Size], ...]]:
    """Return the weights whose state each device has: the largest first, each goes to the device with the fewest elements.

    ZeroRedundancyOptimizer._partition_parameters.
    """
    loads, found = [(0, device) for device in range(degree)], [dict[Weight[Size], int]() for _ in range(degree)]
    for weight in sorted(weights, key=lambda weight: -_integer(product(weight.shape))):
        for _ in range(_integer(weight.copies)):
            elements, device = loads[0]
            heapreplace(loads, (elements + _integer(product(weight.shape)), device))
            found[device][weight] = found[device].get(weight, 0) + 1
    return [tuple(replace(weight, copies=copies) for weight, copies in one.items()) for one in found]


def _integer(size: Size) -> int:
    if not isinstance(size, int):
        raise TypeError(f"which device has a weight depends on {size}")
    return size


def _with_optimizer(whole: States, own: States) -> tuple[fully_shard.Line, ...]:
    """Return the lines of states, that of the optimizer from others."""
    of_optimizer = {line.part: line for line in own.lines if line.part == "optimizer"}
    return tuple(of_optimizer.get(line.part, line) for line in whole.lines)


def fully_sharded(forward: Trace, weights: tuple[Weight[Size], ...], training: Training, layout: Layout, number: int) -> Share:
    """Return the share of a device under FSDP2, or HSDP with copies of the shards.

    Every weight is cut along its first dimension into equal parts, the last ones padded; optimizer state has no padding. With a master copy
    of the weights, that is what is cut, and the weights of lower precision exist only after they are gathered. The passes before the last
    one do not reduce gradients, so these stay whole (set_requires_gradient_sync).
    """
    replicas, shards = layout.data_parallel == "hsdp", layout.shard_degree if layout.data_parallel == "hsdp" else layout.sharing_degree
    place = number if number < shards else number % shards
    padded, own = (tuple(own_part(weight, layout, shards, which) for weight in weights) for which in (None, place))
    stored, optimizer = states(padded, training), states(own, training)
    each = ElementBytes.by_recipe(training)
    on_host = layout.offload == "weights"  # where gradients are copied without padding
    gradients = (optimizer if on_host else stored).gradients // each.gradient * (each.master or each.gradient)
    lines = _with_optimizer(stored, optimizer)
    if each.master:
        lines = tuple(fully_shard.gathered_line(line, each, gradients) for line in lines)
    mine = replace(
        optimizer,
        lines=lines,
        weights=0 if each.master else stored.weights,
        master_weights=stored.master_weights,
        gradients=gradients,
        average=stored.average,
    )
    several = training.gradient_accumulation > 1
    if forward.piped:
        rest = iter(weights)
        every = tuple(fully_shard.groups(part, tuple(islice(rest, len(part.parameters))), training, shards) for part in forward.parts)
        sent = fully_shard.traffic_of_stages(every, _gathering(layout, training, forward, every), layout)
        own_share = Share(own, mine, 0, False, stored=padded, traffic=(*sent, *traffic(forward.nodes, training)))
        return _piped(forward, _sharded_stages(every, own_share, replicas=replicas), training)
    groups = fully_shard.groups(forward, weights, training, shards)
    changes = with_sequences(training, fully_shard.changes(groups, several=several, replicas=replicas))
    inside = traffic(forward.nodes, training)
    held = sum(group.accumulated * copies for group, copies in groups.counted) if several else 0
    buffers = (*fully_shard.buffers(groups), *([("gradients of earlier passes, whole", held)] if several else []))
    sent = fully_shard.traffic(groups, training.gradient_accumulation, layout)
    host, mine = _on_host(mine, total(scales_of(weight) for weight in padded)) if on_host else (None, mine)
    which = f"shard {place} of {shards}: the first ones have the most rows of uneven weights"
    return Share(own, mine, held, several and groups.adds_in_place, False, changes, padded, buffers, (*sent, *inside), which, host=host)


def _on_host(mine: States, scales: Size) -> tuple[States, States]:
    """Return the states of a device in host memory, and in its own: only scales of packed weights."""
    lines = tuple(replace(line, total_bytes=line.total_bytes - scales * (line.part == "weights")) for line in mine.lines)
    there = (replace(line, what=f"{line.what}, in host memory", total_bytes=scales * (line.part == "weights")) for line in mine.lines)
    return replace(mine, lines=lines, weights=mine.weights - scales), States(tuple(there), scales, 0, 0, 0, 0, 0, 0)


def _gathering(layout: Layout, training: Training, forward: Trace, stages: Sequence[fully_shard.Groups]) -> Size:
    """Return how many passes through a stage gather weights that are freed after each forward pass."""
    if all(groups.resharded == 0 for groups in stages):
        return 0
    if (closed := gathering(layout, training.gradient_accumulation)) is not None:
        return closed
    device = next(structure(part.piped.stage.number) for part in forward.parts if part.piped)
    return sum(one.gathers for one in resharded(order(layout, device, structure(training.gradient_accumulation))))


def _sharded_stages(stages: Sequence[fully_shard.Groups], share: Share, *, replicas: bool) -> Share:
    """Return the share of stages under FSDP2, which keep weights and gradients whole while microbatches run."""
    gathered = tuple(_gathered(groups, replicas=replicas) for groups in stages)
    weights, gradients = (sum(getattr(one, name) for one in gathered) for name in ("weights", "gradients"))
    return replace(share, gathered=gathered, buffers=(("gathered weights", weights), ("whole gradients", gradients)))


def _gathered(groups: fully_shard.Groups, *, replicas: bool) -> Gathered:
    weights, gradients, shard = (
        sum(getattr(group, size) * copies for group, copies in groups.counted) for size in ("gathered", "accumulated", "shard")
    )
    each = {
        (gathers, exist): fully_shard.changes_of_microbatch(groups, gathers=gathers, first=not exist)
        for gathers in (False, *([True] if groups.resharded != 0 else []))
        for exist in (False, True)
    }
    return Gathered(
        weights, gradients, shard, each, groups.resharded, groups.adds_in_place, fully_shard.reduction(groups, replicas=replicas)
    )
