from __future__ import annotations

import json

from planner.capacity.figures import Plan
from planner.report import json as report_json
from planner.report.columns import COLUMNS


def test_integers_are_exact_and_missing_ones_null(plan: Plan, without_tokens: Plan) -> None:
    shown, without = json.loads(report_json.report([plan, without_tokens]))
    assert list(shown["figures"]) == [column.name for column in COLUMNS]
    assert shown["figures"]["train_flops"] == 616_800_000_000_000_000_000_000
    assert without["figures"]["train_flops"] is None
    assert without["tokens_per_parameter"] is None


def test_details_behind_the_metrics_are_included(plan: Plan) -> None:
    (shown,) = json.loads(report_json.report([plan]))
    assert shown["initial_loss"] == 4.60517  # ln 100
    assert shown["training"]["dropout"] == "0.1"
    assert shown["components"]["parameters"]["feed_forward"] == 384
    assert shown["weights"][2] == {
        "name": "model.layers.N.self_attn.qkv_proj.weight",
        "shape": [12, 4],
        "copies": 3,
        "component": "attention",
        "formula": "linear d_model -> 3·d_model",
        "always_float32": False,
        "trains": True,
        "dtype": "float32",
        "packing": None,
        "active_each": 48,
        "multiplied": True,
    }
    assert [state["bytes_per_param"] for state in shown["model_states"]] == [4, 0, 4, 8]
    assert shown["kept"][0]["bytes_each"] == 256
    assert shown["phases"][1] == {"phase": "loss", "operator": "loss", "peak_bytes": 19_244}
    assert [count["convention"] for count in shown["flops"]] == ["matmul", "6nd"]
    assert shown["shapes"][1]["shape"] == [2, 8, 104]
    assert shown["not_counted"] == ["the CUDA context"]


def test_the_text_is_utf8_with_line_feeds_and_reproducible(plan: Plan) -> None:
    text = report_json.report([plan])
    assert "3·d_model" in text
    assert text.endswith("]\n")
    assert text == report_json.report([plan])
