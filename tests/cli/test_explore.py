from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import pytest

from planner.cli import progress
from planner.cli.commands import COMMANDS

Planner = Callable[..., tuple[int, str, str]]
SHELLS = ("bash", "zsh", "fish")


def test_sweep_writes_csv_a_pivot_and_a_chart(home: Path, planner: Planner) -> None:
    code, out, err = planner("sweep", "specs/tiny.yaml", "--set", "model.n_layers=1..3", "--set", "training.batch_size=1,2")
    assert (code, err) == (0, "planner: wrote reports/sweep.csv, reports/sweep.md, reports/sweep.svg\n")
    with (home / "reports" / "sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["n_layers"], row["batch_size"], row["sequence_length"]) for row in rows] == [
        (n, B, "10") for n in ("1", "2", "3") for B in ("1", "2")
    ]
    assert [row["params_total"] for row in rows[::2]] == ["64960", "114944", "164928"]  # 49,984 a layer
    assert out.splitlines()[2].split() == ["n_layers", "B", "=", "1", "B", "=", "2"]


def test_sweep_reports_errors_and_writes_nothing(home: Path, planner: Planner) -> None:
    assert planner("sweep", "specs/tiny.yaml", "--set", "training.batch_size=3..1")[0] == 2
    assert (
        planner("sweep", "specs/tiny.yaml", "--set", "training.sequence_length=1..33")[0] == 2
    )  # the learned position embedding has 32 rows
    assert planner("sweep", "nowhere.yaml", "--set", "training.batch_size=1")[0] == 2
    code, _, err = planner("sweep", "specs/tiny.yaml", "--set", "model.n_heads=4,5")
    assert (code, "n_heads" in err) == (2, True)  # an error in the command line
    assert planner("sweep", "specs/tiny.yaml", "--set", "training.batch_size=1", "--figure", "peak")[2].startswith(
        "planner: sweep: unknown metric 'peak'; choose from params_total"
    )
    assert not (home / "reports").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO) -> list[float]:
    """Return a clock to set, and make a stream the standard error."""
    now = [100.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(sys, "stderr", stderr)
    return now


def test_progress_appears_on_a_terminal_after_a_second_and_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    clock = at(monkeypatch, terminal := Terminal())
    with progress.Progress() as bar:
        bar(1, 8, "points")
        assert terminal.getvalue() == ""
        clock[0] += 1.5
        bar(2, 8, "points")
        assert terminal.getvalue() == f"\r\x1b[K[{'#' * 7}{' ' * 23}] 2 of 8 points"
        bar(3, 8, "points")  # within a tenth of a second
        bar.step("making capacity.html")
        assert terminal.getvalue().endswith("2 of 8 points\r\x1b[Kmaking capacity.html")
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("ci", "stderr"), [("true", Terminal()), ("", io.StringIO())])
def test_progress_is_silent_in_ci_and_without_a_terminal(monkeypatch: pytest.MonkeyPatch, ci: str, stderr: io.StringIO) -> None:
    monkeypatch.setenv("CI", ci)
    clock = at(monkeypatch, stderr)
    with progress.Progress() as bar:
        clock[0] += 10
        bar(1, 8)
        bar.step("making capacity.html")
        assert list(bar.of("ab", "letters")) == ["a", "b"]
    assert stderr.getvalue() == ""


def test_fit_finds_nothing_if_the_weights_do_not_fit(planner: Planner) -> None:
    # 114,944 parameters take 4 + 4 + 8 bytes each under autocast: 1.8 MB
    assert planner("fit", "specs/tiny.yaml", "--memory", "1MB", "--for", "batch_size")[0] == 1
    code, out, _ = planner("fit", "specs/tiny.yaml", "--memory", "1GiB", "--format", "json")
    assert code == 0
    made = json.loads(out)
    assert made["memory_bytes"] == 2**30
    assert {one["setting"]: one["now"] for one in made["fits"]} == {"batch_size": 3, "sequence_length": 10, "n_layers": 2, "d_model": 64}
    assert planner("fit", "specs/tiny.yaml", "--memory", "much")[::2] == (
        2,
        "planner: fit: invalid value 'much' for --memory; use a number and a unit, for example 80GB, 40GiB\n",
    )
    assert planner("fit", "specs/tiny.yaml", "--memory", "80")[::2] == (
        2,
        "planner: fit: invalid value '80' for --memory; use a number and a unit, for example 80GB, 40GiB\n",
    )


