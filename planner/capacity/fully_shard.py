"""FSDP2's groups of weights: their buffers, when these live, and what is sent.

Read from PyTorch 2.13, torch/distributed/fsdp/_fully_shard: _fsdp_param.py (parts), _fsdp_param_group.py and _fsdp_collectives.py.

Forward: a group's buffer is filled from its parts, cast to the dtype of computation, and then copied to whole weights; the buffer lives
until the next group's weights are copied, the whole weights until the group has run. Backward: before a group runs, its whole weights are
copied from a buffer that was filled while the group after it ran, and the buffer of the group before it is filled. After it has run, its
whole weights are freed, then the scattered gradients of the group after it; then its gradients are copied to a buffer in the dtype of
reduction and scattered. The root's weights, all those outside the other groups, stay whole through the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from planner.capacity import frozen
from planner.capacity.figures import ByteSum, Traffic, Weight
from planner.capacity.optimizers import ElementBytes
from planner.capacity.timeline import Change, Changes, Place
from planner.capacity.weight_parts import gathered, part, sharing
from planner.spec.records import Layout, Training
from planner.trace.decoder import EMBEDDING, HEAD, WHOLE, Trace
from planner.trace.setup import is_one
from planner.trace.sizes import Size, choose, maximum, product

Line: TypeAlias = "ByteSum[Size]"


@dataclass(frozen=True, slots=True)
class Group:
    """Bytes of a group of weights that are gathered together: those of ``experts`` that devices divide, or others.

    ``alone``: the device shares them with no other.
    """

    experts: bool
    alone: bool
    copy: Size  # of its part, cast to the dtype of computation, or copied from the host; alone, with the whole weights
    gathered: Size  # of the buffer, and of the whole weights
    gradients: Size  # whole, in the dtype of computation
    accumulated: Size  # whole, in the dtype of reduction
    tables: Size  # elements of gradients of whole tables of which the device has a part
    of_part: Size  # elements of that part
    casting: Size  # most bytes that are added while gradients are cast to that dtype, one after the other
    scatter: Size  # whole and padded, in the dtype of reduction
    reduced: Size  # the part of that
    shard: Size  # the part's gradients, in the dtype of the part


@dataclass(frozen=True, slots=True)
class UnitGroups:
    """The groups of a unit, one or that of its experts besides, and the unit's copies.

    ``reshards``: its whole weights are freed after its forward pass. ``passed``: what passes it.
    """

    name: str
    groups: tuple[Group, ...]
    copies: Size
    reshards: bool
    passed: frozen.Passed

    @property
    def gathered(self) -> Size:
        """Bytes of the whole weights."""
        return sum(group.gathered for group in self.groups)

    @property
    def scatter(self) -> Size:
        """Bytes of the whole gradients in the dtype of reduction."""
        return sum(group.scatter for group in self.groups)

    def prefetched(self, by: UnitGroups | None) -> tuple[Group, ...]:
        """Return the groups that are gathered before the backward pass of the unit after it, or of the root.

        FSDPParamGroup._backward_prefetch: a single group only gathers the one before it.
        """
        return self.groups[::-1] if by and len(by.groups) > 1 else self.groups[-1:]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of units in order, and the root's, of all other weights, None if there are none."""

    root: Group | None
    units: tuple[UnitGroups, ...]
    root_reshards: bool
    adds_in_place: bool  # whether gradients accumulate in the dtype of computation
    casts: bool  # whether parts have another dtype than reduced gradients
    widths: tuple[int, int]  # bytes of an element in the dtype of computation, and in that of reduction
    on_host: bool  # whether parts and their gradients are in host memory

    @property
    def gathered(self) -> Size:
        """Bytes of all whole weights."""
        return sum(group.gathered * copies for group, copies in self.counted)

    @property
    def idle(self) -> UnitGroups | None:
        """The last unit that does not run backward, which is gathered before the one after it does."""
        return next((unit for unit in reversed(self.units) if not unit.passed.end), None)

    @property
    def resharded(self) -> Size:
        """Bytes of the weights that are freed after a forward pass, and gathered again."""
        of_units = sum(unit.gathered * unit.copies for unit in self.units if unit.reshards and (unit.passed.end or unit is self.idle))
        return of_units + (self.root.gathered if self.root and self.root_reshards else 0)

    @property
    def counted(self) -> tuple[tuple[Group, Size], ...]:
        """Every group with its copies."""
        return (*([(self.root, 1)] if self.root else []), *((group, unit.copies) for unit in self.units for group in unit.groups))


