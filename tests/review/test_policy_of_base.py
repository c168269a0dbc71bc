"""A change cannot loosen the policy that judges it: the policy of the base applies too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from .conftest import LAYER_PARAMS, TINY_PARAMS, Repo, spec, unlike

# 150 k lies between the model at the base (114,944 parameters) and the model with a third layer (164,928)
assert TINY_PARAMS < 150_000 < TINY_PARAMS + LAYER_PARAMS
BUDGET = "  - {name: cap, figure: params_total, max: 150k%s}\n"
POLICY = "budgets:\n" + BUDGET % ""
EXCEEDED = "params_total 164.9 k exceeds budget cap (150k) by 14.93 k (base planner.yaml:2); allowed only by this change's own policy"

LOOSENED = {  # a grown model, and the policy of its branch; None: deleted
    "raised": POLICY.replace("150k", "1.5M"),
    "deleted": None,
    "emptied": "",
    "another name": POLICY.replace("cap", "hat").replace("150k", "1.5M"),
    "other models": "budgets:\n" + BUDGET % ", models: [huge-*]",
    "only a warning": "budgets:\n" + BUDGET % ", severity: warning",
    "other specs": "specs: [elsewhere]\n",
    "its own severity": POLICY.replace("150k", "1.5M") + "policy_change: {severity: warning}\n",
}


def on_branch(repo: Repo, policy: str | None) -> str:
    """Commit the policy to the base, change it on the branch, and return the base."""
    repo.write(POLICY, "planner.yaml")
    base = repo.commit()
    if policy is None:
        (repo.root / "planner.yaml").unlink()
    else:
        repo.write(policy, "planner.yaml")
    return base


@pytest.mark.parametrize("policy", LOOSENED.values(), ids=LOOSENED)
def test_a_loosened_policy_hides_nothing(repo: Repo, policy: str | None) -> None:
    base = on_branch(repo, policy)
    repo.write(spec("more"), "elsewhere/more.yaml")
    repo.write(spec(n_layers="3"))
    review = repo.review("--base", base)
    (finding,) = (one for one in review["findings"] if one["rule"] == "policy_change")
    assert (finding["message"], finding["severity"], review["failed"]) == (EXCEEDED, "error", True)
    assert {"model": "tiny", "scenario": "base", "budget": "cap", "state": "error"} in review["budgets"]
    assert ("kept", "cap") not in {(one["state"], one["budget"]) for one in review["budgets"] if one["model"] == "tiny"}


def test_the_base_decides_how_severe_that_is(repo: Repo) -> None:
    repo.write(POLICY + "policy_change: {severity: warning}\n", "planner.yaml")
    base = repo.commit()
    repo.write(POLICY.replace("150k", "1.5M") + "policy_change: {severity: error}\n", "planner.yaml")
    repo.write(spec(n_layers="3"))
    assert [one["severity"] for one in repo.review("--base", base)["findings"]] == ["warning"]


def test_a_policy_with_errors_is_a_finding_and_no_edit(repo: Repo) -> None:
    base = on_branch(repo, POLICY + "budgts: 1\n")
    repo.write(spec(n_layers="3"))
    review = repo.review("--base", base)
    assert review["policy_edits"] == []
    assert sorted(one["rule"] for one in review["findings"]) == ["policy_change", "unknown-key"]


def test_what_only_the_change_allows_has_remedies(repo: Repo) -> None:
    repo.write(POLICY.replace("params_total, max: 150k", "peak_bytes, max: 4MB"), "planner.yaml")
    base = repo.commit()
    (repo.root / "planner.yaml").unlink()
    repo.write(spec(batch_size="64"))
    (finding,) = repo.review("--base", base)["findings"]
    assert (finding["rule"], bool(finding["remedies"])) == ("policy_change", True)


def test_a_waiver_allows_it_in_view_of_all(repo: Repo) -> None:
    base = on_branch(repo, POLICY.replace("150k", "1.5M"))
    repo.write(spec(n_layers="3") + "waivers: [{budget: cap, reason: agreed, until: 2027-01-31}]\n")
    findings = repo.review("--base", base, "--today", "2027-01-01")["findings"]
    assert [(one["rule"], one["severity"]) for one in findings] == [("policy_change", "waived")]


def test_a_policy_that_changes_alone_or_becomes_stricter_is_no_finding(repo: Repo) -> None:
    base = on_branch(repo, POLICY.replace("150k", "1.5M"))
    assert repo.review("--base", base)["findings"] == []
    code, out, _ = repo.run("diff", "--base", base, "--exit-code")
    assert (code, "No changes of models: the only model matches the base; 1 change of planner.yaml." in out) == (1, True)
    repo.write(POLICY.replace("150k", "140k"), "planner.yaml")
    repo.write(spec(n_layers="3"))
    assert [one["rule"] for one in repo.review("--base", base)["findings"]] == ["budget:cap"]


def test_changes_of_the_policy_are_numbered_edits(repo: Repo) -> None:
    base = on_branch(repo, "budgets:\n  - {name: cap, figure: params_total, max: 1.5M, severity: warning}\n")
    edits = repo.review("--base", base)["policy_edits"]
    assert [(one["setting"], one["before"], one["after"]) for one in edits] == [
        ("budgets.cap.max", "150k", "1.5M"),
        ("budgets.cap.severity", "", "warning"),
    ]
    assert edits[0]["place"] == {"file": "planner.yaml", "line": 2, "column": 44}
    assert "  ~ 1. budgets.cap.max 150k → 1.5M, planner.yaml:2\n" in repo.run("diff", "--base", base)[1]
    assert "\n1. <code>budgets.cap.max</code> 150k → 1.5M, planner.yaml:2\n" in repo.run("diff", "--base", base, "--format", "md")[1]
    (repo.root / "planner.yaml").unlink()
    assert "  - 1. budgets.cap {name: cap, figure: params_total, max: 150k} → removed\n" in repo.run("diff", "--base", base)[1]


TAGGED = "budgets:\n" + BUDGET % ", tags: [production]"


def tagged(repo: Repo, policy: str = TAGGED) -> str:
    repo.write(policy, "planner.yaml")
    repo.write(spec() + "tags: [production]\n")
    return repo.commit()


@pytest.mark.parametrize("tags", ["", "tags: [draft]\n"])
def test_a_removed_tag_hides_nothing_and_is_an_edit(repo: Repo, tags: str) -> None:
    base = tagged(repo)
    repo.write(spec(n_layers="3") + tags)
    review = repo.review("--base", base)
    told = [(one["rule"], one["message"]) for one in review["findings"]]
    assert told == [("policy_change", EXCEEDED), ("unmatched", "'production' matches no tag")]
    (model,) = review["models"]
    assert [one["setting"] for one in model["edits"]] == ["model.n_layers", "tags[0]" if tags else "tags"]
    code, out, _ = repo.run("diff", "--base", base, "--format", "md")
    assert code == 1
    assert "- <code>tags" in out
    assert "❌ cap" in out


def test_changes_of_requirements_alone_are_edits(repo: Repo) -> None:
    repo.write(spec() + f"expect: {{params_total: {TINY_PARAMS}}}\nwaivers: [{{budget: size_label, reason: r, until: 2027-01-31}}]\n")
    base = repo.commit()
    repo.write(spec() + "waivers: [{budget: size_label, reason: r, until: 2027-12-31}]\ntags: [x]\n")
    review = repo.review("--base", base)
    assert [(one["setting"], one["before"], one["after"]) for one in review["models"][0]["edits"]] == [
        ("tags", "", "[x]"),
        ("waivers[0].until", "2027-01-31", "2027-12-31"),
        ("expect.params_total", str(TINY_PARAMS), ""),
    ]
    assert (review["models"][0]["status"], review["models"][0]["rows"]) == ("changed", [])
    code, out, _ = repo.run("diff", "--base", base, "--exit-code")
    assert (code, "  ~ 2. waivers[0].until 2027-01-31 → 2027-12-31, specs/tiny.yaml:" in out, "no metric changed" in out) == (1, True, True)


GROWTH = "budgets: [{name: growth, figure: params_total, max_increase: 5%}]\n"


@pytest.mark.parametrize("file", ["specs/tiny.yaml", "specs/other.yaml"])
def test_a_renamed_model_that_grows_is_compared_with_what_it_was(repo: Repo, file: str) -> None:
    repo.write(GROWTH, "planner.yaml")
    base = repo.commit()
    (repo.root / "specs/tiny.yaml").unlink()
    repo.write(spec("other", n_layers="3"), file)
    review = repo.review("--base", base)
    (model,) = review["models"]
    assert (model["name"], model["status"], model["renamed_from"]) == ("other", "changed", "tiny")
    assert [(one["rule"], one["model"]) for one in review["findings"]] == [("budget:growth", "other")]
    assert "renamed and changed, was tiny" in repo.run("diff", "--base", base)[1]
    assert "renamed and changed, was tiny" in repo.run("diff", "--base", base, "--format", "md")[1]


def test_a_new_name_does_not_leave_the_budgets_of_the_old_one(repo: Repo) -> None:
    repo.write("budgets:\n" + BUDGET % ", models: [tiny]", "planner.yaml")
    base = repo.commit()
    repo.write(spec("other", n_layers="3"))
    told = [(one["rule"], one["message"]) for one in repo.review("--base", base)["findings"]]
    assert told == [("policy_change", EXCEEDED), ("unmatched", "'tiny' matches no model")]


def test_another_model_in_another_file_is_no_renamed_one(repo: Repo) -> None:
    repo.write(GROWTH, "planner.yaml")
    base = repo.commit()
    (repo.root / "specs/tiny.yaml").unlink()
    repo.write(unlike("other"), "specs/other.yaml")
    review = repo.review("--base", base)
    assert {model["name"]: model["status"] for model in review["models"]} == {"other": "new", "tiny": "removed"}
    assert review["budgets"] == [{"model": "other", "scenario": "base", "budget": "growth", "state": "unchecked"}]
    assert "budget growth: not compared" in repo.run("diff", "--base", base)[1]
    assert "| – growth |" in repo.run("diff", "--base", base, "--format", "md")[1]


def test_the_nearest_of_several_is_the_renamed_one(repo: Repo) -> None:
    (repo.root / "specs/tiny.yaml").unlink()
    repo.write(spec("far", n_layers="9", d_model="128"), "specs/far.yaml")
    repo.write(spec("near", n_layers="9"), "specs/near.yaml")
    assert {one["name"]: one["renamed_from"] for one in repo.review()["models"]} == {"far": "", "near": "tiny"}


def test_a_model_that_was_unreadable_at_the_base_is_no_renamed_one(repo: Repo) -> None:
    # Its file is the same, and it is as near to the model that is gone as the renamed one.
    repo.write(GROWTH, "planner.yaml")
    repo.write(spec("fixed") + "unknown: 1\n", "specs/fixed.yaml")
    base = repo.commit()
    (repo.root / "specs/tiny.yaml").unlink()
    repo.write(spec("fixed"), "specs/fixed.yaml")
    repo.write(spec("longer", n_layers="3"), "specs/longer.yaml")
    review = repo.review("--base", base)
    assert {one["name"]: one["renamed_from"] for one in review["models"]} == {"fixed": "", "longer": "tiny"}
    assert [(one["rule"], one["model"]) for one in review["findings"]] == [("budget:growth", "longer")]


def test_a_policy_with_errors_at_the_base_is_a_note(repo: Repo) -> None:
    repo.write("budgets: [{name: a}]\n", "planner.yaml")
    base = repo.commit()
    Path(repo.root / "planner.yaml").write_text(POLICY, encoding="utf-8")
    review = repo.review("--base", base)
    assert review["findings"] == []
    assert "base planner.yaml has errors: missing required key 'figure' in budgets[0]" in review["notes"]


LONG = "scenarios: [{name: long, batch_size: 9}]\n"
LENGTHY = "scenarios: [{name: lengthy, batch_size: 9}]\n"
TAGS = "tags: [production]\n"
WAIVER = "waivers: [{budget: %s, reason: agreed, until: 2099-01-31}]\n"
ONLY_LONG = "budgets:\n" + BUDGET % ", scenarios: [long]"
PEAK_GROWTH = "budgets: [{name: growth, figure: activations_bytes, max_increase: 5%}]\n"
LOOSE = POLICY.replace("150k", "1.5M")
OWN = ("policy_change", "error", "allowed only by this change's own policy")
NO_POLICY, GONE = "", "\0"  # no policy at the base; the file is deleted on the branch

BRANCHES: Mapping[str, tuple[str, str, Mapping[str, str], set[tuple[str, str, str]]]] = {
    # the policy and the spec of the base, the files of the branch, and the findings: rule, severity, end of the message
    "raised limit": (POLICY, spec(), {"planner.yaml": LOOSE, "specs/tiny.yaml": spec(n_layers="3")}, {OWN}),
    "deleted policy": (POLICY, spec(), {"planner.yaml": GONE, "specs/tiny.yaml": spec(n_layers="3")}, {OWN}),
    "removed budget": (POLICY, spec(), {"planner.yaml": "specs: [specs]\n", "specs/tiny.yaml": spec(n_layers="3")}, {OWN}),
    "policy alone": (POLICY, spec(), {"planner.yaml": LOOSE}, set()),
    "removed tag": (
        TAGGED,
        spec() + TAGS,
        {"specs/tiny.yaml": spec(n_layers="3")},
        {OWN, ("unmatched", "warning", "'production' matches no tag")},
    ),
    "renamed growth": (GROWTH, spec(), {"specs/tiny.yaml": spec("other", n_layers="3")}, {("budget:growth", "error", "(planner.yaml:1)")}),
    "renamed out of the pattern": (
        "budgets:\n" + BUDGET % ", models: [tiny]",
        spec(),
        {"specs/tiny.yaml": spec("other", n_layers="3")},
        {OWN, ("unmatched", "warning", "'tiny' matches no model")},
    ),
    "renamed scenario out of the pattern": (
        ONLY_LONG,
        spec() + LONG,
        {"specs/tiny.yaml": spec(n_layers="3") + LENGTHY},
        {
            ("policy_change", "error", "allowed only because the scenario long is renamed"),
            ("unmatched", "warning", "'long' matches no scenario"),
        },
    ),
    "growth of a renamed scenario": (
        PEAK_GROWTH,
        spec() + LONG,
        {"specs/tiny.yaml": spec() + LENGTHY.replace("9", "10")},
        {("budget:growth", "error", "(planner.yaml:1)")},
    ),
    "growth of a scenario renamed out of the pattern": (
        PEAK_GROWTH.replace("}", ", scenarios: [long]}"),
        spec() + LONG,
        {"specs/tiny.yaml": spec() + LENGTHY.replace("9", "10")},
        {
            ("policy_change", "error", "allowed only because the scenario long is renamed"),
            ("unmatched", "warning", "'long' matches no scenario"),
        },
    ),
    "renamed scenario alone": (PEAK_GROWTH, spec() + LONG, {"specs/tiny.yaml": spec() + LENGTHY}, set()),
    "removed scenario that would exceed": (
        ONLY_LONG + "  - {name: any, figure: params_total, max: 1.5M}\n",
        spec() + LONG,
        {"specs/tiny.yaml": spec(n_layers="3")},
        {
            ("policy_change", "error", "allowed only because this scenario is removed"),
            ("unmatched", "warning", "'long' matches no scenario"),
        },
    ),
    "removed scenario": (
        POLICY,
        spec() + LONG,
        {"specs/tiny.yaml": spec()},
        {("policy_change", "warning", "scenario long is removed, to which budgets of the base applied: cap")},
    ),
    "removed scenario without a budget": ("budgets:\n" + BUDGET % ", scenarios: [base]", spec() + LONG, {"specs/tiny.yaml": spec()}, set()),
    "pattern without a match": (
        POLICY,
        spec(),
        {"planner.yaml": "budgets:\n" + BUDGET % ", models: [huge-*]"},
        {("unmatched", "warning", "'huge-*' matches no model")},
    ),
    "path without a match": (
        POLICY,
        spec(),
        {"planner.yaml": "specs: [specs, more]\n" + POLICY},
        {("unmatched", "warning", "'more' matches no spec")},
    ),
    "waiver without a match": (
        POLICY,
        spec(),
        {"specs/tiny.yaml": spec() + WAIVER % "cup"},
        {("waiver", "warning", "waiver for unknown budget 'cup'")},
    ),
    "waiver in the same change": (
        POLICY,
        spec(),
        {"specs/tiny.yaml": spec(n_layers="3") + WAIVER % "cap"},
        {("budget:cap", "waived", "(planner.yaml:2)")},
    ),
    "first policy": (
        NO_POLICY,
        spec(),
        {"planner.yaml": POLICY, "specs/tiny.yaml": spec(n_layers="3")},
        {("budget:cap", "error", "(planner.yaml:2)")},
    ),
}


@pytest.mark.parametrize(("policy", "base", "files", "expected"), BRANCHES.values(), ids=BRANCHES)
def test_what_a_branch_can_do_to_the_policy(
    repo: Repo, policy: str, base: str, files: Mapping[str, str], expected: set[tuple[str, str, str]]
) -> None:
    if policy:
        repo.write(policy, "planner.yaml")
    repo.write(base)
    commit = repo.commit() if policy or base != spec() else "HEAD"
    for file, text in files.items():
        repo.write(text, file)
        if text == GONE:
            (repo.root / file).unlink()
    review = repo.review("--base", commit)
    seen = [(one["rule"], one["severity"], one["message"]) for one in review["findings"]]
    assert len(seen) == len(expected)
    for rule, severity, end in expected:
        assert [one for one in seen if one[:2] == (rule, severity) and one[2].endswith(end)], seen
    assert review["failed"] is any(severity == "error" for _, severity, _ in expected)
    assert repo.run("diff", "--base", commit)[0] == review["failed"]
    assert repo.run("diff", "--base", commit, "--exit-code")[0] == 1  # each branch changes something


def test_a_renamed_scenario_is_compared_with_what_it_was(repo: Repo) -> None:
    repo.write(PEAK_GROWTH, "planner.yaml")
    repo.write(spec() + "scenarios: [{name: a, batch_size: 9}, {name: b, batch_size: 20, recompute: full}]\n")
    base = repo.commit()
    repo.write(spec() + "scenarios: [{name: c, batch_size: 30, recompute: full}, {name: d, batch_size: 9}, {name: e, dropout: 0.1}]\n")
    review = repo.review("--base", base)
    ((scenario, message),) = [(one["scenario"], one["message"]) for one in review["findings"]]
    assert (scenario, "(an increase of 5% since scenario b, to " in message) == ("c", True)
    states = {one["scenario"]: one["state"] for one in review["budgets"]}
    assert states == {"base": "kept", "c": "error", "d": "kept", "e": "unchecked"}
