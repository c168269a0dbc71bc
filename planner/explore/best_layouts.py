"""A search for the fastest layout that fits: every possible layout of a cluster is planned, none is sampled.

A layout that fits without recomputation is not planned with it: the work is the same, and more. One that does not fit is not planned with
larger microbatches, which save more. Devices with tensor parallelism also divide the sequence. Megatron-Core shares the optimizer state,
which costs no time.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from planner.capacity.figures import Fleet
from planner.capacity.plan import divided, plan
from planner.spec.layout_checks import divisors
from planner.spec.possible import conditions, of_kind
from planner.spec.records import Cluster, Layout, Scenario, Spec, Training
from planner.spec.records.layout import DataParallel
from planner.spec.records.training import Recompute
from planner.time.estimate import Estimate, completed, full_rates, step_time
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Sizes = Mapping[str, NDArray[np.int64]]

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
SHARING: tuple[DataParallel, ...] = ("ddp", "zero1", "zero2", "fsdp", "hsdp")
MANY = 100  # from how many layouts on several processes plan them
MOST_TENSOR, MOST_CONTEXT, MOST_VIRTUAL, MOST_BATCH = 64, 64, 12, 16
TIE = 0.02  # of the time: how far the best of a sweep's first three predictions is from its best measured layout
SETTINGS = (
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_stages",
    "context_parallel",
    "expert_parallel",
    "batch_size",
    "recompute",
    "data_parallel",
)
"""The settings that ``fixed`` can hold."""


Progress: TypeAlias = Callable[[int, int, str], None]
"""What shows how many of some items are done."""


@dataclass(frozen=True, slots=True)
class Found:
    """A layout that fits."""

    training: Training
    peak_bytes: int
    free_bytes: int
    time: Estimate

    @property
    def layout(self) -> Layout:
        """The layout."""
        return _layout(self.training)

    @property
    def devices(self) -> int:
        """The devices of its cluster."""
        return self.layout.cluster.devices

    @property
    def device_seconds(self) -> float:
        """Seconds of a step times devices, which cost is proportional to."""
        return self.time.seconds * self.devices

    @property
    def order(self) -> tuple[int, ...]:
        """What orders layouts whose times are equal: fewer devices and stages, less recomputation, then the degrees."""
        one = self.layout
        degrees = one.tensor_parallel, one.context_parallel, one.expert_parallel, one.virtual_stages, self.training.batch_size
        return self.devices, one.pipeline_parallel, RECOMPUTE.index(self.training.recompute), SHARING.index(one.data_parallel), *degrees


@dataclass(slots=True)
class Search:
    """All layouts that fit, and why the others do not: not modeled, or too large, and by how little."""

    found: list[Found] = field(default_factory=list)
    own: Found | None = None  # the spec's layout, if it fits
    refused: Counter[str] = field(default_factory=Counter)
    too_large: int = 0
    nearest_bytes: int | None = None  # that the nearest of them lacks

    @property
    def possible(self) -> int:
        """The number of layouts."""
        return len(self.found) + self.too_large + self.refused.total()

    def ranked(self, by: Sort = "time") -> list[Found]:
        """Return the layouts that fit, the best first. Those within TIE of the best one that is left are ordered by simplicity."""
        value = VALUES[by]
        ranked, best = list[tuple[float, Found]](), 0.0
        for one in sorted(self.found, key=lambda one: (value(one), one.time.seconds, one.order)):
            best = best if ranked and value(one) <= best * (1 + (TIE if by in ("time", "cost") else 0)) else value(one)
            ranked.append((best, one))
        simplest: Callable[[Found], tuple[float, ...]] = (
            (lambda one: one.order) if by in ("time", "cost") else (lambda one: (one.time.seconds, *one.order))
        )
        return [one for _, one in sorted(ranked, key=lambda pair: (pair[0], *simplest(pair[1])))]

    @property
    def front(self) -> list[Found]:
        """The layouts that are faster than all with as much free memory, by memory."""
        best, front = float("inf"), []
        for one in sorted(self.found, key=lambda one: (one.peak_bytes, one.time.seconds, one.order)):
            if one.time.seconds < best:
                best = one.time.seconds
                front.append(one)
        return front


Sort: TypeAlias = Literal["time", "cost", "memory", "devices"]
VALUES: Mapping[Sort, Callable[[Found], float]] = {
    "time": lambda one: one.time.seconds,
    "cost": lambda one: one.device_seconds,
    "memory": lambda one: one.peak_bytes,
    "devices": lambda one: one.devices,
}


def search(
    spec: Spec,
    scenario: Scenario,
    clusters: Sequence[Cluster],
    sequences: int,
    progress: Progress,
    fixed: Mapping[str, int | str] | None = None,
) -> Search:
    """Plan every layout of each cluster for steps of so many sequences. Raises UnsupportedError if the devices' rates are not known."""
    training = scenario.training
    for cluster in clusters:
        full_rates(training, Layout(cluster))
    of_step = _Step(spec, scenario, sequences, (fixed or {}).get("recompute"))
    made = Search()
    if training.layout and training.layout.cluster in clusters:
        own = of_step.plan(training)
        made.own = own if isinstance(own, Found) else None
    families = dict[Layout, list[Training]]()
    for cluster in clusters:
        for one in _layouts(spec, training, cluster, sequences, fixed or {}):
            families.setdefault(_layout(one), []).append(one)
    with _workers(len(families)) as run:
        for done, (found, too_large, refused) in enumerate(run(of_step.family, families.values()), 1):
            progress(done, len(families), "layouts but for microbatches and recomputation")
            made.found += found
            made.too_large += len(too_large)
            made.refused += Counter(refused)
            made.nearest_bytes = min((one for one in (made.nearest_bytes, *too_large) if one is not None), default=None)
    return made