def gathered_line(line: Line, each: ElementBytes, gradients: Size) -> Line:
    """Return a line of the states of a model whose master copy is what devices share."""
    if line.part == "weights":
        return ByteSum("weights", f"{line.what}, gathered: only in the peak", 0, 0)
    if line.part == "gradients":
        return ByteSum("gradients", "fp32", each.master, gradients)
    return line


def groups(forward: Trace, weights: Sequence[Weight[Size]], training: Training, shards: Size) -> Groups:
    """Return the groups of a model's weights."""
    layout, each = training.layout, ElementBytes.by_recipe(training)
    assert layout is not None  # noqa: S101 - the weights are shared
    on_host = layout.offload == "weights"
    always, never = (layout.reshard_after_forward == kind for kind in ("always", "never"))
    layers = tuple(unit for unit in forward.units if unit.name not in (EMBEDDING, HEAD))
    chosen = {"none": (), "titan": forward.units}.get(layout.shard_group, layers)
    inside = {number for unit in chosen for number in range(unit.first, unit.end)}
    passed = frozen.gradients_pass(forward.nodes, training)
    every = [(weight, stored.gradient) for weight, stored in zip(weights, forward.parameters, strict=True)]
    rest = [one for number, one in enumerate(every) if number not in inside]
    found = (
        UnitGroups(
            unit.name,
            tuple(
                _group(some, training, devices, on_host=on_host, norms_last=training.implementation != "pytorch", experts=experts)
                for some, devices, experts in _by_devices(every[unit.first : unit.end], layout, shards)
            ),
            unit.copies,
            not never and unit.name != HEAD,
            passed.get(unit.name, frozen.Passed()),
        )
        for unit in chosen
    )
    reduced = each.gradient if each.master else each.weight
    root = _group(rest, training, shards, on_host=on_host) if rest else None
    casts = reduced != (each.master or each.weight)
    return Groups(root, tuple(found), always, reduced == each.weight, casts, (each.weight, reduced), on_host)


def _by_devices(
    weights: Sequence[tuple[Weight[Size], Size]], layout: Layout, shards: Size
) -> Iterator[tuple[Sequence[tuple[Weight[Size], Size]], Size, bool]]:
    """Yield the weights of one copy of a unit that the same devices share, the number of these, and whether they are experts, the last."""
    every = [(replace(weight, copies=1), gradient) for weight, gradient in weights]
    for experts in (False, True):
        some = [one for one in every if (layout.expert_parallel > 1 and one[0].component == "experts") is experts]
        yield from [(some, sharing(some[0][0], layout, shards), experts)] if some else []


def _group(
    weights: Sequence[tuple[Weight[Size], Size]],
    training: Training,
    shards: Size,
    *,
    on_host: bool,
    norms_last: bool = False,
    experts: bool = False,
) -> Group:
    """Return the bytes of a group of weights, each with the elements of its gradient. ``norms_last``: norms are registered last."""
    learning = [(weight, gradient) for weight, gradient in weights if weight.trains]
    each = frozen.of_trained([weight for weight, _ in weights], training)
    made = sum(gradient * weight.copies for weight, gradient in learning)
    padded = sum(part(weight, shards, None).params for weight, _ in learning)
    own = sum(gathered(weight, shards, training) for weight, _ in weights)
    tables = [(gradient, weight) for weight, gradient in learning if gradient != product(weight.shape)]
    low, stored = each.weight, each.master or each.weight
    reduced = each.gradient if each.master else low
    alone = experts and choose(is_one, shards)
    return Group(
        experts=experts,
        alone=alone,
        copy=_copying(weights, low, stored) if alone else own * (on_host or low != stored),
        gathered=own * shards,
        gradients=made * low,
        accumulated=made * reduced,
        tables=sum(gradient * weight.copies for gradient, weight in tables),
        of_part=sum(weight.params for _, weight in tables),
        casting=_casting(learning, low, reduced, norms_last=norms_last) if reduced != low else 0,
        scatter=padded * shards * reduced,
        reduced=padded * reduced,
        shard=padded * stored,
    )


