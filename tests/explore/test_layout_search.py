"""The search over arrays equals plans of every layout, one by one, as ``planner run`` makes them: figures, counts and order.

``CHANGES=all`` draws 1,000 searches, not 40.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import planner
from planner import devices
from planner.capacity import layout_groups, plan
from planner.capacity.layout_symbols import with_sizes
from planner.explore import best_layouts
from planner.explore.candidates import candidates
from planner.explore.found import RECOMPUTE, SHARING, TIE, Found, Sort
from planner.spec.records import Cluster, Layout
from planner.time.estimate import estimate
from planner.trace.unsupported import UnsupportedError

CASES = 1000 if os.environ.get("CHANGES") == "all" else 40
GROUPS = 20  # of cases, a test each
SIMPLICITY = ("tensor_parallel", "context_parallel", "expert_parallel", "virtual_stages")
SORTS: tuple[Sort, ...] = ("time", "cost", "memory", "devices")


def drawn(rng: random.Random) -> tuple[dict[str, Any], list[int], int, dict[str, int | str]]:
    """Return a small spec, the devices of its clusters, the sequences of a step, and fixed settings, at random."""
    program = rng.choice(["pytorch", "megatron-core", "megatron-core", "transformers"])
    experts = rng.random() < 0.3
    model: dict[str, Any] = {
        "vocab_size": rng.choice([512, 1000]),
        "context_length": 128,
        "d_model": 128,
        "n_layers": rng.choice([2, 4, 6, 8, 12]),
        "n_heads": 4,
        "norm": {"type": "rmsnorm"},
        "n_kv_heads": rng.choice([2, 4]),
        "d_ff": 256,
        "attention": {"bias": False},
        "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
        "positions": {"type": "rope"},
        "head": {"tied": rng.random() < 0.2},
    }
    model |= {"experts": {"count": 4, "top_k": 2, "d_ff": 128}} if experts else {}
    batch = rng.choice([4, 8, 24])
    training: dict[str, Any] = {"sequence_length": rng.choice([64, 128]), "batch_size": 1, "implementation": program, "device": "h100"}
    training |= {"precision": rng.choice(["bf16-master", "fp32"]), "optimizer_kernel": "fused"}
    training |= {} if program == "megatron-core" else {"loss": "cross_entropy_float32"}
    clusters = rng.choice([[1], [2], [4], [4], [8], [2, 4]])
    fixed: dict[str, int | str] = {"batch_size": rng.choice([1, 2])} if rng.random() < 0.7 else {}
    fixed |= {"virtual_stages": rng.choice([1, 2])} if clusters == [8] or rng.random() < 0.5 else {}
    fixed |= {"recompute": rng.choice(RECOMPUTE)} if rng.random() < 0.3 else {}
    return {"name": "small", "model": model, "training": training}, clusters, batch, fixed


def alone(spec: planner.Spec, clusters: list[Cluster], batch: int, fixed: dict[str, int | str]) -> Iterator[Found | int | str]:
    """Plan each layout alone, as ``planner run`` does: yield those that fit, the bytes that others lack, or why they are not modeled."""
    (scenario,) = spec.scenarios
    kinds = [one for one in RECOMPUTE if fixed.get("recompute") in (one, None)]
    every: dict[int, Any] = {}
    for kind in candidates(spec.model, scenario.training, clusters, batch, fixed):
        for row, number in enumerate(map(int, kind.numbers)):
            every[number] = with_sizes(spec.model, kind.training, {name: int(column[row]) for name, column in kind.sizes.items()})
    for _, (model, training) in sorted(every.items(), key=lambda pair: pair[0]):
        for recompute in kinds:
            one = replace(training, recompute=recompute)
            try:
                made = plan(replace(spec, model=model), replace(scenario, training=one))
            except UnsupportedError as error:
                yield str(error)
                continue
            assert made.fleet
            if made.fleet.free_bytes >= 0:
                yield Found(one, made.fleet.peak_bytes, made.fleet.free_bytes, estimate(made))
                break
            yield -made.fleet.free_bytes


def simplicity(one: Found) -> tuple[int, ...]:
    """Return what orders layouts whose times are equal."""
    layout, training = one.layout, one.training
    degrees = (getattr(layout, name) for name in SIMPLICITY)
    sharing = SHARING.index(layout.data_parallel)
    return one.devices, layout.pipeline_parallel, RECOMPUTE.index(training.recompute), sharing, *degrees, training.batch_size


def in_order(found: list[Found], by: Sort) -> list[Found]:
    """Return layouts, the best first: those within TIE of the best one that is left are equal in time or cost."""
    left, made = sorted(found, key=lambda one: one.value(by)), list[Found]()
    while left:
        most = left[0].value(by) * (1 + (TIE if by in ("time", "cost") else 0))
        band = [one for one in left if one.value(by) <= most]
        made += sorted(band, key=lambda one: (*([] if by in ("time", "cost") else [one.time.seconds]), *simplicity(one)))
        left = left[len(band) :]
    return made


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_search_finds_what_plans_find_and_in_the_same_order(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_groups, "FEW", 0)  # all of them as arrays
    monkeypatch.setattr(best_layouts, "MANY", 10**9)  # in this process, which the change above is in
    device = devices.find("H100-80GB-SXM")
    assert device
    for case in range(group, CASES, GROUPS):
        rng = random.Random(case)  # noqa: S311 - not for secrets
        written, counts, batch, fixed = drawn(rng)
        spec = planner.load(written)
        memory = int(2 ** rng.uniform(23, 29))
        clusters = [Cluster(device.name, memory, count, per_node=min(count, 2), reserve_bytes=0) for count in counts]
        (scenario,) = spec.scenarios
        layout = Layout(clusters[0], data_parallel="zero1" if scenario.training.by_megatron else "ddp")
        scenario = replace(scenario, training=replace(scenario.training, layout=layout))
        spec = replace(spec, scenarios=(scenario,))
        made = best_layouts.search(spec, scenario, clusters, batch, lambda *_: None, fixed)
        every = list(alone(spec, clusters, batch, fixed))
        expected = [one for one in every if isinstance(one, Found)]
        lacking = [one for one in every if isinstance(one, int)]
        assert list(made.found) == expected, case
        assert (made.too_large, made.nearest_bytes) == (len(lacking), min(lacking, default=None)), case
        assert made.refused.total() == len(every) - len(expected) - len(lacking), case
        for by in SORTS:
            assert list(made.found.ranked(by)) == in_order(expected, by), (case, by)
        assert Counter(one.training for one in made.found).total() == len({one.training for one in made.found}), case