@contextmanager
def _workers(count: int) -> Iterator[Callable[..., Iterator[Family]]]:
    """Return what runs a function on each of so many items, in order: on all cores, if they are many and processes can fork."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if count < MANY or cores == 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(cores, get_context("fork")) as pool:
        yield partial(pool.map, chunksize=4)


Family: TypeAlias = tuple[list[Found], list[int | None], list[str]]


class _Step:
    """Plans of layouts of a step of so many sequences, whose model FLOPs are the same in each."""

    def __init__(self, spec: Spec, scenario: Scenario, sequences: int, recompute: int | str | None) -> None:
        self.model = spec.model
        self.kinds = [one for one in RECOMPUTE if recompute in (one, None)]
        one = replace(scenario.training, layout=None, batch_size=1, gradient_accumulation=1)
        counts = plan(spec, replace(scenario, training=one)).flops.by_convention
        self.causal = sequences * next(count.train_per_step for count in counts if count.convention == "matmul-causal")

    def family(self, trainings: Iterable[Training]) -> Family:
        """Return the layouts that fit, the bytes that others lack, or None for each that was not planned, and why some are not modeled.

        They differ in the microbatch, smaller ones first. Each is planned with the least recomputation with which it fits.
        """
        found, too_large, refused = list[Found](), list[int | None](), list[str]()
        unfit = dict[Training, str | None]()
        for one in trainings:
            for kind in self.kinds:
                alike = replace(one, recompute=kind, batch_size=1, gradient_accumulation=min(one.gradient_accumulation, 2))
                made = unfit[alike] if alike in unfit else self.plan(replace(one, recompute=kind))
                if isinstance(made, Found):
                    found.append(made)
                    break
                unfit[alike] = made if isinstance(made, str) else None
                if isinstance(made, str):
                    refused.append(made)
                else:
                    too_large.append(made)
        return found, too_large, refused

    def plan(self, training: Training) -> Found | int | str:
        """Return a layout if it fits, else the bytes that it lacks, or why it is not modeled."""
        try:
            fleet = cast("Fleet", divided(self.model, training))  # of integers, as the model
        except UnsupportedError as error:
            return str(error)
        if fleet.free_bytes < 0:
            return -fleet.free_bytes
        made = step_time(self.model, training, fleet)
        time = completed(made.time, made.known, made.full, self.model, training, self.causal)
        return Found(training, fleet.peak_bytes, fleet.free_bytes, time)


def _layouts(spec: Spec, training: Training, cluster: Cluster, sequences: int, fixed: Mapping[str, int | str]) -> Iterator[Training]:
    """Yield every possible training without recomputation, in a stable order."""
    import numpy as np

    model, devices = spec.model, cluster.devices
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
    tp, pp, virtual = sizes["tensor_parallel"], sizes["pipeline_parallel"], sizes["virtual_stages"]
    shared = tp * pp * sizes["context_parallel"]
    together = (devices // shared).clip(1) * sizes["batch_size"]
    count = len(tp)
    sizes |= {
        "devices": np.full(count, devices),
        "n_layers": np.full(count, model.n_layers),
        "shard_degree": np.ones(count, dtype=np.int64),
    }
    sizes |= {"sequence_length": np.full(count, training.sequence_length), "global_batch_size": np.full(count, sequences)}
    sizes["gradient_accumulation"] = (sequences // together).clip(1)
    possible = _meets(conditions(model, training, sizes, cluster.per_node), count) & ((pp > 1) | (virtual == 1))
    sizes = {name: one[possible] for name, one in sizes.items()}
    for number in range(int(possible.sum())):
        one = {name: column[number : number + 1] for name, column in sizes.items()}
        of_one = {name: int(column[0]) for name, column in one.items()}
        for shares in _sharing(training, of_one, fixed):
            layout = _divided(training, cluster, of_one, shares)
            if _meets(of_kind(model, training, layout, one), 1).all():
                passes = of_one["gradient_accumulation"]
                yield replace(training, layout=layout, batch_size=of_one["batch_size"], gradient_accumulation=passes)


def _sharing(training: Training, sizes: Mapping[str, int], fixed: Mapping[str, int | str]) -> Sequence[DataParallel]:
    """Return what the devices that read different data or parts of a sequence may share."""
    several = sizes["devices"] > sizes["tensor_parallel"] * sizes["pipeline_parallel"]
    every: tuple[DataParallel, ...] = ("ddp", "zero1") if training.by_megatron else ("ddp", "zero1", "fsdp")
    every = every if several and training.implementation != "megatron" else every[:1]
    if "data_parallel" in fixed:
        return [one for one in every if one == fixed["data_parallel"]]
    return every[-1:] if training.by_megatron else every


def _layout(training: Training) -> Layout:
    assert training.layout is not None  # noqa: S101 - every training here has one
    return training.layout


def _divided(training: Training, cluster: Cluster, sizes: Mapping[str, int], shares: DataParallel) -> Layout:
    """Return the layout with these sizes."""
    tensor, stages, context = (sizes[f"{name}_parallel"] for name in ("tensor", "pipeline", "context"))
    written = training.layout or Layout(cluster)
    return replace(
        written,
        cluster=cluster,
        tensor_parallel=tensor,
        sequence_parallel=tensor > 1,
        loss_parallel=tensor > 1 and not training.by_megatron,
        pipeline_parallel=stages,
        virtual_stages=sizes["virtual_stages"],
        schedule="interleaved" if sizes["virtual_stages"] > 1 else "1f1b",
        context_parallel=context,
        expert_parallel=sizes["expert_parallel"],
        data_parallel=shares,
        shard_group=written.shard_group if shares == "fsdp" else "block",
        reshard_after_forward="never" if stages > 1 and shares == "fsdp" else "auto",
        shard_degree=1,
    )


def _meets(found: Iterator[object], count: int) -> NDArray[np.bool_]:
    import numpy as np

    return reduce(and_, (~condition.fails for condition in found), np.ones(count, dtype=bool))  # type: ignore[attr-defined]


def sequences_of(training: Training) -> int | None:
    """Return the sequences of a step of a training with a layout, None without one."""
    layout = training.layout
    return None if layout is None else training.batch_size * training.gradient_accumulation * layout.data_degree


def place(found: Sequence[Found], own: Found, by: Sort) -> int:
    """Return the place of a layout among others, from 1."""
    return 1 + sum(VALUES[by](one) < VALUES[by](own) for one in found)
