"""The workbook of specs of which some have no formulas: their figures are values."""

from __future__ import annotations

import io
from pathlib import Path

import openpyxl

import planner
from planner.report import workbook
from planner.report.planned import Planned

SPECS = Path(__file__).parent.parent.parent / "specs"


def test_a_pipeline_beside_other_models_has_values_instead_of_formulas() -> None:
    specs = [planner.load(SPECS / name) for name in ("gpt2-small.yaml", "fleet/gpt3-175b-64-a100.yaml")]
    models = [Planned(spec, planner.plans(spec)) for spec in specs]
    book = openpyxl.load_workbook(io.BytesIO(workbook.workbook(models)))
    heads = [cell.value for cell in book["Figures"][1]]
    rows = {row[0]: dict(zip(heads, row, strict=True)) for row in book["Figures"].iter_rows(min_row=2, values_only=True)}
    assert rows["GPT-3-175B-64-A100"]["peak_bytes (bytes)"] == models[1].plans[0].memory.peak_bytes
    assert str(rows["gpt2-small"]["peak_bytes (bytes)"]).startswith("=")
    sources = [row[3] for row in book["Sources"].iter_rows(values_only=True)]
    assert any(str(text).startswith("GPT-3-175B-64-A100, scenario base, has values instead of formulas") for text in sources)
