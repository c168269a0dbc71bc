"""A search for the fastest layout that fits: every possible layout of a cluster is evaluated, none is sampled.

A layout that fits without recomputation is not evaluated with it: the work is the same, and more.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from planner.capacity.figures import Fleet
from planner.capacity.layouts import refuse_unmodeled
from planner.capacity.plan import divided, plan
from planner.explore.found import RECOMPUTE, Found
from planner.spec.edits import changed
from planner.spec.problems import SpecError
from planner.spec.records import Cluster, Layout, Model, Scenario, Spec, Training
from planner.time.estimate import completed, full_rates, step_time
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    from planner.explore.candidates import Kind
    from planner.explore.found_columns import Layouts
    from planner.explore.layout_times import Timed, Times

MANY = 100  # from how many layouts on several processes evaluate them
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


@dataclass(slots=True)
class Search:
    """All layouts that fit, and why the others do not: not modeled, or too large, and by how little."""

    found: Layouts
    own: Found | None = None  # the spec's layout, if it fits
    refused: Counter[str] = field(default_factory=Counter)
    too_large: int = 0
    nearest_bytes: int | None = None  # that the nearest of them lacks

    @property
    def possible(self) -> int:
        """The number of layouts."""
        return len(self.found) + self.too_large + self.refused.total()


def search(
    spec: Spec,
    scenario: Scenario,
    clusters: Sequence[Cluster],
    sequences: int,
    progress: Progress,
    fixed: Mapping[str, int | str] | None = None,
) -> Search:
    """Evaluate every layout of each cluster for steps of so many sequences. Raises UnsupportedError if the devices' rates are not known."""
    from planner.explore.candidates import candidates
    from planner.explore.found_columns import Layouts
    from planner.explore.layout_times import timed

    model, training, fixed = spec.model, scenario.training, fixed or {}
    for cluster in clusters:
        full_rates(training, Layout(cluster))
    causal = _causal(spec, scenario, sequences)
    own = _planned(model, training, causal) if training.layout and training.layout.cluster in clusters else None
    kinds = candidates(model, training, clusters, sequences, fixed)
    recompute = [(place, one) for place, one in enumerate(RECOMPUTE) if fixed.get("recompute") in (one, None)]
    tasks, count = [task for kind in kinds for task in _of_structure(model, kind)], sum(len(kind.numbers) for kind in kinds)
    times: list[Times] = []
    lacking: list[int] = []
    refused, too_large, done = Counter[str](), 0, 0
    with _workers(count) as run:
        for task, made in zip(tasks, run(partial(timed, model, recompute=recompute), tasks), strict=True):
            done += len(task.numbers)
            progress(done, count, "layouts")
            times += made.times
            refused += made.refused
            too_large += made.too_large
            lacking += [] if made.nearest_bytes is None else [made.nearest_bytes]
    return Search(Layouts.of(model, kinds, times, causal), own, refused, too_large, min(lacking, default=None))


MEGATRON = ("training.implementation=megatron-core", "training.loss=default", "training.precision=bf16-master")
"""Settings with which more layouts are modeled."""


def more_modeled(spec: Spec, cluster: Cluster) -> Sequence[str]:
    """Return the fewest of MEGATRON, in their order, with which Megatron-Core's layouts of a spec are modeled, none if they are not."""
    if spec.scenarios[0].training.by_megatron:
        return ()
    for count in range(1, len(MEGATRON) + 1):
        try:
            other = changed(spec, overrides=MEGATRON[:count])
            training = replace(other.scenarios[0].training, layout=Layout(cluster, tensor_parallel=2, data_parallel="zero1"))
            refuse_unmodeled(other.model, training)
        except (SpecError, UnsupportedError):
            continue
        return MEGATRON[:count]
    return ()


def _causal(spec: Spec, scenario: Scenario, sequences: int) -> int:
    """Return the FLOPs of the model in a step, with causal attention, which are the same in each layout."""
    one = replace(scenario.training, layout=None, batch_size=1, gradient_accumulation=1)
    counts = plan(spec, replace(scenario, training=one)).flops.by_convention
    return sequences * next(count.train_per_step for count in counts if count.convention == "matmul-causal")


def _planned(model: Model, training: Training, causal: int) -> Found | None:
    """Return a layout planned alone, if it is modeled and fits."""
    try:
        fleet = cast("Fleet", divided(model, training))  # of integers, as the model
    except UnsupportedError:
        return None
    made = step_time(model, training, fleet)
    time = completed(made.time, made.known, made.full, model, training, causal)
    return Found(training, fleet.peak_bytes, fleet.free_bytes, time) if fleet.free_bytes >= 0 else None


def _of_structure(model: Model, kind: Kind) -> Iterator[Kind]:
    """Yield the layouts of each structure."""
    from planner.capacity.layout_groups import Groups
    from planner.capacity.layout_symbols import structure_of

    groups = Groups(structure_of(model, kind.training, varies=False), kind.sizes, lambda *_: None)
    yield from map(kind.some, groups.of_structure())


@contextmanager
def _workers(count: int) -> Iterator[Callable[..., Iterator[Timed]]]:
    """Return what runs a function on each of some items, in order: on all cores, if there are many layouts and processes can fork."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if count < MANY or cores == 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(cores, get_context("fork")) as pool:
        yield pool.map


def sequences_of(training: Training) -> int | None:
    """Return the sequences of a step of a training with a layout, None without one."""
    layout = training.layout
    return None if layout is None else training.batch_size * training.gradient_accumulation * layout.data_degree
