"""A saved report as the base: its specs are recomputed, and changes of formulas are separated from changes of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import LAYER_PARAMS, TINY_PARAMS, Repo, figures, spec

NO_POLICY = "a saved report does not contain the planner.yaml of the base: changes of budgets, and what only they allow, are not reported"


@pytest.fixture
def saved(repo: Repo) -> Path:
    assert repo.run("run", "specs", "--format", "json", "--output", "saved")[0] == 0
    return repo.root / "saved/capacity.json"


def rewrite(path: Path, change: Any) -> None:  # noqa: ANN401 - a function of the parsed report
    plans = json.loads(path.read_text(encoding="utf-8"))
    change(plans)
    path.write_text(json.dumps(plans), encoding="utf-8")


def test_without_changes_models_are_unchanged(repo: Repo, saved: Path) -> None:
    code, out, _ = repo.run("diff", "--base-report", str(saved), "--exit-code")
    assert (code, out) == (
        0,
        f"Against the report {saved}: No changes: the only model matches the base.\n\nNotes\n  {NO_POLICY}\n",
    )


def test_the_policy_of_the_base_is_said_to_be_unknown(repo: Repo) -> None:
    repo.write(
        "budgets: [{name: cap, figure: params_total, max: 150k}, {name: growth, figure: params_total, max_increase: 5%}]\n", "planner.yaml"
    )
    assert repo.run("run", "specs", "--format", "json")[0] == 0
    repo.write(
        "budgets: [{name: cap, figure: params_total, max: 1.5M}, {name: growth, figure: params_total, max_increase: 5%}]\n", "planner.yaml"
    )
    repo.write(spec(n_layers="3"))
    review = repo.review("--base-report", "reports/capacity.json")
    assert (NO_POLICY in review["notes"], review["policy_edits"]) == (True, [])
    assert [one["rule"] for one in review["findings"]] == ["budget:growth"]  # the values of the report are known
    for form in ("text", "md", "json"):
        assert NO_POLICY in repo.run("diff", "--base-report", "reports/capacity.json", "--format", form)[1]


def test_a_change_is_explained_by_the_edited_lines(repo: Repo, saved: Path) -> None:
    repo.write(spec(n_layers="3"))
    review = repo.review("--base-report", str(saved))
    assert figures(review)["params_total"]["after"] == TINY_PARAMS + LAYER_PARAMS
    place = {"file": "specs/tiny.yaml", "line": 6, "column": 13}
    assert review["models"][0]["edits"] == [{"setting": "model.n_layers", "before": "2", "after": "3", "place": place}]
    assert review["formula_changes"] == []


def test_an_updated_formula_is_not_a_change_of_the_model(repo: Repo, saved: Path) -> None:
    def older(plans: Any) -> None:  # noqa: ANN401
        for plan in plans:
            plan["figures"]["peak_bytes"] += 5
            plan["methods"]["peak_bytes"] = "peak/0"

    rewrite(saved, older)
    review = repo.review("--base-report", str(saved))
    assert review["models"][0]["status"] == "unchanged"
    (formula,) = review["formula_changes"]
    assert formula["saved"] - formula["recomputed"] == 5
    assert (formula["figure"], formula["saved_method"], formula["method"]) == ("peak_bytes", "peak/0", "peak/2")
    code, out, _ = repo.run("diff", "--base-report", str(saved), "--exit-code", "--format", "md")
    assert code == 0
    assert "Formula update, not a model change: tiny · base: peak_bytes" in out
    assert "(peak/0 → peak/2)" in out


def test_every_metric_has_a_method_in_the_report_and_the_review(repo: Repo, saved: Path) -> None:
    plans = json.loads(saved.read_text(encoding="utf-8"))
    methods = plans[0]["methods"]
    assert {"params_total", "peak_bytes", "activations_bytes", "train_flops"} <= set(methods)
    assert all(method.rsplit("/")[1].isdigit() for method in methods.values())
    assert {**repo.review()["methods"], **methods} == {**methods, **repo.review()["methods"]}


def test_a_report_without_specs_is_compared_by_metrics(repo: Repo, saved: Path) -> None:
    def bare(plans: Any) -> None:  # noqa: ANN401
        for plan in plans:
            del plan["spec"], plan["methods"]

    rewrite(saved, bare)
    assert repo.review("--base-report", str(saved))["models"][0]["status"] == "unchanged"
    repo.write(spec(n_layers="3"))
    review = repo.review("--base-report", str(saved))
    assert figures(review)["params_total"]["before"] == TINY_PARAMS
    assert review["models"][0]["status"] == "changed"
    assert "contains its metrics but not its spec" in review["models"][0]["note"]


def test_the_metrics_of_an_invalid_spec_are_compared(repo: Repo, saved: Path) -> None:
    def broken(plans: Any) -> None:  # noqa: ANN401
        plans[0]["spec"]["model"]["no_longer_a_key"] = 1

    rewrite(saved, broken)
    review = repo.review("--base-report", str(saved))
    assert (review["failed"], review["models"][0]["status"]) == (False, "unchanged")


RUNS = "n_heads: 4\n  layers: [{count: 1, d_ff: 9}, {}]\n  attention: {qkv: separate, bias: {q: false}}"
CHILDREN = {
    "false": spec("child").replace("n_heads: 4", "n_heads: 4\n  attention: {bias: false}"),
    "runs": spec("child").replace("n_heads: 4", RUNS) + "  dropout: 0.1\n",
    "a mapping on a shorthand": "name: child\nextends: parent.yaml\nmodel: {attention: {qkv: separate, bias: {k: true}}}\n",
    "positions": "name: child\nextends: parent.yaml\nmodel: {positions: {offset: 2}}\nscenarios: [{name: b, steps: 1e3}]\n",
}


@pytest.mark.parametrize("text", CHILDREN.values(), ids=CHILDREN)
def test_a_spec_in_a_report_reads_back_the_same(repo: Repo, text: str) -> None:
    parent = spec("parent").replace("n_heads: 4", "n_heads: 4\n  attention: {bias: false, qkv: separate}\n  positions: learned")
    repo.write(parent, "specs/parent.yaml")
    repo.write(text, "specs/child.yaml")
    code, _, err = repo.run("run", "specs", "--format", "json")
    assert code == 0, err
    review = repo.review("--base-report", "reports/capacity.json")
    assert {model["status"] for model in review["models"]} == {"unchanged"}
    assert (review["formula_changes"], review["notes"]) == ([], [NO_POLICY])


NO_REPORTS = ("", "[", "{}", "1", "[1]", '[{"figures": 1}]', "[{}]", '[{"figures": {"model": 1, "scenario": "base"}}]', "[" * 5000)


@pytest.mark.parametrize("text", NO_REPORTS)
def test_an_invalid_report_is_reported_in_one_line(repo: Repo, text: str) -> None:
    repo.write(text, "saved.json")
    code, out, err = repo.run("diff", "--base-report", "saved.json")
    assert (code, out) == (2, "")
    assert err == "planner: diff: saved.json: is not a capacity.json; create one with `planner run --format json`\n"


def test_a_report_that_does_not_exist(repo: Repo) -> None:
    assert repo.run("diff", "--base-report", "nowhere.json")[::2] == (2, "planner: diff: nowhere.json: No such file or directory\n")


def test_a_saved_report_needs_no_repository(repo: Repo, saved: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain/specs"
    plain.mkdir(parents=True)
    (plain / "tiny.yaml").write_text(spec(n_layers="3"), encoding="utf-8")
    review = repo.review("--base-report", str(saved), folder=tmp_path / "plain")
    assert figures(review)["params_total"]["before"] == TINY_PARAMS


def test_only_the_given_paths_are_compared_with_the_report(repo: Repo) -> None:
    repo.write(spec("other", n_layers="1"), "specs/other.yaml")
    assert repo.run("run", "specs", "--format", "json", "--output", "saved")[0] == 0
    assert repo.states("--base-report", "saved/capacity.json", "specs/tiny.yaml") == {"tiny": "unchanged"}
    (repo.root / "specs/other.yaml").unlink()
    assert repo.states("--base-report", "saved/capacity.json") == {"tiny": "unchanged", "other": "removed"}
    assert repo.states("--base-report", "saved/capacity.json", "specs/other.yaml") == {"other": "removed"}
