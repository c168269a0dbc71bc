"""Layouts of Megatron-Core against parameters that it builds, memory that runs on GPUs recorded, and sums by hand."""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.capacity.figures import Plan

DATA = Path(__file__).parent.parent / "data"
# Parameters of ranks that Megatron-Core 0.16.1 builds on a CPU (use_cpu_initialization, local modules). Layers have LayerNorm.
BUILT = [row for row in csv.DictReader((DATA / "megatron_core_params.csv").read_text("utf-8").splitlines()) if row["model"] != "moe"]
# SimuMax v1.2, results on 8 B200: torch.cuda.max_memory_allocated of each rank of Megatron-LM 23e00ed0 (core 0.14), MiB.
RUNS = [json.loads(line) for line in (DATA / "megatron_runs.jsonl").read_text(encoding="utf-8").splitlines()]

STEP: dict[str, Any] = {"implementation": "megatron-core", "precision": "bf16-master", "device": "h100", "mask_in_data_loader": False}


def planned(path: Path, model: Mapping[str, Any], training: Mapping[str, Any], layout: Mapping[str, Any], devices: int) -> Plan:
    """Plan a model on a cluster."""
    cluster = {"device": "B200-180GB-SXM", "devices": devices}
    spec = {"name": "x", "model": model, "training": STEP | dict(training), "cluster": cluster, "layout": layout}
    (path / "x.yaml").write_text(json.dumps(spec), encoding="utf-8")  # JSON is YAML
    return planner.plan(path / "x.yaml")


def built(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the model of a row of BUILT: plain GPT-2 with 64 learned positions, or a Llama model with LayerNorm, maybe with experts."""
    cfg = ast.literal_eval(row["cfg"])
    model = {"vocab_size": cfg["V"], "context_length": 64, "d_model": cfg["d"], "n_layers": cfg["L"], "n_heads": cfg["H"]}
    model |= {"d_ff": cfg["f"], "head": {"tied": row["untied"] == "False"}}
    if row["model"] == "gpt":
        return model
    model |= {"n_kv_heads": cfg["K"], "positions": "rope", "attention": {"bias": False}, "norm": {"type": "layernorm"}}
    model |= {"feed_forward": {"type": "gated", "activation": "silu", "bias": False}}
    return model | ({"experts": {"count": cfg["E"], "top_k": 2, "d_ff": cfg["f"]}} if row["model"] == "moe" else {})


@pytest.mark.parametrize("row", BUILT, ids=lambda row: "-".join(row[key] for key in ("model", "world", "rank", "tp", "pp", "ep", "untied")))
def test_a_device_has_the_parameters_that_megatron_core_builds(row: dict[str, str], tmp_path: Path) -> None:
    world, pp, tp, ep = (int(row[name]) for name in ("world", "pp", "tp", "ep"))
    layout = {"tensor_parallel": tp, "pipeline_parallel": pp, "expert_parallel": ep}
    plan = planned(tmp_path, built(row), {"gradient_accumulation": 4}, layout, world)
    assert plan.fleet is not None
    ranks = plan.fleet.ranks
    assert ranks[int(row["rank"]) * pp // world].params == int(row["params_local"])  # ranks of a stage follow one another


def peaks(run: Mapping[str, Any], path: Path) -> list[tuple[float, float]]:
    """Return the peak of each stage's devices in MiB, and the largest that they recorded."""
    plan = planned(path, run["model"], run["training"], run["layout"], 8)
    assert plan.fleet is not None
    ranks, recorded = plan.fleet.ranks, run["max_allocated_mib_by_rank"]
    each = len(recorded) // len(ranks)
    return [(rank.peak_bytes / 2**20, max(recorded[number * each : (number + 1) * each])) for number, rank in enumerate(ranks)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["run"].partition("/")[2])
def test_peaks_of_runs_on_gpus(run: dict[str, Any], tmp_path: Path) -> None:
    # Workspaces of cuBLAS (32 MiB for PyTorch and Transformer Engine each, allocated when first used) and the like are not in a plan.
    for peak, recorded in peaks(run, tmp_path):
        assert 0.99 * recorded < peak < recorded
