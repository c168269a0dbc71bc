"""What the README shows is what comes out: its console blocks, its Python session and the spec that it prints."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder that holds the catalogue and may be written to."""
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command_and_output(block: str) -> tuple[str, list[str]]:
    """Split a block after its command, or after the here-document that the command reads."""
    first, *rest = block.removeprefix("$ ").splitlines()
    here = re.search(r"<<'(\w+)'", first)
    split = rest.index(here[1]) + 1 if here else 0
    return "\n".join([first, *rest[:split]]), rest[split:]


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.splitlines()[0])
def test_a_command_prints_what_the_readme_shows(block: str, elsewhere: Path) -> None:
    command, shown = command_and_output(block)
    environment = os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    script = f'planner() {{ "$PYTHON" -m planner "$@"; }}\n{command}'
    run = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, encoding="utf-8", cwd=elsewhere, env=environment, check=False
    )
    printed = (run.stderr if run.returncode else run.stdout).splitlines()
    assert shown
    for line in (line for line in shown if line != "…"):  # … stands for lines left out; what is shown keeps its order
        assert line in printed
        printed = printed[printed.index(line) + 1 :]


def test_the_python_session_runs_as_shown(elsewhere: Path) -> None:
    (session,) = blocks("pycon")
    test = doctest.DocTestParser().get_doctest(session, {}, "README.md", "README.md", 0)
    assert test.examples
    assert (elsewhere / "specs").is_dir()
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_the_docstring_of_the_package_runs(elsewhere: Path) -> None:
    import planner

    assert (elsewhere / "specs").is_dir()
    results = doctest.testmod(planner)
    assert (results.failed, results.attempted > 0) == (0, True)


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.splitlines()[1])
def test_a_spec_in_the_readme_is_one_of_the_catalogue(block: str) -> None:
    assert block in {path.read_text(encoding="utf-8") for path in (ROOT / "specs").glob("*.yaml")}


def test_the_readme_counts_the_catalogue() -> None:
    assert f"holds {len(list((ROOT / 'specs').glob('*.yaml')))} models" in README