def test_compare_accepts_scenarios(planner: Planner) -> None:
    code, out, _ = planner("compare", "specs/tiny.yaml")
    assert code == 0
    assert out.splitlines()[0].split() == ["tiny", "tiny", "·", "short"]
    assert planner("compare", "specs/tiny.yaml", "--scenario", "long")[0] == 2


def test_size_suggests_model_configurations(planner: Planner) -> None:
    code, out, _ = planner("size", "--params", "7e9", "--like", "llama")
    assert code == 0
    assert out.splitlines()[0].split()[:3] == ["d_model", "layers", "heads"]
    assert planner("size", "--params", "7e9", "--like", "lama-2")[0] == 2
    assert planner("size", "--like", "llama")[0] == 2


def test_every_command_that_reads_specs_can_print_json(planner: Planner) -> None:
    assert json.loads(planner("validate", "specs", "--format", "json")[1]) == {"valid": ["specs/tiny.yaml"], "problems": []}
    code, out, err = planner("validate", "nowhere.yaml", "--format", "json")
    assert (code, err, json.loads(out)["problems"][0]["code"]) == (2, "", "not-found")
    (shown,) = json.loads(planner("show", "specs/tiny.yaml", "--scenario", "short", "--format", "json", "--explain")[1])
    assert (shown["figures"]["params_total"], shown["figures"]["scenario"]) == (114_944, "short")
    assert {"figure": "params_total", "value": 114_944}.items() <= next(
        one for one in shown["explained"] if one["figure"] == "params_total"
    ).items()
    assert "explained" not in json.loads(planner("show", "specs/tiny.yaml", "--format", "json")[1])[0]
    found = json.loads(planner("list", "gpt2-xl", "--format", "json")[1])
    assert found[0]["params_total"] == 1_557_611_200  # Hugging Face's count
    candidate = json.loads(planner("compare", "specs", "--format", "json")[1])["candidates"][0]
    assert (candidate["model"], candidate["scenario"]) == ("tiny", "base")
    assert json.loads(planner("size", "--params", "1e9", "--format", "json")[1])[0]["head_dim"] == 128
    swept = json.loads(planner("sweep", "specs/tiny.yaml", "--set", "training.batch_size=1,2", "--format", "json")[1])
    assert [row[0] for row in swept["rows"]] == [1, 2]


def test_schema_csv_prints_the_data_package(home: Path, planner: Planner) -> None:
    planner("run", "specs", "--format", "csv")
    assert planner("schema", "csv")[1] == (home / "reports" / "datapackage.json").read_text(encoding="utf-8")


