"""The edits between any two specs turn one into the other, and their contributions add up to the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.report.columns import FIGURES
from planner.review import policy
from planner.review.attribution import attribute, changes, figures, same
from planner.spec import read
from planner.spec.edits import differences, edited
from planner.spec.records import Spec

from .test_policy import WRONG

SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "n_kv_heads": st.sampled_from([1, 2, 4]),
    "head_dim": st.sampled_from([8, 16]),
    "d_ff": st.sampled_from([100, 256]),
    "attention": st.sampled_from([{"bias": False}, {"bias": {"o": False}}, {"qkv": "separate"}, {"bias": True, "qk_norm": "head_dim"}]),
    "feed_forward": st.sampled_from([{"type": "plain"}, {"bias": False}, {"type": "gated"}, {"bias": {"up": False}, "activation": "relu"}]),
    "norm": st.sampled_from([{"type": "rmsnorm"}, {"bias": False}, {"placement": "after"}]),
    "positions": st.sampled_from(["rope", "alibi", "none", {"type": "learned", "offset": 2}, {"type": "rope", "rotary_dim": 8}]),
    "head": st.sampled_from([{"tied": False}, {"bias": True}]),
}
TRAINING: dict[str, st.SearchStrategy[Any]] = {
    "batch_size": st.integers(1, 4),
    "sequence_length": st.sampled_from([1, 7, 32]),
    "precision": st.sampled_from(["fp32", "bf16-autocast", "bf16-master", "bf16"]),
    "optimizer": st.sampled_from(["adamw", "sgd", "adafactor"]),
    "recompute": st.sampled_from(["none", "full"]),
    "dropout": st.sampled_from([0, 0.1]),
}
LAYERS = st.one_of(
    st.integers(1, 4).map(lambda n: {"n_layers": n}),
    st.lists(st.fixed_dictionaries({"count": st.integers(1, 3)}, optional={"d_ff": st.just(64)}), min_size=1, max_size=3).map(
        lambda runs: {"layers": runs}
    ),
)
MODELS = st.builds(
    lambda layers, sizes, rest: {"vocab_size": 100, "context_length": 32, **layers, **sizes, **rest},
    LAYERS,
    st.sampled_from([{"d_model": 64, "n_heads": 4}, {"d_model": 48, "n_heads": 4}, {"d_model": 66, "n_heads": 6}]),
    st.fixed_dictionaries({}, optional=SETTINGS),
)
SCENARIOS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "c"])}, optional=TRAINING), max_size=3, unique_by=lambda one: one["name"]
)
SPECS = st.fixed_dictionaries(
    {"name": st.just("m"), "model": MODELS, "training": st.fixed_dictionaries({}, optional=TRAINING), "scenarios": SCENARIOS}
)


def load(folder: Path, text: str, name: str) -> Spec | None:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    found, _ = read([path])
    return found[0] if found else None


@settings(max_examples=60)
@given(one=SPECS, other=SPECS)
def test_edits_are_complete_and_their_contributions_add_up(tmp_path: Path, one: dict[str, Any], other: dict[str, Any]) -> None:
    base, head = load(tmp_path, json.dumps(one), "base"), load(tmp_path, json.dumps(other), "head")  # JSON is YAML
    if base is None or head is None or base.written is None or head.written is None:
        return
    made = edited(base, differences(base.written, head.written))
    assert made is not None
    assert same(made, head)

    shared = {one.name for one in base.scenarios} & {one.name for one in head.scenarios}
    before, after = figures(base, shared), figures(head, shared)
    moved = attribute(base, head, shared, str)
    for scenario in shared:
        for change in changes(before[scenario], after[scenario], scenario, moved):
            assert change.figure in FIGURES
            if change.before is not None and change.after is not None:
                assert sum(move.by for move in change.moves) + change.together == change.after - change.before
                assert all(0 <= index < len(moved.edits) for move in change.moves for index in move.edits)


@settings(max_examples=200)
@given(data=st.data())
def test_any_policy_is_read_or_reported(tmp_path: Path, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([text for text, _ in WRONG]))
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    path = tmp_path / "planner.yaml"
    path.write_bytes(damaged.encode("utf-8", "replace"))
    read_, problems = policy.read(path, "planner.yaml")
    assert not problems or read_ == policy.Policy()
    assert all(problem.place.file == "planner.yaml" for problem in problems)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b"\x00", b"a" * 2**21, b"&a [*a]\n", b"- " * 5000])
def test_a_hostile_policy_is_reported(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "planner.yaml"
    path.write_bytes(data)
    _, problems = policy.read(path, "planner.yaml")
    assert problems
    assert {problem.place.file for problem in problems} == {"planner.yaml"}
