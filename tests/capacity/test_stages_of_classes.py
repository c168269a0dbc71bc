"""Stages of a pipeline whose layers are those of classes of transformers: each has what PyTorch allocates.

``tests/data/stage_steps.jsonl``: one of two stages a line, of four layers of a small config. Measured by torch.distributed.pipelining
(PyTorch 2.13) on a fake process group, with real tensors on a CPU and the allocations that torch.profiler records in the third step. A
stage is the class's own model (transformers 5.24): its layers cut, without embedding unless it is the first, and without final norm and
head unless it is the last one. ``peak`` and ``after_backward`` are bytes above those at the start of the step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.capacity.layouts import refuse_unmodeled
from planner.capacity.parameters import parameters
from planner.capacity.plan import memory
from planner.capacity.shares import share
from planner.spec.records import Cluster, Layout, Training
from planner.trace.decoder import of_stages, trace
from planner.trace.sizes import hinted
from planner.trace.stages import stages

TABLE = Path(__file__).parent.parent / "data" / "stage_steps.jsonl"
STAGES = 2
SCALARS = 256  # bytes: the CPU wraps constants that a layer multiplies by in tensors, of eight bytes each, which the profiler counts


def cases() -> Iterator[dict[str, Any]]:
    """Yield the measured stages."""
    yield from map(json.loads, TABLE.read_text(encoding="utf-8").splitlines())


def name(case: dict[str, Any]) -> str:
    """Return the name of a case in test reports."""
    return f"{case['config']['model_type']}-{case['implementation']}-{case['recompute']}-{case['rank']}"


@pytest.mark.parametrize("case", [*cases()], ids=name)
def test_a_stage_has_what_pytorch_allocates(tmp_path: Path, case: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(case["config"] | {"tie_word_embeddings": False}), encoding="utf-8")
    model = planner.load(path).model
    training = Training(
        2, 33, precision="fp32", implementation=case["implementation"], device="cpu", recompute=case["recompute"],
        loss="cross_entropy_float32", gradient_accumulation=case["microbatches"],
        layout=Layout(Cluster("device", 80 << 30, STAGES), pipeline_parallel=STAGES, schedule=case["schedule"]),
    )  # fmt: skip
    refuse_unmodeled(model, training)
    assert training.layout
    forward = of_stages((trace(model, training, stages(model, training.layout)[case["rank"]]),))
    weights = parameters(forward).weights
    held = share(forward, weights, training)
    used = memory(forward, held, training)
    start = hinted(used.live.start)
    assert sum(hinted(weight.params) for weight in weights) == case["params"]
    assert hinted(used.live.after_backward) - start == case["after_backward"]
    passes = max(hinted(phase.peak_bytes) for phase in used.phases[:-1])
    assert 0 <= case["peak"] - (passes - start) <= SCALARS
