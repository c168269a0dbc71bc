"""Published runs of Megatron-LM on GPUs, and the peaks that are planned for them.

Rows of ``tests/data/megatron_runs.jsonl`` have a link, the software, a spec's model, training, cluster and layout, and what PyTorch
allocated at most, in MiB: SimuMax v1.2 on 8 B200, of all ranks; and Megatron-LM's functional tests, of the last rank. Not among them are
tests whose settings are not modeled: groups of microbatches, stages of different sizes, several instances of the optimizer, deferred
gradients of the embedding, local modules; and one whose global batch is that of one device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import planner
from planner.capacity.figures import Plan

ROWS = (Path(__file__).parent.parent / "data" / "megatron_runs.jsonl").read_text(encoding="utf-8").splitlines()
RUNS: tuple[Mapping[str, Any], ...] = tuple(json.loads(row) for row in ROWS)


def planned(model: Mapping[str, Any], training: Mapping[str, Any], layout: Mapping[str, Any], cluster: Mapping[str, Any]) -> Plan:
    """Plan a model on a cluster with Megatron-Core."""
    step = {"implementation": "megatron-core", "precision": "bf16-master"} | dict(training)
    return planner.plan({"name": "run", "model": model, "training": step, "cluster": cluster, "layout": layout})


def large(run: Mapping[str, Any]) -> bool:
    """Return whether a run is one of large layers on B200."""
    return "max_allocated_mib_by_rank" in run


@cache
def peaks(number: int) -> list[tuple[float, float]]:
    """Return the peak of each stage's devices of a run in MiB, or only of the last stage's, and the largest that they recorded."""
    run = RUNS[number]
    plan = planned(run["model"], run["training"], run["layout"], run["cluster"])
    assert plan.fleet is not None
    found = [rank.peak_bytes / 2**20 for rank in plan.fleet.ranks]
    if not large(run):
        return [(found[-1], run["max_allocated_mib_of_last_rank"])]
    recorded = run["max_allocated_mib_by_rank"]
    each = len(recorded) // len(found)
    return [(peak, max(recorded[number * each : (number + 1) * each])) for number, peak in enumerate(found)]
