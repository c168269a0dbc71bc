"""planner.yaml: its keys, errors like those in specs, and amounts with units."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from planner.report import quantity
from planner.report.columns import FIGURES
from planner.review import policy
from planner.spec.language import schema
from planner.spec.problems import render

from .conftest import Repo, spec

WRONG = [
    ("budgets: [{name: a, figure: peak_bytes, max: 80GB}\n", "2:1: error[yaml]: a list or mapping in brackets is not closed"),
    ("budget: []\n", "1:1: error[unknown-key]: unknown key 'budget'; did you mean 'budgets'?"),
    ("- a\n", "1:1: error[type]: planner.yaml must be a mapping, not a list; start with budgets:"),
    (
        "budgets: [{figure: peak_bytes, max: 80GB}]\n",
        "1:11: error[missing-key]: missing required key 'name' in budgets[0]; for example name: one-gpu",
    ),
    (
        "budgets: [{name: a, figure: peak_bytes}]\n",
        "1:11: error[missing-key]: missing required key 'max' or 'min' or 'max_increase' in budgets[0]",
    ),
    ("budgets: [{name: a, figure: peak, max: 1}]\n", "1:29: error[value]: unknown metric 'peak'; did you mean 'peak_bytes'? One of: "),
    ("budgets: [{name: a, figure: peak_byte, max: 1}]\n", "1:29: error[value]: unknown metric 'peak_byte'; did you mean 'peak_bytes'?"),
    (
        "budgets: [{name: a, figure: peak_bytes, max: 7B}]\n",
        "1:46: error[amount]: invalid value '7B' for max; the unit must be bytes, for example 80GB, 40GiB",
    ),
    (
        "budgets: [{name: a, figure: params_total, max: 7GB}]\n",
        "1:48: error[amount]: invalid value '7GB' for max; the unit must be parameters, for example 7B, 124M, 300e9",
    ),
    (
        "budgets: [{name: a, figure: peak_bytes, max: 80}]\n",
        "1:46: error[amount]: invalid value '80' for max; use a number and a unit, for example 80GB, 40GiB",
    ),
    ("budgets: [{name: a, figure: params_total, max: 5%}]\n", "1:48: error[amount]: invalid value '5%' for max"),
    ("budgets: [{name: a, figure: params_total, max: -1}]\n", "1:48: error[range]: budgets[0].max must be at least 0, not -1"),
    (
        "budgets: [{name: a, figure: params_total, max: lots}]\n",
        "1:48: error[amount]: invalid value 'lots' for max; use a number and a unit",
    ),
    (
        "budgets:\n  - {name: a, figure: params_total, max: 1}\n  - {name: a, figure: params_total, min: 1}\n",
        "3:12: error[duplicate-name]: 'a' is also the name of the budget on line 2; budget names must be unique",
    ),
    ("budgets: [{name: size_label, figure: params_total, max: 1}]\n", "1:18: error[duplicate-name]: 'size_label' is reserved for"),
    (
        "budgets: [{name: a, figure: params_total, max: 1, severity: fatal}]\n",
        "1:61: error[value]: invalid value 'fatal' for budgets[0].severity; one of: error, warning",
    ),
    ("size_label: {tolerance: 10}\n", "1:25: error[type]: size_label.tolerance must be text, not 10"),
    ("size_label: {tolerance: 1B}\n", "1:25: error[amount]: invalid value '1B' for size_label.tolerance; use a percentage, e.g. 10%"),
    ("a: 1\na: 2\n", "2:1: error[duplicate-key]"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_errors_are_reported_like_those_in_specs(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "planner.yaml"
    path.write_text(text, encoding="utf-8")
    read, problems = policy.read(path, "planner.yaml")
    assert read == policy.Policy()
    assert render(problems).splitlines()[0].startswith(f"planner.yaml:{message}")


def test_an_invalid_policy_is_a_finding(repo: Repo) -> None:
    repo.write("budgets: [{name: a}]\n", "planner.yaml")
    code, out, _ = repo.run("diff", "--format", "github")
    assert code == 1
    assert "::error file=planner.yaml,line=1,col=11,title=missing-key::missing required key 'figure' in budgets[0]" in out
    code, _, err = repo.run("run", "specs")
    assert code == 1
    assert "planner.yaml:1: error[missing-key]: missing required key 'figure' in budgets[0]" in err


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("40GiB", "bytes", 40 * 2**30),
        ("80 GB", "bytes", 80 * 10**9),
        ("1.5TiB", "bytes", 3 * 2**39),
        ("512", "bytes", 512),
        (512, "bytes", 512),
        ("7B", "parameters", 7 * 10**9),
        ("8.03B", "parameters", 8_030_000_000),
        ("124M", "parameters", 124 * 10**6),
        ("300e9", "tokens", 300 * 10**9),
        ("1_000_000", "parameters", 10**6),
        ("2.5ZFLOP", "FLOP", 25 * 10**20),
        ("3e21", "FLOP", 3 * 10**21),
        ("5s", "µs", 5 * 10**6),
        ("250 µs", "µs", 250),
        ("1.5k", "hours", 1500),
        ("1.23456789012345678901GB", "bytes", Fraction(123456789012345678901, 10**11)),
    ],
)
def test_amounts_are_exact(text: str | int, unit: str, value: Fraction) -> None:
    assert quantity.parse(text, unit).value == value


@pytest.mark.parametrize("text", ["", "GB", "1e999GB", "9" * 30, "0x10", "1;2", "nan", "inf", "1 2", "-5", "80gb"])
def test_invalid_amounts(text: str) -> None:
    with pytest.raises(ValueError, match="for example"):
        quantity.parse(text, "bytes")


def test_a_percentage_is_a_share_of_the_metric() -> None:
    assert quantity.parse("5%", "bytes", share=True).of(1000) == 50
    assert quantity.parse("2.5%", "bytes", share=True).of(3) == Fraction(3, 40)
    assert quantity.parse("1GiB", "bytes", share=True).of(1000) == 2**30


def test_every_metric_can_have_a_budget() -> None:
    for column in FIGURES.values():
        assert quantity.rounded(column, 1)


def test_the_schema_is_draft_07_and_its_examples_hold() -> None:
    shipped = schema("policy")
    Draft7Validator.check_schema(shipped)
    validator = Draft7Validator(shipped)
    assert validator.is_valid({"budgets": [{"name": "a", "figure": "peak_bytes", "max": "80GB"}]})
    assert not validator.is_valid({"budgets": [{"name": "a", "figure": "peak_bytes"}]})


def test_the_policy_lists_the_specs_to_review(repo: Repo) -> None:
    repo.write("specs: [proposals, 'more/*.yaml']\n", "planner.yaml")
    repo.write(spec("a"), "proposals/deep/a.yaml")
    repo.write(spec("b", n_layers="5"), "more/b.yaml")
    assert repo.states() == {"a": "new", "b": "new"}
    assert repo.states(".") == {"a": "new", "b": "new", "tiny": "unchanged"}  # planner.yaml is not a spec


def test_a_policy_linked_from_outside_the_repository_is_not_read(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n", encoding="utf-8")
    (repo.root / "planner.yaml").symlink_to(tmp_path / "secret")
    code, out, err = repo.run("diff")
    assert code == 1
    assert "planner.yaml: error[outside]: leads outside the repository" in out
    assert "hunter2" not in out + err
    assert "hunter2" not in "".join(repo.run("run", "specs")[1:])
