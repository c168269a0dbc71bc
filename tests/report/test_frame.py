from __future__ import annotations

from dataclasses import replace

import pandas as pd

from planner.capacity.figures import Plan
from planner.report.columns import COLUMNS
from planner.report.frame import to_frame


def test_integers_stay_exact_with_a_gap_and_beyond_int64(plan: Plan, without_tokens: Plan) -> None:
    frame = to_frame([plan, without_tokens])
    assert list(frame.columns) == [column.name for column in COLUMNS]
    assert frame["params_total"].dtype == "Int64"
    assert frame["train_flops"].dtype == object
    assert list(frame["train_flops"]) == [616_800_000_000_000_000_000_000, None]
    assert frame["train_gflop"].dtype == "Int64"
    assert frame["train_gflop"][0] == 616_800_000_000_000
    assert frame["train_gflop"][1] is pd.NA
    assert not [name for name in frame.columns if pd.api.types.is_float_dtype(frame[name])]


def test_integers_at_the_limits_of_int64(plan: Plan) -> None:
    for value, dtype in ((2**63 - 1, "Int64"), (2**63, "object"), (2**64 + 1, "object")):
        frame = to_frame([replace(plan, train_tokens=value)])
        assert frame["train_tokens"].dtype == dtype
        assert int(frame["train_tokens"][0]) == value


def test_without_plans_the_frame_is_empty_with_all_columns() -> None:
    assert list(to_frame([]).columns) == [column.name for column in COLUMNS]
    assert len(to_frame([])) == 0


def test_text_is_that_of_the_spec(plan: Plan) -> None:
    assert to_frame([replace(plan, name="=1+1")])["model"][0] == "=1+1"


def test_a_plan_can_be_converted_to_a_frame(plan: Plan) -> None:
    frame = plan.to_frame()
    assert len(frame) == 1
    assert frame["train_flops"][0] == 616_800_000_000_000_000_000_000
