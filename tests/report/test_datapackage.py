"""datapackage.json describes the CSV files; frictionless, pandas and LibreOffice read them correctly."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import planner
from planner.report import csv as report_csv
from planner.report.columns import COLUMNS, COMPONENT_COLUMNS
from planner.report.datapackage import datapackage
from planner.report.files import files
from planner.report.planned import Planned
from planner.report.write import write

MODEL = {"vocab_size": 200, "context_length": 32, "d_model": 64, "n_layers": 2, "n_heads": 4}
NAMES = ("=cmd()", "sep-10", "@tag", "plain", 'a, "b"; c', "+1")


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the CSV files of models with names that spreadsheets misread; the first model is huge."""
    monkeypatch.chdir(tmp_path)
    models = []
    for number, name in enumerate(NAMES):
        training = {"tokens": 10**15} if number == 0 else {}
        path = tmp_path / f"{number}.yaml"
        path.write_text(json.dumps({"name": name, "model": MODEL, "training": training}), encoding="utf-8")
        spec = planner.load(path)
        models.append(Planned(spec, planner.plans(spec)))
    write(tmp_path / "reports", files(models, ["csv"]))
    return tmp_path / "reports"


def test_the_package_has_the_columns_of_the_files() -> None:
    capacity, components = json.loads(datapackage())["resources"]
    assert [field["name"] for field in capacity["schema"]["fields"]] == [column.name for column in COLUMNS]
    assert [field["name"] for field in components["schema"]["fields"]] == list(COMPONENT_COLUMNS)
    assert {field["type"] for field in capacity["schema"]["fields"]} == {"string", "integer"}


def test_frictionless_finds_every_cell_valid(reports: Path) -> None:
    command = [sys.executable, "-m", "frictionless", "validate", "datapackage.json", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=reports, check=False)
    report = json.loads(found.stdout)
    assert (found.returncode, report["valid"], report["stats"]["tasks"]) == (0, True, 2), found.stdout + found.stderr


def test_frictionless_reports_a_wrong_cell(reports: Path) -> None:
    path = reports / "capacity.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(",114944,", ",114.9k,", 1), encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "frictionless", "validate", "datapackage.json"], capture_output=True, cwd=reports, check=False
    )
    assert found.returncode == 1


def test_pandas_reads_the_files(reports: Path) -> None:
    frame = pd.read_csv(reports / "capacity.csv", dtype={"train_flops": object})
    assert [report_csv.original(name) for name in frame["model"].astype(str)] == list(NAMES)
    assert frame["params_total"].tolist() == [114_944] * len(NAMES)  # 200·64 + 32·64 + 2·(12·64² + 13·64) + 2·64
    assert int(frame["train_flops"][0]) > 2**63


@pytest.mark.skipif(shutil.which("soffice") is None, reason="the CSV files in LibreOffice: needs libreoffice-calc-nogui")
def test_libreoffice_reads_every_cell_and_runs_no_formula(reports: Path, tmp_path: Path) -> None:
    """Import with the dialog's defaults ("detect special numbers" is off), save with all digits: equal up to the precision of doubles."""
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    form = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false"
    command = [
        "soffice",
        profile,
        "--headless",
        "--infilter=CSV:44,34,76,1,,0,false,false",
        "--convert-to",
        form,
        "--outdir",
        "read",
        "reports/capacity.csv",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=tmp_path)
    with (reports / "capacity.csv").open(encoding="utf-8", newline="") as file:
        given = list(csv.DictReader(file))
    with (tmp_path / "read" / "capacity.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(NAMES)
    for before, after in zip(given, read, strict=True):
        wrong = [(name, before[name], after[name]) for name in before if before[name] != after[name]]
        assert all(before.isdigit() and int(before) > 2**53 for _, before, _ in wrong), wrong