def _copying(weights: Sequence[tuple[Weight[Size], Size]], low: int, stored: int) -> Size:
    """Return the most bytes while a device alone copies weights one by one, each cast before if its dtype is another one.

    FSDPParamGroup.wait_for_unshard: a cast weight lives until the next one is cast, and the last one until the copies are made.
    """
    sizes = [low * weight.params for weight, _ in weights]
    cast = [maximum(size, before) for size, before in zip(sizes, [0, *sizes], strict=False)] if low != stored else [0] * len(sizes)
    return maximum(*(sum(sizes[: number + 1]) + more for number, more in enumerate(cast)))


def _casting(weights: Sequence[tuple[Weight[Size], Size]], low: int, reduced: int, *, norms_last: bool) -> Size:
    """Return the most bytes that are added while gradients are cast to a wider dtype one by one, each freed after its cast."""
    ordered = [made for _, made in sorted(weights, key=lambda pair: norms_last and pair[0].component == "norm")]
    every = sum(made * weight.copies for weight, made in weights)
    before = [every - sum(ordered[number:]) for number in range(len(ordered))]
    return maximum(*(earlier * (reduced - low) + made * reduced for earlier, made in zip(before, ordered, strict=True)))


def changes(groups: Groups, *, several: bool, replicas: bool, root_is_whole: bool = False) -> Changes:
    """Return what happens at the boundaries of units and of the model, in the last of ``several`` passes or the only one.

    ``replicas``: scattered gradients are summed over copies of the model in a buffer that lives until the backward pass ends.
    ``root_is_whole``: its weights were gathered before.
    """
    root, units = groups.root, groups.units
    found: dict[Place, list[Change]] = {}
    buffer: Size = 0  # the one that was filled last
    if root and not root_is_whole:
        found[Place(WHOLE, True, forward=True)] = _gather(root)
        buffer = root.gathered
    for number, unit in enumerate(units):
        before, after = units[number - 1] if number else None, units[number + 1] if number + 1 < len(units) else None
        place = partial(Place, unit.name)
        found[place(True, forward=True)] = gathered = []
        for group in unit.groups:
            gathered += _gather(group, buffer)
            buffer = 0 if group.alone else group.gathered
        found[place(False, forward=True)] = [Change(-unit.gathered, "reshard")] if unit.reshards else []
        filled = {*map(id, unit.prefetched(after))}
        again = [one for group in unit.groups for one in (*([] if id(group) in filled else _fill(group)), *_unshard(group))]
        ahead = [one for group in before.prefetched(unit) for one in _fill(group)] if before and before.reshards else []
        found[place(False, forward=False)] = [*(again if unit.reshards else []), *ahead] if unit.passed.end else []
        found[place(True, forward=False)] = scattered = []
        if not unit.passed.start:
            continue
        held = after.scatter if after else 0
        for group in reversed(unit.groups):
            scattered += _scatter(groups, group, held, several=several, keeps=replicas)
            held = 0
    ended = [Change(-buffer, "end of forward")]
    prepared: list[Change] = []
    if root:
        ended += [Change(-root.gathered, "reshard")] if groups.root_reshards else []
        prepared += [*_fill(root), *_unshard(root)] if groups.root_reshards else []
        prepared += [one for group in units[-1].prefetched(None) for one in _fill(group)] if units and units[-1].reshards else []
    left = next((unit.scatter for unit in units if unit.passed.start), 0)
    summed = sum(group.reduced * copies for group, copies in groups.counted) if replicas and groups.casts else 0
    final = _scatter(groups, root, left, several=several, keeps=replicas) if root else []
    late, left = _after_backward(groups, root.scatter if root else left, several=several, keeps=replicas)
    final += [*late, Change(-left - summed, "end of backward")]
    return {
        **found,
        Place(WHOLE, False, forward=True): ended,
        Place(WHOLE, False, forward=False): prepared,
        Place(WHOLE, True, forward=False): final,
    }


