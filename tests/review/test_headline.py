"""The headline: sums over what changed, with their signs, and budgets; then what to do next."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from planner.report.columns import FIGURES
from planner.review.headline import headline, next_steps
from planner.review.review import BudgetStatus, Change, Finding, Review, ReviewedModel, ReviewedScenario, Status
from planner.spec.records import Place, Waiver

from .conftest import LAYER_PARAMS, Repo, spec, unlike

GIB, B = 2**30, 10**9
PLACE = Place("specs/a.yaml", 3, 1)


def row(scenario: str = "base", **figures: tuple[int | None, int | None]) -> ReviewedScenario:
    """Return a row with metrics before and after; others are 0."""
    before, after = ({name: figures[name][side] if name in figures else 0 for name in FIGURES} for side in (0, 1))
    changes = tuple(Change(name, *values) for name, values in figures.items() if values[0] != values[1])
    return ReviewedScenario(scenario, "changed" if changes else "unchanged", before, after, changes)


def model(name: str, *rows: ReviewedScenario, status: Status = "changed") -> ReviewedModel:
    return ReviewedModel(name, status, f"specs/{name}.yaml", rows)


def new(name: str, params: int, peak: int) -> ReviewedModel:
    figures = {"params_total": params, "peak_bytes": peak}
    return model(name, ReviewedScenario("base", "new", None, figures), status="new")


def of(*models: ReviewedModel, budgets: tuple[BudgetStatus, ...] = ()) -> str:
    return headline(Review("main", models, (), budgets))


def status(budget: str, state: str, name: str = "a") -> BudgetStatus:
    return BudgetStatus(name, "base", budget, state)  # type: ignore[arg-type]


def test_growth_is_summed_over_models() -> None:
    grown = [model(name, row(params_total=(B, B + B * 3 // 10), peak_bytes=(10 * GIB, 20 * GIB))) for name in "abcd"]
    broken = (status("cap", "error", "a"), status("cap", "error", "b"), status("other", "kept"))
    assert of(*grown, budgets=broken) == "Adds 1.200 B parameters and 40.00 GiB of peak to 4 models; 1 budget broken."


def test_what_grows_and_what_shrinks_are_summed_apart() -> None:
    models = (
        model("a", row(params_total=(5 * B, 7 * B), peak_bytes=(9 * GIB, 8 * GIB))),
        model("b", row(params_total=(7 * B, 4 * B), peak_bytes=(2 * GIB, 2 * GIB))),
        model("c", row(params_total=(B, B), peak_bytes=(2 * GIB, 5 * GIB))),
    )
    expected = "Adds 2.000 B parameters and 3.000 GiB of peak to 2 models; removes 3.000 B parameters and 1.000 GiB of peak from 2 models."
    assert of(*models) == expected


def test_scenarios_share_parameters_and_each_has_a_peak() -> None:
    rows = [row(name, params_total=(B, 2 * B), peak_bytes=(GIB, 3 * GIB)) for name in ("base", "long", "short")]
    assert of(model("a", *rows)) == "Adds 1.000 B parameters and 6.000 GiB of peak (3 scenarios) to 1 model."


def test_new_and_removed_models_are_apart_from_changes() -> None:
    gone = model("z", ReviewedScenario("base", "removed", {"params_total": B, "peak_bytes": GIB}, None), status="removed")
    assert of(new("n", 2 * B, 4 * GIB), new("m", B, GIB), gone) == (
        "2 new models with 3.000 B parameters and 5.000 GiB of peak; 1 removed model with 1.000 B parameters and 1.000 GiB of peak."
    )


def test_scenarios_that_come_and_go_change_no_parameters_of_a_model() -> None:
    figures = {"params_total": B, "peak_bytes": GIB}
    long, short = ReviewedScenario("long", "new", None, figures), ReviewedScenario("short", "removed", figures, None)
    assert of(model("a", long, short), model("b", long)) == "Adds 2 scenarios to 2 models; removes 1 scenario from 1 model."
    assert of(model("a", row(peak_bytes=(GIB, 2 * GIB)), long)) == "Adds 1.000 GiB of peak to 1 model; adds 1 scenario to 1 model."


def test_other_metrics_have_their_turn_if_parameters_and_peak_are_equal() -> None:
    assert of(model("a", row(train_flops=(10**18, 3 * 10**18)))) == "Adds 2.000 EFLOP of train FLOPs to 1 model."
    both = of(model("a", row(peak_bytes=(GIB, 2 * GIB))), model("b", row(activations_bytes=(1, 2))))
    assert both == "Adds 1.000 GiB of peak to 1 model; changes other metrics of 1 model."


def test_changes_without_an_effect_are_counted() -> None:
    models = (model("a"), model("b", status="renamed"), model("c", status="unreadable"))
    assert of(*models) == "Renames 1 model; changes no metric of 1 model; 1 model cannot be read."


def test_values_that_are_unknown_on_one_side_are_no_change() -> None:
    assert of(model("a", row(train_flops=(None, 10**18)))) == "Changes other metrics of 1 model."


@pytest.mark.parametrize(("state", "shown"), [("error", "broken"), ("warning", "broken (warning)"), ("waived", "waived")])
def test_budgets_are_counted_by_state(state: str, shown: str) -> None:
    budgets = (status("x", state), status("y", state), status("y", state, "b"))
    assert (
        of(ReviewedModel("a", "unchanged", "a.yaml"), budgets=budgets) == f"No changes: the only model matches the base; 2 budgets {shown}."
    )


def finding(rule: str, file: str = "specs/a.yaml", name: str = "a", severity: str = "error") -> Finding:
    waiver = Waiver(rule, "r", date(2027, 1, 1), PLACE) if severity == "waived" else None
    return Finding(rule, severity, "message", Place(file, 3, 1), name, waiver=waiver)  # type: ignore[arg-type]


def steps(*findings: Finding) -> list[str]:
    models = tuple(model(name) for name in "abcdef")
    return [f"{one.what} {one.code}".rstrip() for one in next_steps(Review("main", models, findings))]


WAIVER = "{{budget: {}, reason: WHY, until: YYYY-MM-DD}}"


def test_next_steps_name_the_file_and_the_waiver_of_each_model() -> None:
    assert steps(finding("budget:x"), finding("budget:y"), finding("budget:x"), finding("expect", name="b")) == [
        f"Fix specs/a.yaml, or add to it waivers: [{WAIVER.format('x')}, {WAIVER.format('y')}]",
        "Fix specs/b.yaml.",
        "Check again with planner diff",
    ]


def test_a_waiver_belongs_to_the_model_even_if_the_line_is_in_a_file_that_it_extends() -> None:
    assert steps(finding("size_label", "specs/base.yaml"))[0].startswith("Fix specs/a.yaml, or add to it waivers: [{budget: size_label,")
    assert steps(replace(finding("budget:x"), hint="use less"))[0].startswith("Fix specs/a.yaml as suggested, or add")


def test_next_steps_name_few_files_and_none_if_nothing_fails() -> None:
    assert steps(*(finding("budget:x", name=name) for name in "abcde"))[3:] == ["Fix 2 more files.", "Check again with planner diff"]
    assert steps(finding("unknown-key", "specs/broken.yaml", ""))[0] == "Fix specs/broken.yaml."
    assert steps(finding("budget:x", severity="waived"), finding("size_label", severity="warning")) == []


def test_the_waiver_that_is_suggested_passes(repo: Repo) -> None:
    repo.write("budgets: [{name: cap, figure: params_total, max: 120k}]\n", "planner.yaml")
    base = repo.commit()
    repo.write(spec(n_layers="3"))
    review = repo.review("--base", base)
    assert review["headline"] == "Adds 49.98 k parameters and 781.0 KiB of peak to 1 model; 1 budget broken."  # 49,984; 16 bytes each
    assert LAYER_PARAMS * 16 == 781 * 1024
    waiver = review["next"][0].partition("add to it ")[2].replace("WHY", "a reason").replace("YYYY-MM-DD", "2027-01-31")
    repo.write(spec(n_layers="3") + waiver + "\n")
    code, out, _ = repo.run("diff", "--base", base, "--today", "2027-01-01")
    assert (code, "1 budget waived." in out, "Next" in out) == (0, True, False)


def test_every_format_for_people_begins_with_the_headline(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.write(unlike("other"), "specs/other.yaml")
    said = repo.review()["headline"]
    assert said.startswith("Adds 49.98 k parameters and 781.0 KiB of peak to 1 model; 1 new model with 443.4 k parameters and ")
    assert repo.run("diff")[1].startswith(f"{said}\nAgainst ")
    assert repo.run("diff", "--format", "md")[1].startswith(f"## Model capacity\n\n**{said}**\n")
    assert repo.run("diff", "--format", "github")[1] == f"::notice title=Model capacity::{said}\n"
