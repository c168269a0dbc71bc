"""A skipped test fails the run under CI; elsewhere the last line lists it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SKIPS = """
import pytest

@pytest.mark.skip(reason="one program: not installed")
def test_one() -> None: pass

@pytest.mark.skip(reason="one program: not installed")
def test_another() -> None: pass

@pytest.mark.xfail
def test_known() -> None: assert False

def test_good() -> None: pass
"""
FILE_SKIPS = 'import pytest\npytest.skip("another program: not installed", allow_module_level=True)\n'


def pytest_run(folder: Path, ci: str | None, *tests: str, options: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Run pytest on files with these tests; return its exit code and its last lines."""
    for number, text in enumerate(tests):
        (folder / f"test_{number}.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # not the repository's settings
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | ({} if ci is None else {"CI": ci})
    command = [sys.executable, "-m", "pytest", "-p", "tests.untried", "-p", "no:cacheprovider", *options, "."]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout.splitlines()


def test_the_suite_uses_the_plugin(pytestconfig: pytest.Config) -> None:
    assert any(type(plugin).__name__ == "Untried" for plugin in pytestconfig.pluginmanager.get_plugins())


@pytest.mark.parametrize("ci", [None, "false"])
def test_elsewhere_the_last_line_lists_each_reason_once(tmp_path: Path, ci: str | None) -> None:
    code, lines = pytest_run(tmp_path, ci, SKIPS, FILE_SKIPS)
    assert code == 0
    assert lines[-1] == "not tried here: another program: not installed; one program: not installed"


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "--numprocesses", "2")], ids=["one process", "two processes"])
def test_under_ci_skipped_tests_fail_the_run_and_are_listed(tmp_path: Path, options: Sequence[str]) -> None:
    code, lines = pytest_run(tmp_path, "true", SKIPS, FILE_SKIPS, options=options)
    assert code == 1
    assert sorted(lines[-4:-1]) == [  # two processes finish in any order
        "SKIPPED test_0.py::test_another: one program: not installed",
        "SKIPPED test_0.py::test_one: one program: not installed",
        "SKIPPED test_1.py: another program: not installed",
    ]
    assert lines[-1] == "FAILED: a skipped test is a failure where CI is set"


def test_without_skipped_tests_nothing_is_added(tmp_path: Path) -> None:
    code, lines = pytest_run(tmp_path, "true", "def test_good() -> None: pass\n")
    assert code == 0
    assert "1 passed" in lines[-1]
