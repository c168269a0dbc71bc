"""DeepSpeed's ZeRO: states, allocated bytes and bounds of peaks, against real steps of DeepSpeed on a CPU.

Rows of ``tests/data/deepspeed_steps.jsonl`` are the third step of one rank, run by DeepSpeed 0.19.8 with torch.optim.AdamW(fused=True) on
real bfloat16 tensors in a fake process group (PyTorch 2.13), and measured by tools/measure_deepspeed.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.capacity.deepspeed import overlapping
from planner.capacity.figures import Plan
from planner.trace.unsupported import UnsupportedError

TABLE = Path(__file__).parents[1] / "data" / "deepspeed_steps.jsonl"
ROWS = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
SMALL = 400  # bytes of scalars that DeepSpeed has beside its tensors: losses, flags, a float64 norm per weight
PlanLayout = Callable[..., Plan]


@pytest.fixture
def plan_layout(tmp_path: Path) -> PlanLayout:
    """Plan a model on several devices."""

    def plan(model: Mapping[str, Any], training: Mapping[str, Any], devices: int, **layout: object) -> Plan:
        cluster = {"device": {"memory": "80GiB"}, "devices": devices}
        path = tmp_path / "model.yaml"
        document = {"name": "model", "model": model, "training": {"device": "cpu", **training}, "cluster": cluster, "layout": layout}
        path.write_text(json.dumps(document), encoding="utf-8")
        return planner.plan(planner.load(path))

    return plan


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['layout']}-rank{row['rank']}-micro{row['training']['gradient_accumulation']}")
def test_a_step_of_deepspeed(row: dict[str, Any], plan_layout: PlanLayout) -> None:
    plan, measured = plan_layout(row["model"], row["training"], row["devices"], **row["layout"]), row["measured"]
    memory, host = plan.memory, plan.fleet.host_bytes if plan.fleet else 0  # on a CPU, both are one memory
    states = (memory.weights_bytes, memory.master_weights_bytes, memory.optimizer_bytes)
    if not host:
        assert states == (measured["weights"], measured["master"], measured["optimizer"])
    if row["fullest"]:  # the rank that is planned
        assert memory.live.start + host == pytest.approx(measured["start"], abs=SMALL)
        assert memory.live.after_backward + host >= measured["after_backward"] - SMALL
    peaks = {phase.phase: phase.peak_bytes + host for phase in memory.phases}
    assert max(peaks["forward"], peaks["loss"]) >= measured["peak_forward"] - SMALL
    assert peaks["backward"] >= measured["peak_backward"] - SMALL
    assert peaks["optimizer"] >= measured["peak_optimizer"] - SMALL


LLAMA: dict[str, Any] = {
    "vocab_size": 100, "context_length": 64, "d_model": 64, "n_layers": 3, "n_heads": 4, "d_ff": 96, "positions": "rope",
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False}, "norm": {"type": "rmsnorm"}, "head": {"tied": False},
    "attention": {"qkv": "separate", "bias": False},
}  # fmt: skip
BF16 = {"precision": "bf16-master", "gradient_dtype": "bf16"}


@pytest.mark.parametrize("devices", [2, 7])
@pytest.mark.parametrize("stage", ["zero1", "zero2", "fsdp"])
def test_states_are_equal_parts_of_padded_weights(stage: str, devices: int, plan_layout: PlanLayout) -> None:
    # Two tables of 100 · 64, and three layers of 4 · 64 · 64 + 3 · 64 · 96 and two norms, and a final one: 118,016 weights, 7 · 16,859.4.
    params = 2 * 6400 + 3 * (16384 + 18432 + 128) + 64
    memory = plan_layout(LLAMA, BF16, devices, engine="deepspeed", data_parallel=stage).memory
    padded = -(-params // (2 * devices)) * 2 * devices
    if stage == "fsdp":  # each weight by itself: 6400, 4096, 6144 and 64 are not multiples of 7
        rows = 2 * -(-6400 // devices) + 3 * (4 * -(-4096 // devices) + 3 * -(-6144 // devices)) + 7 * -(-64 // devices)
        padded = rows * devices
    assert memory.master_weights_bytes == 4 * padded // devices
    assert memory.optimizer_bytes == 8 * padded // devices
    assert memory.weights_bytes == 2 * (padded if stage != "fsdp" else padded // devices)


def test_gradients_of_a_part_are_those_of_all_its_weights() -> None:
    # Parts of 10: the first has some of 4 and 8, the second of 8, 5 and 6, the third of 6.
    assert [overlapping([4, 8, 5, 6], 10, number) for number in range(3)] == [12, 13 + 6, 6]


@pytest.mark.parametrize(
    ("layout", "training", "reason"),
    [
        ({"data_parallel": "ddp"}, {}, "layout.data_parallel ddp with layout.engine deepspeed"),
        ({"data_parallel": "zero2", "tensor_parallel": 2}, {}, "layout.tensor_parallel above 1 with layout.engine deepspeed"),
        ({"data_parallel": "zero2", "offload": "weights"}, {}, "layout.offload weights with layout.engine deepspeed"),
        (
            {"data_parallel": "zero2", "offload": "optimizer"},
            {"gradient_dtype": "fp32"},
            "layout.offload optimizer and gradient_dtype fp32",
        ),
        ({"data_parallel": "zero1"}, {"gradient_dtype": "fp32"}, "BF16_Optimizer"),
        ({"data_parallel": "zero2"}, {"optimizer": "muon"}, "optimizer muon with layout.engine deepspeed"),
        ({"data_parallel": "zero2"}, {"precision": "fp32", "gradient_dtype": None}, "precision fp32 with layout.engine deepspeed"),
        ({"data_parallel": "zero2", "engine": "pytorch"}, {}, "write data_parallel: fsdp, or engine: deepspeed"),
    ],
)
def test_what_is_not_modeled_is_refused(
    layout: dict[str, object], training: dict[str, object], reason: str, plan_layout: PlanLayout
) -> None:
    step = {key: value for key, value in (BF16 | training).items() if value is not None}
    with pytest.raises(UnsupportedError, match=reason):
        plan_layout(LLAMA, step, 4, **({"engine": "deepspeed"} | layout))
