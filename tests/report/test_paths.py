from __future__ import annotations

from pathlib import Path

import pytest

from planner.report.paths import display_path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_spec_has_the_same_path_in_every_notation(home: Path) -> None:
    for given in ("specs/a.yaml", "./specs/a.yaml", "specs//x/../a.yaml", str(home / "specs" / "a.yaml")):
        assert display_path(given) == "specs/a.yaml"


def test_directories_outside_the_current_one_are_not_shown(home: Path) -> None:
    assert display_path("../other/b.yaml") == "b.yaml"
    assert display_path(str(home.parent / "other" / "b.yaml")) == "b.yaml"
    assert display_path("..hidden.yaml") == "..hidden.yaml"


def test_standard_input_and_odd_names() -> None:
    assert display_path("<stdin>") == "<stdin>"
    assert display_path("模型 é.yaml") == "模型 é.yaml"
    assert display_path("bad\udcff.yaml") == r"bad\xff.yaml"  # a byte that is not UTF-8, as in Python's file names
