"""The review for a terminal: marks and colors as in a plan of terraform."""

from __future__ import annotations

import re

from planner.report.terminal import Style
from planner.review.review import BudgetStatus, Edit, Finding, Review, ReviewedModel
from planner.review.text import text
from planner.spec.records import Place

from .conftest import Repo, spec

PLACE = Place("specs/a.yaml", 3, 1)
EDITS = (Edit("model.d_ff", "", "8", PLACE), Edit("model.n_layers", "2", "3", PLACE), Edit("training.tokens", "5", "", PLACE))
REVIEW = Review(
    "main",
    (
        ReviewedModel("a", "changed", "specs/a.yaml", (), EDITS),
        *(ReviewedModel(status, status, f"specs/{status}.yaml") for status in ("new", "removed", "unreadable")),
    ),
    (Finding("budget:cap", "error", "too much", PLACE, "a"), Finding("size_label", "warning", "odd", PLACE, "a")),
    (BudgetStatus("a", "base", "cap", "error"),),
    policy_edits=EDITS[:1],
)


def test_models_and_settings_have_the_marks_of_terraform() -> None:
    lines = text(REVIEW).splitlines()
    for line in (
        "~ a (specs/a.yaml): changed",
        "  + 1. model.d_ff unset → 8, specs/a.yaml:3",
        "  ~ 2. model.n_layers 2 → 3, specs/a.yaml:3",
        "  - 3. training.tokens 5 → removed, specs/a.yaml:3",
        "+ new (specs/new.yaml): new",
        "- removed (specs/removed.yaml): removed",
        "! unreadable (specs/unreadable.yaml): cannot be read",
        "  specs/a.yaml:3: error[budget:cap]: a: too much",
    ):
        assert line in lines


def test_colors_add_only_colors() -> None:
    colored = text(REVIEW, Style(True))
    assert "\x1b[33m~\x1b[0m" in colored
    assert "\x1b[32m+\x1b[0m" in colored
    assert "\x1b[31m-\x1b[0m" in colored
    assert "\x1b[31merror[budget:cap]\x1b[0m" in colored
    assert "\x1b[33mwarning[size_label]\x1b[0m" in colored
    assert re.sub("\x1b\\[\\d+m", "", colored) == text(REVIEW)


def test_parameters_are_listed_once_for_all_scenarios(repo: Repo) -> None:
    scenarios = "scenarios: [{name: big, batch_size: 9}]\n"
    repo.write(spec() + scenarios)
    repo.commit()
    repo.write(spec(n_layers="3") + scenarios)
    for form, before in (("text", "  "), ("md", "| ")):
        out = repo.run("diff", "--base", "HEAD", "--format", form)[1]
        assert [out.count(f"{before}{name} ") for name in ("params_total", "activations_bytes")] == [1, 2]
    assert out.count("| parameters |") == 1


def test_a_new_scenario_of_a_known_model_lists_its_parameters(repo: Repo) -> None:
    repo.write(spec(n_layers="3") + "scenarios: [{name: big, batch_size: 9}]\n")
    assert repo.run("diff")[1].count("  params_total ") == 2
