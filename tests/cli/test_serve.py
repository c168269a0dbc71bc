"""The command serve: what it prints, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import planner as api
from planner.capacity.served import Served

Planner = Callable[..., tuple[int, str, str]]


def test_serve_prints_memory_and_passes(home: Path, planner: Planner) -> None:
    settings = ("--set", "serving.prompt=16", "--set", "serving.output=4")
    code, out, err = planner("serve", "specs/tiny.yaml", *settings)
    assert (code, err) == (0, "")
    assert "cache after the prompts" in out
    code, text, _ = planner("serve", "specs/tiny.yaml", *settings, "--format", "json")
    made = json.loads(text)
    served = api.serve(home / "specs" / "tiny.yaml", prompt=16, output=4)
    assert isinstance(served, Served)
    assert (code, made["cache_bytes"], made["last"]["peak_bytes"]) == (0, served.cache_bytes, served.last.peak_bytes)


def test_json_has_the_figures_of_the_table(planner: Planner) -> None:
    settings = ("--set", "serving.prompt=16", "--set", "serving.memory=1MiB", "--format", "json")
    made = json.loads(planner("serve", "specs/tiny.yaml", *settings)[1])
    assert made["free_bytes"] == 1024 * 1024 - made["peak_bytes"]
    of_engine = json.loads(planner("serve", "specs/tiny.yaml", *settings, "--set", "serving.engine=vllm")[1])
    # The text says how many requests fit as a fraction; the table, how many whole ones.
    assert of_engine["requests"] == int(Fraction(of_engine["concurrency"]))


def test_serve_says_what_does_not_fit(planner: Planner) -> None:
    settings = ("--set", "serving.prompt=16", "--set", "serving.memory=1kB")
    code, out, _ = planner("serve", "specs/tiny.yaml", *settings)
    assert (code, "does not fit" in out) == (1, True)
    code, out, _ = planner("serve", "specs/tiny.yaml", *settings, "--set", "serving.engine=vllm")
    assert (code, "0.00 requests" in out) == (1, True)


def test_serve_reports_errors(home: Path, planner: Planner) -> None:
    assert planner("serve", "specs/tiny.yaml")[::2] == (
        2,
        "planner: serve: tiny has no section serving; write one, or add --set serving.prompt=2048\n",
    )
    share = ("--set", "serving.engine=vllm", "--set", "serving.memory_utilization=90")
    code, _, err = planner("serve", "specs/tiny.yaml", "--set", "serving.prompt=16", *share)
    assert (code, "memory_utilization '90' exceeds 1, all of the memory" in err) == (2, True)
    code, _, err = planner("serve", "specs/tiny.yaml", "--set", "serving.prompt=40")
    assert (code, "error[context]" in err) == (2, True)
    with pytest.raises(ValueError, match="has no section serving"):
        api.serve(home / "specs" / "tiny.yaml")
