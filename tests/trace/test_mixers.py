"""Mixers as transformers runs them without fused kernels.

tests/data/mixers.jsonl: small models of transformers 5.24, built from a config.json and trained for two steps on fake CUDA tensors with
PyTorch 2.13 (``planner.verify.step``). ``saved_bytes`` omits the state that RecurrentGemma keeps from one step to the next, a buffer here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from planner.capacity import plan
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.write import spec_text
from planner.spec import load_text
from planner.verify.allocations import AllocationTracker

ROWS: list[dict[str, Any]] = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "mixers.jsonl").read_text().splitlines()]
PRECISIONS = {"fp32": "fp32", "amp": "bf16-autocast", "bf16": "bf16"}
SETTINGS = ("batch_size", "sequence_length")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(str(row[key]) for key in ("model_type", "precision", *SETTINGS)))
def test_a_mixer_equals_the_measurement(row: dict[str, Any]) -> None:
    settings = {**{key: row[key] for key in SETTINGS}, "precision": PRECISIONS[row["precision"]], "implementation": "transformers"}
    text = spec_text(read_huggingface(row["config"]), "small")
    spec = load_text(text, [f"training.{key}={value}" for key, value in settings.items()])
    ours = plan(spec, spec.scenarios[0])
    hardware = next(count for count in ours.flops.by_convention if count.convention == "hardware")
    measured = {key: row[key] for key in ("saved_bytes", "flops_forward", "flops_backward")}
    assert measured == {
        "saved_bytes": ours.memory.activations_bytes,
        "flops_forward": hardware.forward_per_step,
        "flops_backward": hardware.train_per_step - hardware.forward_per_step,
    }
    assert ours.memory.peak_bytes == pytest.approx(row["peak_bytes"], rel=0.004)


def test_a_convolution_has_the_flops_of_its_groups() -> None:
    x, w = torch.zeros(2, 96, 67, requires_grad=True), torch.zeros(96, 1, 4, requires_grad=True)
    tracker = AllocationTracker(torch.device("cpu"))
    with tracker:
        made = torch.nn.functional.conv1d(x, w, groups=96)
    assert tracker.flops == 98_304  # 2 · 2 sequences · 64 outputs · 96 channels · 4 weights
    tracker.start_phase()
    with tracker:
        made.sum().backward()  # type: ignore[no-untyped-call] # untyped in torch
    assert tracker.flops == 196_608  # PyTorch's counter: 9,535,488
