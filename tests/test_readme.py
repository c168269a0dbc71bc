"""The README and docs/ show the actual output of their commands, and their specs are those of specs/."""

from __future__ import annotations

import doctest
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


def blocks(language: str, *pages: Path) -> list[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages or PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a writable folder with a copy of specs/."""
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_pages_show_the_output_of_their_commands() -> None:
    run = subprocess.run([sys.executable, ROOT / "tools" / "readme.py", "--check"], capture_output=True, encoding="utf-8", check=False)
    assert run.returncode == 0, f"{run.stderr}\nrun `make readme` and look at what changed"


def test_the_notebook_shows_the_output_of_its_cells() -> None:
    run = subprocess.run([sys.executable, ROOT / "tools" / "notebook.py", "--check"], capture_output=True, encoding="utf-8", check=False)
    assert run.returncode == 0, f"{run.stderr}\nrun `make readme` and look at what changed"


def test_the_python_session_runs_as_shown(elsewhere: Path) -> None:
    session = "\n".join(blocks("pycon", ROOT / "README.md"))
    test = doctest.DocTestParser().get_doctest(session, {}, "README.md", "README.md", 0)
    assert test.examples
    assert (elsewhere / "specs").is_dir()
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_the_docstring_of_the_package_runs(elsewhere: Path) -> None:
    import planner

    assert (elsewhere / "specs").is_dir()
    results = doctest.testmod(planner)
    assert (results.failed, results.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    "block", [block for block in blocks("yaml") if block.startswith("# yaml-language-server")], ids=lambda block: block.splitlines()[1]
)
def test_a_spec_on_a_page_is_one_of_the_examples(block: str) -> None:
    assert block in {path.read_text(encoding="utf-8") for path in (ROOT / "specs").glob("*.yaml")}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_a_link_points_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
