"""Every result of serving reports whether passes of its class were measured, and how much they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner.report import serving_accuracy as module
from planner.report.serving_accuracy import COLUMNS, accuracy
from planner.spec.records import Cache, Model, Serving

ROWS = """\
llama,sdpa,dynamic,0,0,0,0,
llama,eager,dynamic,0,0,0,-4.2,
llama,sdpa,static,,,,,it does not run
"""


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Model]:
    table = tmp_path / "measured.csv"
    table.write_text(f"{','.join(COLUMNS)}\n{ROWS}", encoding="utf-8")
    monkeypatch.setattr(module, "TABLE", table)

    def of(**model: object) -> Model:
        sizes = {"vocab_size": 64, "context_length": 32, "d_model": 64, "n_layers": 2, "n_heads": 4, "model_type": "llama"}
        return planner.load({"name": "x", "model": sizes | model}).model

    return of


def test_a_measured_class(llama: Callable[..., Model]) -> None:
    its = Serving(prompt=8)
    start = "a small model of class llama was measured on a simulated A100"
    assert accuracy(llama(), its) == f"{start} (sdpa attention, dynamic cache, bf16): weights, cache, FLOPs and peaks equal"
    assert accuracy(llama(), replace(its, attention="eager", weights="fp32")) == (
        f"{start} (eager attention, dynamic cache, bf16): weights, cache and FLOPs equal, peaks 4.2 % too low"
        "; not measured with weights fp32"
    )


def test_what_was_not_measured(llama: Callable[..., Model]) -> None:
    static = Serving(prompt=8, cache=Cache("static"))
    assert accuracy(llama(), static) == "class llama was not measured with sdpa attention, static cache; it does not run"
    assert accuracy(llama(model_type="gpt2"), static) == "class gpt2 was not measured with sdpa attention, static cache"
    assert "lines of logs of engines" in accuracy(llama(), Serving(prompt=8, engine="vllm"))
