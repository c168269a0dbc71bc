"""Adapters, frozen and packed weights on several devices: FSDP2's own code and peft's modules, rank by rank, value by value."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import planner
from planner.capacity.layouts import refuse_unmodeled
from planner.trace.unsupported import UnsupportedError
from planner.verify.layout import of_device
from tests.verify.test_tuned import LLAMA, MIXTRAL, QLORA, adapters

Case = tuple[dict[str, Any], int, dict[str, Any], dict[str, Any]]  # model, devices, layout, training
NAMELESS = {key: value for key, value in LLAMA.items() if key != "model_type"}
QWEN2 = LLAMA | {"model_type": "qwen2", "attention": {"bias": {"q": True, "k": True, "v": True, "o": False}, "qkv": "separate"}}
REPLICAS = {"data_parallel": "hsdp", "shard_degree": 2}
FROZEN: list[Case] = [
    (LLAMA, 4, {}, {"train": ["layers.1", "head"]}),  # layer 0 is gathered again, but does not run backward
    (LLAMA, 3, {"reshard_after_forward": "never"}, {"train": ["layers.2", "final_norm"], "recompute": "full"}),
    (LLAMA, 2, {"shard_group": "none"}, {"train": "head"}),
    (QWEN2, 2, {}, {"train": "bias", "gradient_accumulation": 2}),
    (NAMELESS, 2, {"offload": "weights"}, {"train": ["norm", "layers.1-2"], "implementation": "pytorch"}),
]
ADAPTERS: list[Case] = [
    (LLAMA, 3, {}, adapters(rank=4, layers=["1-2"])),
    (LLAMA, 4, REPLICAS, adapters(rank=4) | QLORA | {"recompute": "full", "gradient_accumulation": 2}),
    (LLAMA, 2, {"offload": "weights"}, adapters(rank=4, targets=["q"]) | {"base": {"format": "nf4", "double_quant": True}}),
    (LLAMA, 3, {}, adapters(rank=4, dtype="base") | {"also_train": ["embedding", "head"], "padding": True}),
    (LLAMA, 2, {}, adapters(rank=4, type="dora") | {"precision": "fp32", "optimizer": "sgd"}),
    (LLAMA, 3, {}, adapters(rank=4, targets=["q", "o"]) | {"precision": "bf16-autocast", "base": {"dtype": "bf16"}}),
    (QWEN2, 2, {}, adapters(type="ia3", targets=["k", "v", "down"])),
    (LLAMA, 3, {}, adapters(type="ia3") | QLORA),
    (QWEN2, 2, {}, adapters(rank=4, type="dora", dropout=0.1) | {"precision": "bf16-autocast", "recompute": "full"}),
    (LLAMA, 2, {}, adapters(rank=4, type="dora") | {"base": {"format": "nf4", "compute_dtype": "fp32"}}),
    (LLAMA, 2, {"reshard_after_forward": "always"}, adapters(type="prompt") | {"recompute": "full"}),
    (LLAMA, 2, {}, adapters(type="prefix")),
    (MIXTRAL, 2, {}, adapters(rank=4)),
    (NAMELESS, 2, {}, adapters(rank=4, targets=["q", "down"]) | {"implementation": "pytorch", "recompute": "selective"}),
]
INSTALLED = find_spec("peft") is not None and find_spec("bitsandbytes") is not None
if INSTALLED:
    import_module("bitsandbytes")  # before a test, whose log would keep the frames of an import, and weights in them
CASES = FROZEN + (ADAPTERS if INSTALLED else [])
RUN = CASES if os.environ.get("CHANGES") == "all" else [CASES[0], *CASES[len(FROZEN) :][:2]]  # `make sweep` runs all


def spec(model: dict[str, Any], devices: int, layout: dict[str, Any], training: dict[str, Any]) -> planner.Spec:
    settings = {"implementation": "transformers", "precision": "bf16", "batch_size": 2, "sequence_length": 32, **training}
    several = {"cluster": {"devices": devices, "device": "H100-80GB"}, "layout": {"data_parallel": "fsdp", **layout}}
    return planner.load({"name": "tuned", "model": model, "training": settings} | (several if devices > 1 else {}))


@pytest.mark.parametrize("case", RUN, ids=str)
def test_a_device_allocates_and_sends_what_is_planned(case: Case) -> None:
    made = spec(*case)
    training = made.scenarios[0].training
    assert training.layout is not None
    refuse_unmodeled(made.model, training)
    rows = [row for number in (0, case[1] - 1) for row in of_device(made.model, training, training.layout, 0, number)]
    assert [row for row in rows if row[2] != row[3]] == []
    assert {"gradients", "optimizer state", "peak, backward", "all-gather", "reduce-scatter"} <= {row[0].partition(", ")[2] for row in rows}


def test_buckets_of_copies_have_only_what_trains() -> None:
    alone, several = (planner.plan(spec(LLAMA, devices, {"data_parallel": "ddp"}, adapters(rank=4))) for devices in (1, 4))
    assert several.fleet is not None
    # rank 4 in 3 layers: q and o [128, 128], k and v [64, 128], gate and up [256, 128], down [128, 256]; float32
    gradients = 4 * 3 * 4 * (2 * 256 + 2 * 192 + 3 * 384)
    assert alone.memory.gradients_bytes == several.memory.gradients_bytes == gradients
    assert dict(several.fleet.buffers) == {"gradient buckets of DDP": gradients}
    assert [(one.collective, one.bytes) for one in several.fleet.traffic] == [("all-reduce", gradients)]


def test_optimizer_state_of_zero_is_of_what_trains() -> None:
    plan = planner.plan(spec(LLAMA, 4, {"data_parallel": "zero1"}, {"train": ["layers.1", "final_norm"]}))
    # bf16; the largest of 4 parts is that of a matrix [256, 128] and others: 2 moments of 2 bytes for at least a quarter of the elements
    trained = 2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128 + 3 * 128
    assert plan.parameters.trained == trained
    assert trained <= plan.memory.optimizer_bytes <= trained + 4 * 256 * 128
    assert plan.fleet is not None
    assert [one.bytes for one in plan.fleet.traffic if one.collective == "broadcast"] == [2 * trained]


@pytest.mark.parametrize(
    ("model", "layout", "training", "named"),
    [
        (LLAMA, {"tensor_parallel": 2}, adapters(rank=4), "training.train with tensor_parallel"),
        (LLAMA, {"shard_group": "titan"}, {"train": "head"}, "shard_group titan beside frozen weights"),
        (LLAMA, {}, {"train": "head", "precision": "bf16-master"}, "precision bf16-master beside frozen weights"),
        (LLAMA, {}, adapters(rank=4, targets=["q", "embedding"]) | {"also_train": ["head"]}, "several data types in a group"),
        (QWEN2, {}, adapters(rank=4) | QLORA, "q_proj.bias, which bitsandbytes casts"),
    ],
)
def test_layouts_that_are_not_measured_are_refused_by_name(
    model: dict[str, Any], layout: dict[str, Any], training: dict[str, Any], named: str
) -> None:
    with pytest.raises((UnsupportedError, planner.SpecError), match=named):
        planner.plan(spec(model, 4, layout, training))
