"""Steps with the kernels of liger-kernel, measured by tools/measure_liger.py, are equal in every figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.spec.liger import SWITCHES
from tools.measure import FIGURES, SETTINGS, SHAPE, planned, spec_of

HEAD, *ROWS = map(json.loads, (Path(__file__).parents[1] / "data" / "liger_steps.jsonl").read_text(encoding="utf-8").splitlines())
CASES = [(row["config"], row["liger"], name, its) for row in ROWS for name, its in row["steps"].items()]
IDS = [f"{config['model_type']}-{','.join(name for name, on in liger.items() if on)}-{name}" for config, liger, name, _ in CASES]


# Ours less measured, in the peak. A smaller or larger difference fails too: correct or remove its line then.
PEAKS: dict[str, int] = {
    "deepseek_v2-cross_entropy-sdpa bf16-autocast": -528,
    "deepseek_v3-cross_entropy-sdpa bf16-autocast": -792,
    "granite--sdpa bf16 full": -6336,
    "granite--sdpa fp32 full": -12672,
    "nemotron--sdpa bf16-autocast": 3072,
    "phi3--sdpa bf16 full": -2304,
    "phi3--sdpa bf16-autocast full": -15552,
    "phi3--sdpa fp32 full": -4608,
    "qwen3_moe-cross_entropy-sdpa bf16-autocast": -792,
    "qwen3_moe-fused_linear_cross_entropy-sdpa bf16-autocast": -792,
    "qwen3_moe-rms_norm-sdpa bf16-autocast": -792,
}


def fused_experts(config: dict[str, Any], name: str) -> tuple[int, int]:
    """Return the FLOPs of the kernels of experts, which PyTorch's counter does not see: 2 per element of gate, up and down, and row.

    Backward: twice that, and the forward pass once more if layers are recomputed.
    """
    layers = [(run.count, layer.experts) for run in spec_of(config).model.runs for layer in run.layers]
    tokens, d = SHAPE["batch_size"] * SHAPE["sequence_length"], config["hidden_size"]
    forward = sum(2 * count * tokens * kind.top_k * 3 * d * kind.d_ff for count, kind in layers if kind)
    return forward, forward * (3 if name.endswith("full") else 2)


@pytest.mark.parametrize(("case", "label"), list(zip(CASES, IDS, strict=True)), ids=IDS)
def test_a_step_with_liger_kernels_equals_the_measurement(case: tuple[dict[str, Any], dict[str, bool], str, list[int]], label: str) -> None:
    config, liger, name, its = case
    ours = dict(zip(FIGURES, planned(config, SETTINGS[name] | {"liger": liger or True}), strict=True))
    measured = dict(zip(FIGURES, its, strict=True))
    if "swiglu" in SWITCHES[config["model_type"]].supported and liger.get("swiglu", True):
        for key, flops in zip(("flops_forward", "flops_backward"), fused_experts(config, name), strict=True):
            measured[key] += flops
    measured["peak"] += PEAKS.get(label, 0)
    assert ours == measured


def test_every_listed_difference_is_of_a_measured_step() -> None:
    assert PEAKS.keys() <= set(IDS)


def test_every_supported_class_was_measured() -> None:
    assert {row["config"]["model_type"] for row in ROWS} == set(SWITCHES)
    assert HEAD["liger_kernel"] == "0.8.5"
