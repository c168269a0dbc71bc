"""Layouts: PyTorch's own FSDP2, DTensor and pipelining code allocates and sends, rank by rank, what the plan says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.spec.records import Experts, Layout, Model, Run, Training
from planner.verify import CannotMeasureError

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from planner.verify.layout import PEAK_ALLOWED, compare, of_device
from planner.verify.scaled_down import divided

FLEET = Path(__file__).parent.parent.parent / "specs" / "fleet"
SHARED = {"tensor_parallel": 2, "sequence_parallel": True}
PIPED = {"pipeline_parallel": 2, "data_parallel": "ddp"}
STAGES = {"pipeline_parallel": 2, "reshard_after_forward": "never"}
TITAN = {"implementation": "torchtitan", "loss": "default"}
BF16 = {"precision": "bf16", "gradient_dtype": "bf16"}
LAYOUTS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "uneven shards": (3, {}, {"recompute": "full"}),
    "accumulation": (4, {"shard_group": "titan"}, {"gradient_accumulation": 2}),
    "replicas": (8, {"data_parallel": "hsdp", "shard_degree": 4}, {"precision": "fp32", "loss": "default"}),
    "shifted targets": (2, {}, {"precision": "fp32", "loss": "default", "implementation": "transformers"}),
    "weights in host memory": (3, {"offload": "weights"}, {}),
    "masks in float32": (2, {}, {"implementation": "pytorch-eager"}),
    "matrices": (2, {"tensor_parallel": 2, "data_parallel": "ddp"}, {"precision": "fp32", "implementation": "transformers"}),
    "loss on parts": (8, {**SHARED, "loss_parallel": True, "shard_group": "none"}, {"recompute": "full"}),
    "1f1b": (8, {**SHARED, "pipeline_parallel": 2, "reshard_after_forward": "never"}, {"gradient_accumulation": 4}),
    "gpipe": (4, {**PIPED, "pipeline_parallel": 4, "schedule": "gpipe"}, {"gradient_accumulation": 4, "recompute": "full", **BF16}),
    "context, keys passed on": (
        16,
        {**SHARED, "context_parallel": 2, "loss_parallel": True, "data_parallel": "hsdp", "shard_degree": 4},
        {"gradient_accumulation": 2},
    ),
    "context, keys gathered": (
        8,
        {"context_parallel": 4, "context_kind": "all_gather", "data_parallel": "hsdp", "shard_degree": 4},
        {"recompute": "full", "implementation": "transformers"},
    ),
    "stages that reshard": (8, {**SHARED, "pipeline_parallel": 2, "reshard_after_forward": "auto"}, {"gradient_accumulation": 3}),
    "replicas of stages": (
        8,
        {"pipeline_parallel": 2, "data_parallel": "hsdp", "shard_degree": 2, "schedule": "gpipe", "reshard_after_forward": "always"},
        {"gradient_accumulation": 2, "recompute": "full", "implementation": "transformers"},
    ),
    "interleaved shards, unequal stages": (
        4,
        {
            "pipeline_parallel": 2,
            "schedule": "interleaved",
            "virtual_stages": 2,
            "first_stage_layers": 0,
            "last_stage_layers": 10,
            "reshard_after_forward": "never",
        },
        {"gradient_accumulation": 2},
    ),
    "stages of torchtitan": (
        4,
        {**PIPED, "data_parallel": "fsdp", "shard_group": "titan", "reshard_after_forward": "never"},
        {"gradient_accumulation": 3},
    ),
    "torchtitan": (4, {**SHARED, "loss_parallel": True, "shard_group": "titan"}, {**TITAN, "recompute": "selective"}),
    "torchtitan's stages": (
        8,
        {**SHARED, "pipeline_parallel": 2, "shard_group": "titan", "reshard_after_forward": "never"},
        {**TITAN, "recompute": "selective", "gradient_accumulation": 2},
    ),
    "context in stages": (
        8,
        {**STAGES, "context_parallel": 4, "context_kind": "all_gather"},
        {"gradient_accumulation": 3, "recompute": "full"},
    ),
    "torchtitan, context in stages": (
        8,
        {**SHARED, **STAGES, "context_parallel": 2, "shard_group": "titan", "loss_parallel": True},
        {**TITAN, "gradient_accumulation": 2, "recompute": "selective"},
    ),
    "torchtitan, context": (4, {"context_parallel": 2, "shard_group": "titan"}, {**TITAN, "gradient_accumulation": 2}),
    "interleaved": (2, {**PIPED, "schedule": "interleaved", "virtual_stages": 2}, {"gradient_accumulation": 2, **BF16}),
}


ALL = os.environ.get("CHANGES") == "all"  # `make sweep`
RUN = [name for name in LAYOUTS if ALL or name not in ("gpipe", "stages that reshard")]  # of which the others have everything


def case(devices: int, of_layout: dict[str, Any], of_training: dict[str, Any]) -> tuple[Model, Training, Layout]:
    """Return a Llama 3 8B on several devices."""
    spec = planner.load(FLEET / "llama-3-8b-8-h100.yaml")
    training = spec.scenarios[0].training
    assert training.layout is not None
    layout = replace(training.layout, cluster=replace(training.layout.cluster, devices=devices), **of_layout)
    return spec.model, replace(training, **({"implementation": "pytorch"} | of_training), layout=layout), layout


@pytest.mark.parametrize("name", RUN)
def test_pytorch_allocates_and_sends_what_is_planned(name: str) -> None:
    model, training, layout = case(*LAYOUTS[name])
    rows = list(compare(model, training, layout))
    off = {figure: (ours, theirs) for figure, _, ours, theirs, _ in rows if ours != theirs}
    # Before the update, DTensor holds the sum of one more norm's gradients on fake tensors than on real ones.
    of_sums = {figure for figure in off if layout.sequence_parallel and "peak, optimizer" in figure}
    assert off.keys() == of_sums
    assert all(abs(ours - (theirs or 0)) < PEAK_ALLOWED * ours for ours, theirs in off.values())
    assert {"parameters", "optimizer state", "allocated after backward"} <= {row[0].split(", ")[1] for row in rows}


def test_gradients_of_a_divided_table_that_the_head_reads_are_added() -> None:
    """A large vocabulary, so that the backward pass peaks where the gradients of lookup and head are added."""
    model, training, layout = divided(*case(4, {**SHARED, "loss_parallel": True}, {}))
    model = replace(model, vocab_size=4096, padded_vocab_size=4096, tied_head=True)
    rows = list(of_device(model, replace(training, batch_size=1, sequence_length=8), layout, 0, 0))
    assert [row for row in rows if row[2] != row[3]] == []
    assert next(ours for figure, _, ours, _, _ in rows if "peak, backward" in figure) == max(row[2] for row in rows)


# By class: the layouts of models that differ from Llama.
CLASSES: dict[str, tuple[str, int, dict[str, Any], dict[str, Any]]] = {
    "norms of heads, on parts of the sequence": ("qwen3-8b", 4, SHARED, {"implementation": "transformers", "recompute": "full"}),
    "norms of heads": ("qwen3-8b", 4, {"tensor_parallel": 2}, {"gradient_accumulation": 2}),
    "norms of heads in stages": ("qwen3-8b", 8, {**SHARED, **STAGES}, {"gradient_accumulation": 2}),
    "norms of heads and context": ("qwen3-8b", 8, {**SHARED, "context_parallel": 2}, {}),
    "heads side by side": ("pythia-6.9b", 4, SHARED, {"recompute": "full"}),
    "attention beside a feed-forward": ("phi-2", 4, {"tensor_parallel": 2, "loss_parallel": True}, {}),
    "a scaled embedding": ("gemma-2b", 4, {"context_parallel": 2, "context_kind": "all_gather"}, {}),
    "windows": ("llama-3-8b", 8, {"tensor_parallel": 2, **STAGES}, {"gradient_accumulation": 2, "implementation": "transformers"}),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_divided_model_of_another_class_has_what_is_planned(name: str) -> None:
    of, devices, of_layout, of_training = CLASSES[name]
    _, training, layout = case(devices, of_layout, of_training)
    model = planner.load({"name": of, "extends": f"catalog/{of}"}).model
    if name == "windows":
        (layer,) = model.runs[0].layers
        assert layer.attention
        layer = replace(layer, attention=replace(layer.attention, window=8))
        model = replace(model, model_type="mistral", runs=(replace(model.runs[0], layers=(layer,)),))
    assert [row for row in compare(model, training, layout) if row[2] != row[3]] == []


EXPERTS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "replicas": (8, {"data_parallel": "hsdp", "shard_degree": 4}, {"gradient_accumulation": 2}),
    "of torchtitan": (4, {"shard_group": "titan"}, {"recompute": "full"}),
    "of stages": (8, {**PIPED, "data_parallel": "fsdp", "shard_group": "titan"}, {"gradient_accumulation": 3, "recompute": "full"}),
    "of stages, on one device each": (4, {**PIPED, "data_parallel": "fsdp", "schedule": "gpipe"}, {"gradient_accumulation": 2}),
}


@pytest.mark.parametrize("name", EXPERTS)
def test_experts_are_shared_by_the_devices_that_have_the_same_ones(name: str) -> None:
    devices, of_layout, of_training = EXPERTS[name]
    whole = {"reshard_after_forward": "never"} if "pipeline_parallel" in of_layout else {}
    model, training, layout = case(devices, {"expert_parallel": 2, **whole, **of_layout}, of_training)
    dense = model.runs[0].layers[0]
    routed = replace(dense, feed_forward=None, experts=Experts(8, 2, 64))
    runs = (Run(4, (routed,)),) if whole else (Run(1, (dense,)), Run(2, (routed,)))
    model = replace(model, n_layers=sum(run.count for run in runs), runs=runs)
    assert [row for row in compare(model, training, layout) if row[2] != row[3]] == []


def test_experts_with_settings_that_have_no_code_to_run_are_refused_by_name() -> None:
    model, training, layout = case(4, {"expert_parallel": 2}, {})
    shared = replace(model.runs[0].layers[0], feed_forward=None, experts=Experts(8, 2, 64, shared_d_ff=64))
    with pytest.raises(CannotMeasureError, match=r"experts\.shared_d_ff"):
        list(compare(replace(model, runs=(Run(model.n_layers, (shared,)),)), training, layout))


def test_layouts_without_code_to_run_are_refused_by_name() -> None:
    with pytest.raises(CannotMeasureError, match="context_kind ulysses"):
        list(compare(*case(4, {"context_parallel": 2, "context_kind": "ulysses"}, {})))
    with pytest.raises(CannotMeasureError, match="data_parallel ddp"):
        list(compare(*case(2, {"data_parallel": "ddp"}, {"precision": "fp32"})))
    with pytest.raises(CannotMeasureError, match="schedule zbv"):
        list(compare(*case(2, {**PIPED, "schedule": "zbv", "virtual_stages": 2}, {"gradient_accumulation": 4, **BF16})))


def test_the_command_compares_a_layout_and_refuses_one_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(FLEET / "llama-3-70b-256-h100.yaml"), "--layout"]) == 0
    assert "rank 0 of 64, reduce-scatter, bytes" in capsys.readouterr().out
    assert main(["verify", str(FLEET.parent / "gpt2-small.yaml"), "--layout"]) == 2
    assert "--layout requires a cluster of several devices" in capsys.readouterr().err
