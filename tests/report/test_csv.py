from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.capacity.figures import Plan
from planner.report import csv as report_csv
from planner.report.columns import COLUMNS, COMPONENT_COLUMNS

# Columns that users rely on, in this order; more may follow.
PROMISED = (
    "model,scenario,spec,params_total,params_active,params_embedding,params_position,params_attention,params_feed_forward,params_norm,"
    "params_head,params_other,batch_size,sequence_length,precision,optimizer,recompute,implementation,weights_bytes,master_weights_bytes,"
    "gradients_bytes,optimizer_bytes,model_states_bytes,activations_bytes,logits_bytes,peak_bytes,forward_flops_per_token,"
    "train_flops_per_token,train_tokens,train_flops,train_gflop,flops_convention"
)

APPENDED = (
    "params_padding,params_ssm,params_experts,params_shared_experts,params_router,params_prediction,average_bytes,"
    "prediction_trained_params,prediction_active_params,prediction_model_states_bytes,prediction_activations_bytes,prediction_peak_bytes,"
    "prediction_forward_flops_per_token,prediction_train_flops_per_token,omits"
)

TINY_ROW = (
    "tiny,base,specs/tiny.yaml,1028,1028,416,32,192,384,4,0,0,2,8,fp32,adamw,none,pytorch,4112,0,4112,8224,16448,1964,832,24672,"
    "2056,6168,100000000000000000000,616800000000000000000000,616800000000000,matmul,16,0,0,0,0,0,0,0,0,0,0,0,0,0,"
)


def test_every_column_has_a_description() -> None:
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert all(column.description for column in COLUMNS)
    assert all(bool(column.unit) == (column.kind == "integer") for column in COLUMNS)


def test_the_first_columns_are_fixed_and_integers_are_exact_beyond_64_bits(plan: Plan) -> None:
    header, row, end = report_csv.capacity([plan]).split("\n")
    assert header == f"{PROMISED},{APPENDED}"
    assert row == TINY_ROW
    assert end == ""


def test_missing_values_are_empty(without_tokens: Plan) -> None:
    (row,) = csv.DictReader(io.StringIO(report_csv.capacity([without_tokens])))
    assert [name for name, cell in row.items() if not cell] == ["train_tokens", "train_flops", "train_gflop", "omits"]


def test_components_are_tidy_and_add_up_to_the_totals(plan: Plan) -> None:
    rows = list(csv.DictReader(io.StringIO(report_csv.components([plan]))))
    assert tuple(rows[0]) == COMPONENT_COLUMNS == ("model", "scenario", "group", "component", "quantity", "unit")
    sums = {group: sum(int(row["quantity"]) for row in rows if row["group"] == group) for group in {row["group"] for row in rows}}
    assert sums["parameters"] == 1028
    assert sums["model_states"] == 16_448
    assert sums["activations"] == 1964
    assert sums["forward_flops"] == 32_896
    assert [row["quantity"] for row in rows if row["group"] == "peak"] == ["18000", "19244", "20076", "24672"]
    assert {row["component"]: row["quantity"] for row in rows if row["group"] == "train_flops_per_step"} == {
        "matmul": "98688",
        "6nd": "98688",
    }
    assert {row["unit"] for row in rows} == {"parameters", "bytes", "FLOP"}


def test_quoted_text_is_read_back_by_csv_and_pandas(plan: Plan) -> None:
    name = 'two "words", 模型\nand a line 🤖'
    text = report_csv.capacity([replace(plan, name=name)])
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row["model"] == name
    frame = pd.read_csv(io.StringIO(text), dtype={"train_flops": object}, keep_default_na=False)
    assert frame["model"][0] == name
    assert frame["train_flops"][0] == "616800000000000000000000"
    assert int(frame["peak_bytes"][0]) == 24_672


def test_lines_end_with_line_feeds(plan: Plan) -> None:
    assert "\r" not in report_csv.capacity([plan]) + report_csv.components([plan])


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(1)", "\tx", "\rx", "\n=1", "  =1", "\u00a0=1", "＝1", "a;=1", "a;\n-1", "'=1", "x\t=1"],
)
def test_no_cell_starts_like_a_formula(text: str) -> None:
    safe = report_csv.safe(text)
    for cell in safe.replace("\t", ";").replace("\n", ";").replace("\r", ";").split(";"):
        assert cell.lstrip()[:1] not in set("=+-@＝＋－＠")
    assert report_csv.original(safe) == text


@pytest.mark.parametrize("text", ["gpt2-small", "llama-3.2-1b", "a=b", "specs/x.yaml", "it's", ""])
def test_plain_text_is_unchanged(text: str) -> None:
    assert report_csv.safe(text) == text


@given(st.text(alphabet="a'=+-@; \t\r\n＝"))
def test_escaping_of_formulas_can_be_undone(text: str) -> None:
    assert report_csv.original(report_csv.safe(text)) == text


def test_formulas_are_escaped_in_every_text_column(plan: Plan) -> None:
    evil = replace(plan, name="=cmd|' /C calc'!A0", scenario="@x", spec_path="-x.yaml")
    (row,) = csv.DictReader(io.StringIO(report_csv.capacity([evil])))
    assert (row["model"], row["scenario"], row["spec"]) == ("'=cmd|' /C calc'!A0", "'@x", "'-x.yaml")


def test_every_metric_has_a_method_and_settings_of_the_spec_have_none() -> None:
    stated = {"batch_size", "sequence_length", "train_tokens"}
    for column in COLUMNS:
        figure = column.kind == "integer" and column.name not in stated
        assert bool(re.fullmatch(r"[a-z]+/[1-9]\d*", column.method)) == figure, column.name
        assert bool(column.heading) == (column.tier in ("summary", "overview")), column.name
