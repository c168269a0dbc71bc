"""A calibration to measured steps: steps that are all twice as long make all terms twice as long, and specs use the file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import planner
from planner.cli import main
from planner.time.coefficients import coefficients
from planner.time.estimate import estimate

SPEC = """\
name: small
model: {vocab_size: 1000, context_length: 64, d_model: 128, n_layers: 2, n_heads: 4}
training: {batch_size: 2, sequence_length: 64, precision: bf16-master, device: a100}
cluster: {device: A100-80GB-SXM, devices: 1}
scenarios:
  - {name: short, sequence_length: 32}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def seconds(spec: Path, scenario: str = "base", batch: int = 2) -> float:
    return estimate(planner.plan(str(spec), scenario, set={"training.batch_size": batch})).seconds


def test_steps_that_take_twice_as_long_double_all_terms(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("runs.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("spec", "scenario", "training.batch_size", "step_s"))
        rows.writerow((spec.name, "", "", 2 * seconds(spec)))
        rows.writerow((spec.name, "short", "", 2 * seconds(spec, "short")))
        rows.writerow((spec.name, "base", 8, 2 * seconds(spec, batch=8)))
    assert main(["calibrate", "runs.csv", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [step["after_s"] for step in printed["steps"]] == pytest.approx([step["step_s"] for step in printed["steps"]])
    made = coefficients(Path("calibration.yaml"))
    shipped = coefficients()
    assert made.terms == pytest.approx({name: 2 * value for name, value in shipped.terms.items()}, rel=1e-3)
    assert made.data == f"3 measured steps in runs.csv and {shipped.data}"
    found = estimate(planner.plan(str(spec), set={"cluster.calibration": "calibration.yaml"}))
    assert found.seconds == pytest.approx(2 * seconds(spec), rel=1e-3)
    assert found.calibrated_on == made.data
    low, high = shipped.bands["calibrated"]
    assert (found.low, found.high) == (found.seconds * low, found.seconds * high)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks the column spec"),
        ("spec,step_s\n", "has no rows"),
        ("spec\nsmall.yaml\n", "lacks the column step_s"),
        ("spec,step_s\nsmall.yaml,0\n", "runs.csv:2: step_s must be a number of seconds above 0, not '0'"),
        ("spec,step_s\nsmall.yaml,nan\n", "must be a number"),
        ("spec,step_s\nsmall.yaml\n", "runs.csv:2: the number of cells differs"),
        ("spec,step_s\nsmall.yaml,1,2\n", "runs.csv:2: the number of cells differs"),
        ("spec,step_s\nnosuch.yaml,1\n", "nosuch.yaml"),
        ("spec,step_s\ngpt2,1\n", "has no cluster"),
        ("spec,step_s,scenario\nsmall.yaml,1,long\n", "unknown scenario 'long' in small"),
        ("spec,step_s,training.batch_siz\nsmall.yaml,1,2\n", "did you mean"),
        ("spec,step_s,cluster.device\nsmall.yaml,1,V100-32GB-SXM\n", "known TFLOP/s: fp16 125"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(spec: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert spec.exists()
    Path("runs.csv").write_text(text, encoding="utf-8")
    assert main(["calibrate", "runs.csv"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("calibration.yaml").exists()


def test_a_missing_file_is_an_error(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spec.exists()
    assert main(["calibrate", "nosuch.csv"]) == 2
    assert "cannot read nosuch.csv" in capsys.readouterr().err