def _after_backward(groups: Groups, before: Size, *, several: bool, keeps: bool) -> tuple[list[Change], Size]:
    """Return what units do whose start no gradient passes, and the buffer scattered last; ``before``: by the root."""
    found: list[Change] = []
    for unit in groups.units:
        if not unit.passed.end:
            prefetched = sum(group.gathered for group in unit.prefetched(None)) * (unit is groups.idle)
            found.append(Change(-(prefetched if unit.reshards else unit.gathered * unit.copies), "reshard"))
        elif not unit.passed.start:
            for group in reversed(unit.groups):
                found += _scatter(groups, group, before, several=several, keeps=keeps)
                before = 0
            before = unit.scatter
    return found, before


def changes_of_microbatch(groups: Groups, *, gathers: bool, first: bool) -> Changes:
    """Return what happens in the passes of a pipeline's microbatch: no gradient is reduced, and weights stay whole after a backward pass.

    A pass that ``gathers`` follows a forward pass, after which weights are freed. If the dtype of reduction is another one, gradients are
    cast, or added to those of the ``first`` microbatch, and freed.
    """
    every = {WHOLE: [groups.root] if groups.root else [], **{unit.name: unit.groups[::-1] for unit in groups.units}}
    accumulated = (
        {}
        if groups.adds_in_place
        else {name: [change for group in some for change in _accumulate(group, first=first)] for name, some in every.items()}
    )
    if gathers:
        found = dict(changes(groups, several=True, replicas=False, root_is_whole=not groups.root_reshards))
    else:
        freed = [(unit.name, unit.gathered) for unit in groups.units if unit.reshards]
        freed += [(WHOLE, groups.root.gathered)] if groups.root and groups.root_reshards else []
        found = {Place(name, False, forward=True): [Change(-size, "reshard")] for name, size in freed}
    return found | {Place(name, True, forward=False): accumulated.get(name, []) for name in every}


def _accumulate(group: Group, *, first: bool) -> list[Change]:
    """Cast the gradients of a group, or add them to others, one after the other."""
    most, after = (group.casting, group.accumulated - group.gradients) if first else (0, -group.gradients)
    return [Change(most, "accumulate"), Change(after - most, "accumulate")]


def reduction(groups: Groups, *, replicas: bool) -> list[Change]:
    """Return what happens after the last microbatch of a pipeline: the weights are freed and the gradients reduced, the root's first."""
    found: list[Change] = []
    before: Size = 0
    summed: Size = 0  # over copies of the model, until the last group is reduced
    for group, copies in groups.counted:
        found += _scatter(groups, group, before, several=True, keeps=replicas, added_last=False)
        kept = group.reduced if replicas and groups.casts else 0
        freed = group.gathered + group.accumulated - group.shard - kept  # by each further copy
        summed = summed + kept * copies
        found.append(Change(-freed * (copies - 1), "reduce-scatter"))
        before = group.scatter
    return [*found, Change(-before - summed, "reduce-scatter")]


def _gather(group: Group, before: Size = 0) -> list[Change]:
    """Fill a group's buffer, copy the weights from it, and free the buffer before, to which wait_for_unshard refers until it returns."""
    why = "all-gather"
    if group.alone:
        return [*_unshard(group), Change(-before, why)]
    return [Change(group.copy + group.gathered, why), Change(-group.copy, why), Change(group.gathered, why), Change(-before, why)]


def _fill(group: Group) -> list[Change]:
    """Fill the buffer of a group before it runs backward."""
    if group.alone:
        return []
    return [Change(group.copy + group.gathered, "prefetch"), Change(-group.copy, "prefetch")]


def _unshard(group: Group) -> list[Change]:
    """Copy the weights from the buffer, and free it."""
    if group.alone:
        return [Change(group.copy, "copy"), Change(group.gathered - group.copy, "copy")]
    return [Change(group.gathered, "unshard"), Change(-group.gathered, "unshard")]


