"""The Python API: load, plan, plans, and the examples in the docstrings."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType

import pytest

import planner
from planner import spec as spec_room

ROOT = Path(__file__).parent.parent
TINY = "name: tiny\nmodel: {vocab_size: 200, context_length: 32, d_model: 64, n_layers: 2, n_heads: 4}\n"


@pytest.mark.parametrize("module", [planner, spec_room], ids=lambda module: str(module.__name__))
def test_docstring_examples_run(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testmod(module)
    assert tried
    assert not failed


def test_every_scenario_can_be_planned_by_name_or_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(f"{TINY}scenarios: [{{name: short, sequence_length: 4}}]\n", encoding="utf-8")
    spec = planner.load(path)
    base, short = planner.plans(spec)
    assert planner.plan(spec) == base
    assert planner.plan(spec, "short") == short
    assert (base.training.sequence_length, short.training.sequence_length) == (32, 4)
    with pytest.raises(ValueError, match="unknown scenario 'shrt' of tiny; its scenarios are base, short"):
        planner.plan(spec, "shrt")


def test_an_invalid_spec_raises_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(TINY.replace("d_model", "d_modl"), encoding="utf-8")
    with pytest.raises(spec_room.SpecError, match="did you mean 'd_model'") as caught:
        planner.load(path)
    assert caught.value.problems[0].place.line == 2
