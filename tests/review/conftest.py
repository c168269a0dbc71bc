"""Real git repositories, each made in the test that uses it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main

from .stand_in import StandIn, serving

# V·d + L·d + N·(12·d² + 13·d) + 2·d for V 200, L 32, d 64, N layers: 12,800 + 2,048 + N·49,984 + 128, which is 114,944 for 2 layers
TINY = """\
name: {name}
model:
  vocab_size: 200
  context_length: 32
  d_model: 64
  n_layers: 2
  n_heads: 4
training:
  batch_size: 3
  sequence_length: 10
  precision: fp32
"""
TINY_PARAMS = 114_944
LAYER_PARAMS = 49_984

Review = dict[str, Any]


@pytest.fixture(autouse=True)
def nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolate git from the settings of the machine and the user."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "GITHUB_", "MODELPLAN_"))]:
        monkeypatch.delenv(name)
    settings = tmp_path / "gitconfig"
    settings.write_text("[user]\n\tname = a\n\temail = a@example.org\n[init]\n\tdefaultBranch = main\n", encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("NO_COLOR", "1")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def spec(name: str = "tiny", **changes: str) -> str:
    """Return the tiny spec with some settings changed, e.g. ``n_layers="3"``."""
    text = TINY.format(name=name)
    for key, value in changes.items():
        old = next(line for line in text.splitlines() if line.strip().startswith(f"{key}:"))
        text = text.replace(old, f"{old.split(':')[0]}: {value}")
    return text


def unlike(name: str) -> str:
    """Return a spec that shares few settings with the tiny one, of 300·128 + 64·128 + 2·(12·128² + 13·128) + 256 parameters."""
    return spec(name, vocab_size="300", context_length="64", d_model="128", n_heads="8", batch_size="1")


UNLIKE_PARAMS = 443_392


@dataclass
class Repo:
    """A repository with a branch main that has ``specs/tiny.yaml``, and a command that runs in it."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def write(self, text: str, file: str = "specs/tiny.yaml") -> Path:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def commit(self) -> str:
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--message", "a change")
        return git(self.root, "rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments)

    def run(self, *arguments: str, folder: Path | None = None) -> tuple[int, str, str]:
        """Run the command; return exit code, standard output and standard error."""
        self.monkeypatch.chdir(folder or self.root)
        self.capsys.readouterr()
        code = main(arguments)
        return (code, *self.capsys.readouterr())

    def review(self, *arguments: str, folder: Path | None = None) -> Review:
        """Return the review from JSON, for any exit code."""
        code, out, err = self.run("diff", "--format", "json", *arguments, folder=folder)
        assert code in (0, 1), err
        review: Review = json.loads(out)
        return review

    def states(self, *arguments: str) -> dict[str, str]:
        return {model["name"]: model["status"] for model in self.review(*arguments)["models"]}


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Run a stand-in for the APIs of forges, which no proxy hides."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        yield server


MakeRepo = Callable[..., Repo]


@pytest.fixture
def make_repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> MakeRepo:
    def make(name: str = "repo") -> Repo:
        root = tmp_path / name
        root.mkdir(parents=True)
        git(root, "init", "--quiet", "--initial-branch", "main")
        return Repo(root, monkeypatch, capsys)

    return make


@pytest.fixture
def repo(make_repo: MakeRepo) -> Repo:
    """Make a repository whose branch main has one spec, and check out a branch off it."""
    made = make_repo()
    made.write(spec())
    made.commit()
    made.git("checkout", "--quiet", "-b", "change")
    return made


def figures(review: Review, name: str = "tiny", scenario: str = "base") -> dict[str, Any]:
    """Return the changes of a model's scenario per metric."""
    model = next(model for model in review["models"] if model["name"] == name)
    row = next(row for row in model["rows"] if row["scenario"] == scenario)
    return {change["figure"]: change for change in row["changes"]}
