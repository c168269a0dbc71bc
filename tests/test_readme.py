"""What the README shows is what comes out: its commands, its Python session and the spec that it prints."""

from __future__ import annotations

import doctest
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


def test_the_commands_print_what_the_readme_shows() -> None:
    run = subprocess.run([sys.executable, ROOT / "tools" / "readme.py", "--check"], capture_output=True, encoding="utf-8", check=False)
    assert run.returncode == 0, f"{run.stderr}\nrun `make readme` and look at what changed"


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