def _scatter(groups: Groups, group: Group, before: Size, *, several: bool, keeps: bool, added_last: bool = True) -> list[Change]:
    """Free the weights and the buffer scattered before, and reduce and scatter the gradients, the last ones if they are not added yet.

    Of the gradient of a whole table, the device's part is copied first (FSDPParam._get_grad_inner_tensor).
    """
    why = "reduce-scatter"
    accumulated = group.accumulated if several else group.gradients
    whole, own = (size * groups.widths[several] for size in (group.tables, group.of_part))
    added = -group.gradients if several and added_last and not groups.adds_in_place else 0
    cast = [Change(group.shard, why), Change(0 if keeps else -group.reduced, why)] if groups.casts else []
    copied = Change(added + own, "redistribute")
    freed, made = Change(-whole - group.gathered - before, "reshard"), Change(group.scatter, why)
    moved = [Change(-group.shard, why)] if groups.on_host else []
    return [copied, freed, made, Change(whole - own - accumulated, why), Change(group.reduced, why), *cast, *moved]


def buffers(groups: Groups) -> tuple[tuple[str, Size], ...]:
    """Return the buffers that are largest together: whole weights of the root, and two buffers and gradients of a unit."""
    unit = [maximum(*(getattr(one, size) for one in groups.units)) for size in ("gathered", "scatter")] if groups.units else [0, 0]
    root = [("gathered weights outside the layers", groups.root.gathered)] if groups.root else []
    return (*root, ("gathered weights of a layer, twice", 2 * unit[0]), ("gradients of a layer, to scatter", unit[1]))


def traffic(groups: Groups, passes: Size, layout: Layout) -> tuple[Traffic[Size], ...]:
    """Return the collectives of a step: bytes of whole tensors, as gathered, scattered and reduced."""
    return _of_kinds([groups], layout, lambda some: passes * (some.gathered + some.resharded))


def traffic_of_stages(stages: Sequence[Groups], gathering: Size, layout: Layout) -> tuple[Traffic[Size], ...]:
    """Return the collectives of a step of a pipeline's device: ``gathering`` passes gather the weights that were freed."""
    return _of_kinds(stages, layout, lambda some: some.gathered + (gathering - 1) * some.resharded)


def _of_kinds(stages: Sequence[Groups], layout: Layout, gathers: Callable[[Groups], Size]) -> tuple[Traffic[Size], ...]:
    """Return the collectives of stages, those of experts that devices divide by themselves. ``gathers``: what a stage gathers."""
    found: list[Traffic[Size]] = []
    for experts in (False, True) if layout.expert_parallel > 1 else (False,):
        each = []
        for groups in stages:
            units = [replace(unit, groups=tuple(one for one in unit.groups if one.experts is experts)) for unit in groups.units]
            mine = replace(groups, root=None if experts else groups.root, units=tuple(units))
            shared = replace(mine, units=tuple(unit for unit in units if not any(one.alone for one in unit.groups)))
            each.append(_traffic(mine, gathers(shared), layout))
        sent = [replace(same[0], bytes=sum(one.bytes for one in same)) for same in zip(*each, strict=True)]
        others = layout.expert_parallel - 1 if experts else 0
        kinds = {"group": "data of experts"} if experts else {}
        found += [replace(one, spans=one.spans - others, **kinds) for one in sent if not experts or one.bytes != 0]
    return tuple(found)


def _traffic(groups: Groups, gathered: Size, layout: Layout) -> tuple[Traffic[Size], ...]:
    scattered = sum(group.scatter * copies for group, copies in groups.counted if not group.alone)
    reduced = sum(group.reduced * copies for group, copies in groups.counted)
    replicas, every = layout.data_parallel == "hsdp", layout.cluster.devices // layout.pipeline_parallel
    spans = layout.shard_degree * layout.tensor_parallel if replicas else every
    found = (Traffic("all-gather", gathered, spans), Traffic("reduce-scatter", scattered, spans))
    return (*found, *([Traffic("all-reduce", reduced, every)] if replicas else []))