def test_a_missing_xlsxwriter_is_a_clear_error(home: Path, planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    find = util.find_spec
    monkeypatch.setattr("planner.report.workbook.find_spec", lambda name: None if name == "xlsxwriter" else find(name))
    assert planner("run", "specs", "--format", "xlsx") == (
        2,
        "",
        "planner: run: a workbook needs XlsxWriter: pip install xlsxwriter\n",
    )
    assert not (home / "reports").exists()


def test_a_workbook_is_written_and_checked(home: Path, planner: Planner) -> None:
    assert planner("run", "specs", "--format", "xlsx")[::2] == (0, "planner: wrote reports/capacity.xlsx\n")
    assert planner("run", "specs", "--format", "xlsx", "--check")[0] == 0
    spec = home / "specs" / "tiny.yaml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("batch_size: 3", "batch_size: 4"), encoding="utf-8")
    assert planner("run", "specs", "--format", "xlsx", "--check")[0] == 1


def completed(script: str, *words: str) -> list[str]:
    """Return bash's completions of the last word."""
    line = " ".join(f"'{word}'" for word in words)
    ask = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _planner; printf "%s\\n" "${{COMPREPLY[@]}}"'
    made = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert made.stderr == ""
    return made.stdout.split()


def test_bash_completes_commands_options_and_choices(planner: Planner) -> None:
    script = planner("completion", "bash")[1]
    assert completed(script, "planner", "s") == ["show", "sweep", "serve", "size", "schema"]
    assert completed(script, "planner", "fit", "--m") == ["--memory"]
    assert completed(script, "planner", "fit", "--for", "n") == ["n_layers"]
    assert set(SHELLS) <= set(completed(script, "planner", "completion", ""))
    assert completed(script, "planner", "run", "nosuch") == []  # so that bash completes files
    assert completed(script, "planner", "run", "") == []


def test_bash_completes_settings_models_and_scenarios(home: Path, planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    script = planner("completion", "bash")[1]
    assert completed(script, "planner", "fit", "specs/tiny.yaml", "--set", "training.batch") == ["training.batch_size="]
    assert completed(script, "planner", "size", "--like", "llama-3-") == ["llama-3-70b", "llama-3-8b"]
    (home / "llama-3-8b-long.yaml").touch()
    assert completed(script, "planner", "show", "llama-3-8b") == ["llama-3-8b", "llama-3-8b-long.yaml"]
    (home / "planner").write_text(f'#!/bin/sh\nexec {sys.executable} -m planner "$@"\n', encoding="utf-8")
    (home / "planner").chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert completed(script, "./planner", "show", "specs/tiny.yaml", "--scenario", "") == ["base", "short"]
    assert completed(script, "./planner", "show", "--kept", "specs/tiny.yaml", "--scenario", "s") == ["short"]


def test_the_scenarios_of_a_command_line_are_those_of_its_specs(planner: Planner) -> None:
    assert planner("completion", "--scenarios", "nosuch.yaml", "--kept", "-", "specs/tiny.yaml", "") == (0, "base\nshort\n", "")
    assert planner("completion")[0] == 2


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command(planner: Planner, shell: str) -> None:
    code, out, err = planner("completion", shell)
    assert (code, err) == (0, "")
    assert not [command for command in COMMANDS if command not in out]


@pytest.mark.skipif(shutil.which("fish") is None, reason="completion in fish: needs fish")
def test_fish_completes_choices(home: Path, planner: Planner) -> None:
    (home / "planner.fish").write_text(planner("completion", "fish")[1], encoding="utf-8")

    def offered(line: str) -> list[str]:
        command = ["fish", "-c", f"source planner.fish; complete -C '{line}'"]
        made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=home)
        return sorted(line.split()[0] for line in made.stdout.splitlines())

    assert offered("planner fit --for ") == ["adapters.rank", "batch_size", "d_model", "n_layers", "sequence_length"]
    assert offered("planner fit a.yaml --set training.batch") == ["training.batch_size="]
    assert offered("planner size --like llama-3-") == ["llama-3-70b", "llama-3-8b"]
    assert offered("planner show gpt2-x") == ["gpt2-xl"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="completion in zsh: needs zsh")
def test_zsh_accepts_the_script(home: Path, planner: Planner) -> None:
    (home / "planner.zsh").write_text(planner("completion", "zsh")[1], encoding="utf-8")
    command = ["zsh", "-fc", "autoload -Uz compinit; compinit -D; source ./planner.zsh; echo $_comps[planner]"]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=home)
    assert (made.stdout.strip(), made.stderr) == ("_bash_complete -o default -F _planner", "")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="completion in zsh: needs zsh")
def test_zsh_completes_on_a_terminal(home: Path, planner: Planner) -> None:
    (home / "planner.zsh").write_text(planner("completion", "zsh")[1], encoding="utf-8")
    typed = "planner size --like xlst\t"
    script = f"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PROMPT=; autoload -Uz compinit; compinit -D; source ./planner.zsh; echo REA""DY'
zpty -r -m z out '*READY*'
zpty -w -n z $'{typed}'
zpty -r -m z out '*xlstm-7b*' && echo completed
"""
    made = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, check=False, cwd=home, timeout=120)
    assert made.stdout == "completed\n", made.stderr
