from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planner.cli import main

# V·d + L·d + N·(12·d² + 13·d) + 2·d for V 200, L 32, d 64, 2 layers: 12,800 + 2,048 + 2·49,984 + 128 = 114,944
TINY = """\
name: tiny
model:
  vocab_size: 200
  context_length: 32
  d_model: 64
  n_layers: 2
  n_heads: 4
training:
  batch_size: 3
  sequence_length: 10
  tokens: 1e6
scenarios:
  - {name: short, sequence_length: 5}
expect:
  params_total: 114944
"""
TINY_PARAMS = 114_944

Planner = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with one valid spec."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "tiny.yaml").write_text(TINY, encoding="utf-8")
    return tmp_path


@pytest.fixture
def planner(home: Path, capsys: pytest.CaptureFixture[str]) -> Planner:  # noqa: ARG001 - the command runs in it
    """Run the command in this process; return exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return (code, *capsys.readouterr())

    return run
