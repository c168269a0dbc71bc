"""Steps of mixers with the kernels of their authors, measured by tools/measure_mixers.py: equal but for small differences of peaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.trace.unsupported import UnsupportedError
from tools.measure import FIGURES, SETTINGS, planned

_, *ROWS = map(json.loads, (Path(__file__).parents[1] / "data" / "mixer_steps.jsonl").read_text(encoding="utf-8").splitlines())
CASES = [(row["config"], name, its) for row in ROWS for name, its in row["steps"].items()]
IDS = [f"{config['model_type']}-{name}" for config, name, _ in CASES]
OF_KERNELS = ("flops_forward", "flops_backward")  # those of kernels that PyTorch's counter does not see come on top


def figures(config: dict[str, Any], name: str) -> dict[str, int]:
    return dict(zip(FIGURES, planned(config, SETTINGS[name] | {"mixer_kernels": "fused"}), strict=True))


@pytest.mark.parametrize(("config", "name", "its"), CASES, ids=IDS)
def test_a_step_with_fused_mixers_equals_the_measurement(config: dict[str, Any], name: str, its: list[int]) -> None:
    ours, measured = figures(config, name), dict(zip(FIGURES, its, strict=True))
    assert ours.pop("peak") == pytest.approx(measured.pop("peak"), rel=0.007)
    assert all(ours.pop(key) > measured.pop(key) for key in OF_KERNELS)
    assert ours == measured


@pytest.mark.parametrize(
    ("kind", "forward", "backward"),
    [
        # 3 layers, 66 tokens, 96 channels, 3 weights each: 2·3·66·96·3; twice that and once again
        ("mamba", 114_048, 342_144),
        # 5 layers, 66 tokens, 64 channels, 3 weights, and 128 padded tokens, 4 heads, keys and values of 8, chunks of 64:
        # 5·(2·66·64·3 + 2·128·4·(3·64·8 + 2·64·8 + 3·8·8)), 5·(4·66·64·3 + 2·128·4·(9·64·8 + 5·64·8 + 8·8·8 + 2·64·64))
        ("qwen3_next", 14_216_960, 81_518_080),
    ],
)
def test_flops_of_kernels_come_on_top_of_those_that_are_measured(kind: str, forward: int, backward: int) -> None:
    config, name, its = next(case for case in CASES if case[0]["model_type"] == kind)
    ours, measured = figures(config, name), dict(zip(FIGURES, its, strict=True))
    assert [ours[key] - measured[key] for key in OF_KERNELS] == [forward, backward]


def test_a_number_of_channels_that_the_kernel_rejects_is_rejected() -> None:
    config = next(row["config"] for row in ROWS if row["config"]["model_type"] == "mamba2")
    with pytest.raises(UnsupportedError, match="to be a multiple of 8"):
        figures(config | {"state_size": 5}, "eager bf16")
