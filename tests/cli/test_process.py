"""Behavior that needs a separate process: imports, pipes, signals, encodings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HEAVY = {"jsonschema", "numpy", "pandas", "torch", "transformers", "yaml"}


def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ("'--version'", set()),
        ("'validate', 'specs/tiny.yaml'", {"jsonschema", "yaml"}),
        ("'run', 'specs/tiny.yaml'", {"jsonschema", "yaml"}),
        ("'show', 'specs/tiny.yaml', '--explain'", {"jsonschema", "yaml"}),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_command_imports_only_what_it_needs(arguments: str, allowed: set[str]) -> None:
    code = f"import sys; from planner.cli import main; assert main([{arguments}]) == 0; print(*sys.modules)"
    result = run("-c", code)
    assert result.returncode == 0, result.stderr
    assert HEAVY & set(result.stdout.splitlines()[-1].split()) <= allowed


def test_import_planner_imports_no_slow_packages() -> None:
    result = run("-c", "import sys, planner; print(*sys.modules)")
    assert not HEAVY & set(result.stdout.split())
    assert "planner.spec" not in result.stdout.split()


@pytest.mark.usefixtures("home")
def test_the_package_runs_as_a_module_and_reads_standard_input() -> None:
    text = Path("specs/tiny.yaml").read_text(encoding="utf-8")
    result = run("-m", "planner", "run", "-", stdin=text)
    assert result.returncode == 0, result.stderr
    assert Path("reports/capacity.csv").read_text(encoding="utf-8").splitlines()[1].startswith("tiny,base,<stdin>,114944,")


@pytest.mark.parametrize("arguments", [["run", "specs"], ["schema"], ["show", "specs/tiny.yaml"]])
@pytest.mark.usefixtures("home")
def test_a_closed_pipe_is_not_an_error(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)  # no reader
    with os.fdopen(write) as closed:
        process = subprocess.run(
            [sys.executable, "-m", "planner", *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=False,
        )
    assert process.returncode == 141
    assert "Error" not in process.stderr
    if arguments[0] == "run":
        assert Path("reports/capacity.csv").exists()  # written before the table is printed


@pytest.mark.usefixtures("home")
def test_an_interrupt_prints_nothing_and_writes_no_report() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", "run", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin
    process.stdin.write(b"#" * 200_000)  # more than a pipe holds: once this returns, the command is reading
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert not Path("reports").exists()


@pytest.mark.usefixtures("home")
def test_closed_streams_are_not_an_error() -> None:
    command = f"{sys.executable} -m planner run specs"
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        result = subprocess.run(
            ["sh", "-c", f"{command} {closed}"], capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
        )
        assert result.returncode == 0


@pytest.mark.parametrize(("environment", "color"), [({}, True), ({"NO_COLOR": "1"}, False)])
@pytest.mark.usefixtures("home")
def test_terminals_get_color_unless_no_color_is_set(environment: dict[str, str], color: bool) -> None:
    ours, theirs = os.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with os.fdopen(ours, "rb", buffering=0) as terminal, os.fdopen(theirs, "wb") as its_end:
        result = subprocess.run(
            [sys.executable, "-m", "planner", "run", "specs"],
            stdout=its_end,
            stderr=subprocess.PIPE,
            env=inherited | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | environment,
            check=False,
        )
        shown = terminal.read(100)
    assert result.returncode == 0, result.stderr
    assert (b"\x1b[1mmodel" in shown) == color
    assert b"model" in shown


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk: needs /dev/full")
@pytest.mark.usefixtures("home")
def test_a_full_disk_behind_standard_output_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "planner", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=False,
        )
    assert process.returncode == 2
    assert "No space left on device" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.usefixtures("home")
def test_the_table_is_printed_on_a_terminal_without_unicode() -> None:
    result = run("-m", "planner", "show", "specs/tiny.yaml", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 0, result.stderr
    assert "\\u251c\\u2500 embedding" in result.stdout


@pytest.mark.usefixtures("home")
def test_without_docstrings_commands_run_and_help_says_why_it_is_empty() -> None:
    every_help = "from planner.cli import commands, main; raise SystemExit(any([main([name, '--help']) for name in commands.COMMANDS]))"
    for arguments in (("-m", "planner", "--help"), ("-c", every_help), ("-m", "planner", "show", "specs/tiny.yaml", "--explain")):
        result = run("-OO", *arguments)
        assert (result.returncode, result.stderr) == (0, "")
        assert "o description: python -OO removes docstrings" in " ".join(result.stdout.split())
