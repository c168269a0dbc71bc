"""A working directory, and short functions that read specs from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planner import spec

MINIMAL = """\
name: small
model:
  vocab_size: 100
  context_length: 64
  d_model: 48
  n_layers: 2
  n_heads: 4
"""

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def minimal() -> str:
    return MINIMAL


@pytest.fixture
def write(folder: Path) -> Write:
    def write(text: str | bytes, file: str = "x.yaml") -> Path:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return Path(file)

    return write


@pytest.fixture
def rendered(write: Write) -> Callable[..., str]:
    """Read one text as x.yaml and return its errors as the user sees them."""

    def rendered(text: str | bytes, *overrides: str) -> str:
        specs, problems = spec.read([write(text)], overrides)
        assert bool(specs) != bool(problems)
        return spec.render(problems)

    return rendered


@pytest.fixture
def heads(rendered: Callable[..., str]) -> Callable[..., list[str]]:
    """Return only the first line of each error."""

    def heads(text: str | bytes, *overrides: str) -> list[str]:
        return [line for line in rendered(text, *overrides).splitlines() if " | " not in line]

    return heads


@pytest.fixture
def small(write: Write) -> Callable[..., spec.Spec]:
    """Load the minimal spec with further lines under ``model:`` (indented by the test) and sections after it."""

    def small(more: str = "") -> spec.Spec:
        return spec.load(write(MINIMAL + more))

    return small
