"""All layouts of some clusters that a search plans, as arrays of sizes: every possible one, in a stable order.

Devices with tensor parallelism also divide the sequence. Megatron-Core shares the optimizer state, which costs no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from operator import and_
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.capacity.layout_symbols import SIZES
from planner.explore.found import layout_of
from planner.spec.layout_checks import divisors
from planner.spec.possible import conditions, of_kind
from planner.spec.records import Cluster, Layout, Model, Training
from planner.spec.records.layout import DataParallel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.capacity.layout_groups import Grid

Fixed: TypeAlias = Mapping[str, "int | str"]
MOST_TENSOR, MOST_CONTEXT, MOST_VIRTUAL, MOST_BATCH = 64, 64, 12, 16


@dataclass(frozen=True, slots=True)
class Kind:
    """Layouts that differ only in sizes: a training with one of them, their numbers in the order of all, and their sizes."""

    training: Training
    numbers: NDArray[np.int64]
    sizes: Grid

    def some(self, rows: NDArray[np.int64]) -> Kind:
        """Return some of the layouts."""
        return Kind(self.training, self.numbers[rows], {name: column[rows] for name, column in self.sizes.items()})


def candidates(model: Model, training: Training, clusters: Sequence[Cluster], sequences: int, fixed: Fixed) -> list[Kind]:
    """Return every possible layout of the clusters for steps of so many sequences, without recomputation."""
    found: dict[Training, list[Kind]] = {}
    first = 0
    for cluster in clusters:
        sizes = _sizes(model, training, cluster, sequences, fixed)
        sharing = list(dict.fromkeys(one for several in (False, True) for one in _sharing(training, fixed, several=several)))
        for place, kind in _kinds(training, cluster, sizes, sharing, fixed):
            possible = _meets(of_kind(model, kind.training, layout_of(kind.training), kind.sizes), len(kind.numbers))
            one = kind.some(np.flatnonzero(possible))
            if len(one.numbers):
                numbered = replace(one, numbers=first + one.numbers * len(sharing) + place)
                found.setdefault(one.training, []).append(numbered)
        first += len(sizes["devices"]) * len(sharing)
    return [_together(kinds) for kinds in found.values()]


def _together(kinds: Sequence[Kind]) -> Kind:
    sizes = {name: np.concatenate([one.sizes[name] for one in kinds]) for name in SIZES}
    return Kind(kinds[0].training, np.concatenate([one.numbers for one in kinds]), sizes)


def _sizes(model: Model, training: Training, cluster: Cluster, sequences: int, fixed: Fixed) -> Grid:
    """Return the sizes of layouts of a cluster that are possible whatever devices share."""
    devices = cluster.devices
    experts = next((layer.experts.count for run in model.runs for layer in run.layers if layer.experts), 1)
    axes = {
        "tensor_parallel": [one for one in divisors(devices) if one <= MOST_TENSOR],
        "pipeline_parallel": [one for one in divisors(devices) if model.n_layers % one == 0],
        "context_parallel": [one for one in divisors(devices) if one <= MOST_CONTEXT],
        "expert_parallel": divisors(experts),
        "virtual_stages": [one for one in divisors(model.n_layers) if one <= MOST_VIRTUAL],
        "batch_size": [one for one in range(1, MOST_BATCH + 1) if sequences % one == 0],
    }
    axes = {name: [int(fixed[name])] if name in fixed else values for name, values in axes.items()}
    crossed = np.meshgrid(*(np.array(values, dtype=np.int64) for values in axes.values()), indexing="ij")
    sizes = {name: one.reshape(-1) for name, one in zip(axes, crossed, strict=True)}
    data = devices // (sizes["tensor_parallel"] * sizes["pipeline_parallel"] * sizes["context_parallel"])
    passes = (sequences // (data.clip(1) * sizes["batch_size"])).clip(1)
    same = {"devices": devices, "shard_degree": 1, "sequence_length": training.sequence_length, "n_layers": model.n_layers}
    same |= {"tokens": training.tokens or 1, "global_batch_size": sequences}
    sizes |= {"gradient_accumulation": passes, **{name: np.full(len(passes), size, dtype=np.int64) for name, size in same.items()}}
    possible = _meets(conditions(model, training, sizes, cluster.per_node), len(passes))
    possible &= (sizes["pipeline_parallel"] > 1) | (sizes["virtual_stages"] == 1)
    return {name: one[possible] for name, one in sizes.items()}


def _kinds(training: Training, cluster: Cluster, sizes: Grid, sharing: Sequence[DataParallel], fixed: Fixed) -> Iterator[tuple[int, Kind]]:
    """Yield layouts that differ only in sizes, numbered by their rows, and the place of what devices share."""
    tensor, stages, virtual = (sizes[name] > 1 for name in ("tensor_parallel", "pipeline_parallel", "virtual_stages"))
    some = sizes["devices"] > sizes["tensor_parallel"] * sizes["pipeline_parallel"]
    for place, shares in enumerate(sharing):
        belongs = reduce(np.logical_or, ((some == each) & (shares in _sharing(training, fixed, several=each)) for each in (False, True)))
        for of_tensor, of_stages, of_virtual in product((False, True), repeat=3):
            rows = np.flatnonzero(belongs & (tensor == of_tensor) & (stages == of_stages) & (virtual == of_virtual))
            if len(rows):
                layout = _divided(training, cluster, shares, tensor=of_tensor, stages=of_stages, virtual=of_virtual)
                yield place, Kind(replace(training, layout=layout), rows, {name: one[rows] for name, one in sizes.items()})


def _sharing(training: Training, fixed: Fixed, *, several: bool) -> Sequence[DataParallel]:
    """Return what devices may share; ``several`` of them read different data or parts of a sequence."""
    every: tuple[DataParallel, ...] = ("ddp", "zero1") if training.by_megatron else ("ddp", "zero1", "fsdp")
    every = every if several and training.implementation != "megatron" else every[:1]
    if "data_parallel" in fixed:
        return [one for one in every if one == fixed["data_parallel"]]
    return every[-1:] if training.by_megatron else every


def _divided(training: Training, cluster: Cluster, shares: DataParallel, *, tensor: bool, stages: bool, virtual: bool) -> Layout:
    """Return a layout of a kind; its degrees are those of none."""
    written = training.layout or Layout(cluster)
    return replace(
        written,
        cluster=replace(cluster, devices=cluster.per_node),
        tensor_parallel=1,
        sequence_parallel=tensor,
        loss_parallel=tensor and not training.by_megatron,
        pipeline_parallel=1,
        virtual_stages=1,
        schedule="interleaved" if virtual else "1f1b",
        context_parallel=1,
        expert_parallel=1,
        data_parallel=shares,
        shard_group=written.shard_group if shares == "fsdp" else "block",
        reshard_after_forward="never" if stages and shares == "fsdp" else "auto",
        shard_degree=1,
    )


def _meets(found: Iterator[object], count: int) -> NDArray[np.bool_]:
    return reduce(and_, (~condition.fails for condition in found), np.ones(count, dtype=bool))  # type: ignore[attr-defined]
