from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Planner = Callable[..., tuple[int, str, str]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_run_writes_csv_and_markdown_and_prints_a_table(home: Path, planner: Planner) -> None:
    code, out, err = planner("run", "specs/tiny.yaml")
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["tiny", "114.9", "k"]
    assert out.splitlines()[2].startswith("tiny · short")
    assert err == ("planner: wrote reports/capacity.csv, reports/components.csv, reports/datapackage.json, reports/capacity.md\n")
    assert names(home / "reports") == ["capacity.csv", "capacity.md", "components.csv", "datapackage.json"]
    with (home / "reports" / "capacity.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["scenario"], row["spec"]) for row in rows] == [
        ("tiny", "base", "specs/tiny.yaml"),
        ("tiny", "short", "specs/tiny.yaml"),
    ]
    assert [row["params_total"] for row in rows] == ["114944", "114944"]
    assert [row["sequence_length"] for row in rows] == ["10", "5"]
    assert rows[0]["train_tokens"] == "1000000"


def test_formats_and_the_directory_can_be_chosen(home: Path, planner: Planner) -> None:
    code, _, err = planner("run", "specs", "--format", "json,csv", "--output", "out/deep")
    assert code == 0
    assert err == ("planner: wrote out/deep/capacity.csv, out/deep/components.csv, out/deep/datapackage.json, out/deep/capacity.json\n")
    assert names(home / "out" / "deep") == ["capacity.csv", "capacity.json", "components.csv", "datapackage.json"]
    base, _ = json.loads((home / "out" / "deep" / "capacity.json").read_text(encoding="utf-8"))
    assert base["figures"]["params_total"] == 114_944
    assert not (home / "reports").exists()


def test_the_same_input_gives_the_same_bytes_under_any_path(home: Path, planner: Planner) -> None:
    other = (home / "specs" / "tiny.yaml").read_text(encoding="utf-8").replace("name: tiny", "name: also-tiny")
    (home / "specs" / "zz.yaml").write_text(other, encoding="utf-8")
    reports = []
    for number, given in enumerate((["specs"], ["specs/zz.yaml", "specs/tiny.yaml"], [str(home / "specs" / "*.yaml"), "specs/tiny.yaml"])):
        planner("run", *given, "--output", f"out{number}", "--format", "csv,md,json")
        reports.append({path.name: path.read_bytes() for path in (home / f"out{number}").iterdir()})
    assert reports[0] == reports[1] == reports[2]
    assert str(home).encode() not in b"".join(reports[0].values())
    assert b"\r" not in b"".join(reports[0].values())
    lines = reports[0]["capacity.csv"].decode().splitlines()
    assert [line.split(",")[0] for line in lines] == ["model", "also-tiny", "also-tiny", "tiny", "tiny"]


def test_a_second_run_changes_nothing(home: Path, planner: Planner) -> None:
    planner("run", "specs")
    before = {path: path.stat().st_mtime_ns for path in (home / "reports").iterdir()}
    planner("run", "specs")
    assert {path: path.stat().st_mtime_ns for path in (home / "reports").iterdir()} == before


def test_check_lists_only_outdated_reports(home: Path, planner: Planner) -> None:
    code, out, err = planner("run", "specs", "--check")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"planner: reports/{name} is missing; run `planner run` to update it"
        for name in ("capacity.csv", "components.csv", "datapackage.json", "capacity.md")
    ]
    assert not (home / "reports").exists()

    planner("run", "specs")
    assert planner("run", "specs", "--check") == (0, "", "")

    (home / "reports" / "capacity.md").write_bytes(b"edited\n")
    (home / "reports" / "components.csv").unlink()
    code, out, err = planner("run", "specs", "--check")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "planner: reports/components.csv is missing; run `planner run` to update it",
        "planner: reports/capacity.md is out of date; run `planner run` to update it",
    ]
    assert (home / "reports" / "capacity.md").read_bytes() == b"edited\n"


def test_check_looks_at_every_report_in_the_folder(home: Path, planner: Planner) -> None:
    pytest.importorskip("xlsxwriter")
    planner("run", "specs", "--format", "csv,md,json,xlsx,html")
    assert planner("run", "specs", "--check", "--format", "md") == (0, "", "")
    text = (home / "specs/tiny.yaml").read_text(encoding="utf-8")
    (home / "specs/tiny.yaml").write_text(text.replace("batch_size: 3", "batch_size: 4"), encoding="utf-8")
    planner("run", "specs")  # csv and md
    code, out, err = planner("run", "specs", "--check")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"planner: reports/capacity.{form} is out of date; run `planner run --format {form}` to update it"
        for form in ("json", "xlsx", "html")
    ]
    planner("run", "specs", "--format", "json,xlsx,html")
    (home / "reports/components.csv").unlink()
    assert planner("run", "specs", "--check", "--format", "md") == (0, "", "")  # only what was asked for can be missing
    assert planner("run", "specs", "--check")[0] == 1


