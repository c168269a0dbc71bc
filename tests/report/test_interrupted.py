"""Reports after outside failures: a full disk, a killed run, two concurrent runs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
Both = tuple[dict[str, bytes], dict[str, bytes]]
SPEC = "name: {name}\nmodel: {{vocab_size: 200, context_length: 32, d_model: 64, n_layers: {layers}, n_heads: 4}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return with_specs(tmp_path)


def with_specs(tmp_path: Path) -> Path:
    for name, layers in (("one", 1), ("two", 2)):
        path = tmp_path / name
        path.mkdir()
        for number in range(40):
            (path / f"{number}.yaml").write_text(SPEC.format(name=f"m{number}", layers=layers), encoding="utf-8")
    return tmp_path


def start(folder: Path, specs: str, preexec: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "planner", "run", specs, "--format", "csv,md,json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(  # the limit applies to the child only
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=preexec,  # noqa: PLW1509
    )


def finish(run: subprocess.Popen[str]) -> int:
    run.communicate()
    return run.returncode


def reports(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "reports").iterdir()}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Return the reports of each folder of specs."""
    made = []
    for specs in ("one", "two"):
        folder = with_specs(tmp_path_factory.mktemp("reports"))
        assert finish(start(folder, specs)) == 0
        made.append(reports(folder))
    assert made[0].keys() == made[1].keys()
    return made[0], made[1]


def restore(folder: Path, made: dict[str, bytes]) -> None:
    (folder / "reports").mkdir(exist_ok=True)
    for name, content in made.items():
        (folder / "reports" / name).write_bytes(content)


def test_a_full_disk_leaves_the_old_reports_intact(folder: Path, both: Both) -> None:
    before, _ = both
    restore(folder, before)

    def nearly_full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # file size: the CSV fits, the JSON does not

    run = start(folder, "two", nearly_full)
    _, errors = run.communicate()
    assert run.returncode == 2
    assert "cannot write reports: File too large; no files were changed" in errors
    assert reports(folder) == before


def test_an_interrupted_run_leaves_all_old_or_all_new_reports(folder: Path, both: Both) -> None:
    for delay in (0.2, 0.25, 0.3, 0.35, 0.4):
        restore(folder, both[0])
        run = start(folder, "two")
        time.sleep(delay)
        run.send_signal(signal.SIGINT)
        run.communicate()
        assert reports(folder) in both


SIGNALLED = """\
import os, sys
from pathlib import Path
from planner.cli import main
replace, names = Path.replace, []
def signalled(path, target):
    names.append(path)
    if len(names) == 3:
        os.kill(os.getpid(), int(sys.argv[1]))
    return replace(path, target)
Path.replace = signalled
sys.exit(main(["run", "two", "--format", "csv,md,json"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_between_two_files_restores_the_old_reports(folder: Path, both: Both, number: signal.Signals) -> None:
    restore(folder, both[0])
    command = [sys.executable, "-c", SIGNALLED, str(int(number))]
    assert subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False).returncode == 128 + number
    assert reports(folder) == both[0]


def test_concurrent_runs_do_not_mix(folder: Path, both: Both) -> None:
    for _ in range(2):
        runs = [start(folder, specs) for specs in ("one", "two", "one", "two")]
        assert [finish(run) for run in runs] == [0, 0, 0, 0]
        assert reports(folder) in both