def test_check_leaves_files_of_others_alone(home: Path, planner: Planner) -> None:
    planner("run", "specs", "--format", "md")
    (home / "reports/datapackage.json").write_text("{}", encoding="utf-8")  # of other data: ours is beside its CSV files
    (home / "reports/notes.html").write_text("", encoding="utf-8")
    assert planner("run", "specs", "--check", "--format", "md") == (0, "", "")


def test_all_errors_of_all_specs_are_reported_and_nothing_is_written(home: Path, planner: Planner) -> None:
    text = (home / "specs" / "tiny.yaml").read_text(encoding="utf-8")
    (home / "specs" / "bad.yaml").write_text(text.replace("name: tiny", "name: bad").replace("d_model", "d_modl"), encoding="utf-8")
    (home / "specs" / "worse.yaml").write_text("name: worse\nmodel: [\n", encoding="utf-8")
    code, out, err = planner("run", "specs")
    assert (code, out) == (1, "")
    assert "specs/bad.yaml:5:3: error[unknown-key]: unknown key 'd_modl' in model; did you mean 'd_model'?" in err
    assert "specs/worse.yaml:" in err
    assert "\x1b" not in err
    assert not (home / "reports").exists()


def test_a_failed_expected_value_is_reported_at_its_location_and_nothing_is_written(home: Path, planner: Planner) -> None:
    path = home / "specs" / "tiny.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("114944", "114943"), encoding="utf-8")
    code, out, err = planner("run", "specs")
    assert (code, out) == (1, "")
    message = "params_total is 114,944, expected 114,943 (1 more)"
    assert err.splitlines() == [
        f"specs/tiny.yaml:15:17: error[expect]: {message}",
        "   15 |   params_total: 114943",
        "      |                 ^",
    ]
    assert not (home / "reports").exists()


def test_with_set_expected_values_are_not_checked(home: Path, planner: Planner) -> None:
    code, out, err = planner("run", "specs", "--set", "model.n_layers=1", "--set", "training.batch_size=7")
    assert code == 0
    assert "planner: skipping expect checks because --set is given\n" in err
    assert out.splitlines()[1].split()[1:3] == ["64.96", "k"]  # 114,944 - 49,984
    assert ",7,10,bf16-autocast," in (home / "reports" / "capacity.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere.yaml"],
        ["nowhere"],
        ["nowhere/*.yaml"],
        ["empty"],
        ["specs/tiny.yaml", "nowhere.yaml"],
        ["specs", "--set", "d_model"],
        ["specs", "--set", "model.d_modl=2"],
        ["specs", "--format", "xml"],
        ["specs", "--format", ""],
        ["specs", "--outptu", "x"],
        [],
    ],
)
def test_a_failure_exits_with_2_and_a_message(home: Path, planner: Planner, arguments: list[str]) -> None:
    (home / "empty").mkdir()
    code, out, err = planner("run", *arguments)
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err
    assert not (home / "reports").exists()


def test_a_directory_that_cannot_be_created_exits_with_2(home: Path, planner: Planner) -> None:
    (home / "reports").write_bytes(b"")
    assert planner("run", "specs") == (2, "", "planner: cannot write reports: File exists; no files were changed\n")
    assert planner("run", "specs", "--output", "reports/deep")[0] == 2


def test_a_directory_in_place_of_a_report_is_an_error(home: Path, planner: Planner) -> None:
    (home / "reports" / "capacity.md").mkdir(parents=True)
    code, out, err = planner("run", "specs")
    assert (code, out) == (2, "")
    assert "Is a directory" in err
    assert names(home / "reports") == ["capacity.md"]


def test_unicode_names_and_names_like_formulas(home: Path, planner: Planner) -> None:
    text = (home / "specs" / "tiny.yaml").read_text(encoding="utf-8")
    shutil.rmtree(home / "specs")
    (home / "模型 é.yaml").write_text(text.replace("name: tiny", 'name: "=模型|🤖"'), encoding="utf-8")
    code, out, _ = planner("run", ".")
    assert code == 0
    assert "=模型|🤖" in out
    with (home / "reports" / "capacity.csv").open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["model"], row["spec"]) == ("'=模型|🤖", "模型 é.yaml")
    assert "&#61;模型&#124;🤖" in (home / "reports" / "capacity.md").read_text(encoding="utf-8")


def test_a_bug_exits_with_2_and_is_reported_as_one(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise AssertionError("two and two make five")

    monkeypatch.setattr("planner.report.files.files", bug)
    code, out, err = planner("run", "specs")
    assert (code, out) == (2, "")
    assert "two and two make five" in err
    assert err.endswith("planner: this is a bug in planner, not in the spec; please report it with the output above\n")
