"""Budgets, waivers, expected values and names: findings, their wording, and suggested fixes compared with trying all values."""

from __future__ import annotations

from datetime import date

import pytest

import planner

from .conftest import LAYER_PARAMS, TINY_PARAMS, Repo, Review, figures, spec


def budget(figure: str, **limits: str) -> str:
    said = "".join(f"    {key}: {value}\n" for key, value in limits.items())
    return f"budgets:\n  - name: cap\n    figure: {figure}\n{said}"


def found(review: Review, rule: str) -> list[dict[str, object]]:
    return [finding for finding in review["findings"] if finding["rule"] == rule]


def test_a_budget_that_is_met_exactly_is_not_a_finding(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.write(budget("params_total", max=str(TINY_PARAMS + LAYER_PARAMS)), "planner.yaml")
    review = repo.review()
    assert (review["findings"], review["failed"]) == ([], False)
    assert review["budgets"] == [{"model": "tiny", "scenario": "base", "budget": "cap", "state": "kept"}]


def test_a_budget_exceeded_by_one_is_a_finding(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.write(budget("params_total", max=str(TINY_PARAMS + LAYER_PARAMS - 1)), "planner.yaml")
    (finding,) = repo.review()["findings"]
    assert finding["message"] == "params_total 164,928 exceeds budget cap (164927) by 1 (planner.yaml:4)"
    assert finding["place"] == {"file": "specs/tiny.yaml", "line": 6, "column": 13}
    assert repo.run("diff")[0] == 1
    assert repo.run("diff", "--exit-zero")[0] == 0


def test_a_budget_exceeded_by_one_byte_is_reported_in_bytes(repo: Repo) -> None:
    repo.write(spec(batch_size="4000"))
    peak = figures(repo.review())["peak_bytes"]["after"]
    repo.write(budget("peak_bytes", max=f"{peak - 1} bytes"), "planner.yaml")
    (finding,) = repo.review()["findings"]
    assert finding["message"] == f"peak_bytes {peak:,} exceeds budget cap ({peak - 1} bytes) by 1 B (planner.yaml:4)"


def test_remedies_are_in_every_format(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    peak = figures(repo.review())["peak_bytes"]["after"]
    repo.write(budget("peak_bytes", max=f"{peak - 1} bytes", message="Ask us."), "planner.yaml")
    (finding,) = repo.review()["findings"]
    first = finding["remedies"][0]
    assert (first["figure"], first["settings"]) == ("peak_bytes", {"loss": "linear_cross_entropy_chunked"})
    assert first["value"] < peak
    text = f"to fit: loss: linear_cross_entropy_chunked → {first['value'] / 2**20:.3f} MiB"
    for form, line in (("text", "\n    "), ("md", "<br>"), ("github", "; "), ("sarif", "; ")):
        out = repo.run("diff", "--format", form)[1]
        assert f"{line}{text}{', ' if line == '; ' else line}or " in out
        assert f"{line}Ask us." in out


def test_the_suggested_fix_of_a_scenario_is_for_that_scenario(repo: Repo) -> None:
    repo.write(spec() + "scenarios:\n  - {name: big, batch_size: 100}\n")
    base = figures_of(repo, "base")["peak_bytes"]
    big = figures_of(repo, "big")["peak_bytes"]
    repo.write(budget("peak_bytes", max=f"{(base + big) // 2} bytes", message="Ask us."), "planner.yaml")
    (finding,) = repo.review()["findings"]
    assert finding["scenario"] == "big"
    assert finding["hint"] == "Ask us."
    for one in finding["remedies"]:
        settings = "".join(f", {key}: {value}" for key, value in {"batch_size": 100, **one["settings"]}.items())
        repo.write(spec() + f"scenarios:\n  - {{name: big{settings}}}\n")
        assert one["device"] or figures_of(repo, "big")["peak_bytes"] == one["value"] <= (base + big) // 2


def figures_of(repo: Repo, scenario: str) -> dict[str, int]:
    plan = planner.plan(planner.load(repo.root / "specs/tiny.yaml"), scenario)
    return {"peak_bytes": plan.memory.peak_bytes}


def test_an_increase_is_measured_from_the_base(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    share = 100 * LAYER_PARAMS / TINY_PARAMS  # 43.49 %
    assert 43.4 < share < 43.5
    repo.write(budget("params_total", max_increase="43.4%"), "planner.yaml")
    (finding,) = repo.review()["findings"]
    assert "exceeds budget cap (an increase of 43.4%, to" in finding["message"]
    repo.write(budget("params_total", max_increase="43.5%"), "planner.yaml")
    assert repo.review()["findings"] == []
    repo.write(budget("params_total", max_increase=str(LAYER_PARAMS - 1)), "planner.yaml")
    (finding,) = repo.review()["findings"]
    assert "params_total 164,928 exceeds budget cap (an increase of 49983, to 164,927) by 1" in finding["message"]


def test_growth_is_not_remedied_by_a_device(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    for limits, devices in (({"max": "1KiB"}, ["T4-16GB"]), ({"max_increase": "1 bytes"}, [])):
        repo.write(budget("peak_bytes", **limits), "planner.yaml")
        (finding,) = repo.review()["findings"]
        assert [one["device"] for one in finding["remedies"] if one["device"]] == devices
    repo.write(budget("weights_bytes", max="1KiB"), "planner.yaml")
    (finding,) = repo.review()["findings"]
    assert (finding["remedies"], finding["hint"]) == ([], "no change of the training settings fits")


def test_a_limit_that_scenarios_exceed_alike_is_one_finding(repo: Repo) -> None:
    def scenarios(count: int) -> str:
        return "scenarios: [" + ", ".join(f"{{name: s{number}, batch_size: {number + 9}}}" for number in range(count)) + "]\n"

    repo.write(budget("params_total", max_increase="0"), "planner.yaml")
    for count, others in ((1, "scenario s0"), (5, "scenarios s0, s1, s2, s3, s4"), (6, "6 other scenarios")):
        repo.write(spec() + scenarios(count))
        repo.commit()
        repo.write(spec(n_layers="3") + scenarios(count))
        (finding,) = repo.review("--base", "HEAD")["findings"]
        assert (finding["scenario"], finding["message"].partition("; ")[2]) == ("base", f"the same in {others}")
        assert repo.run("diff", "--base", "HEAD")[1].count("  budget cap: exceeded (error)") == count + 1


def test_findings_of_scenarios_with_other_values_are_separate(repo: Repo) -> None:
    repo.write(spec() + "scenarios: [{name: big, batch_size: 9}]\n")
    repo.write(budget("peak_bytes", max="0 bytes"), "planner.yaml")
    assert [one["scenario"] for one in repo.review()["findings"]] == ["base", "big"]


def test_max_increase_does_not_apply_to_new_models(repo: Repo) -> None:
    repo.write(spec("new", n_layers="9"), "specs/new.yaml")
    repo.write(budget("params_total", max_increase="0"), "planner.yaml")
    assert repo.review()["findings"] == []


ON_DEVICES = "cluster: {device: {memory: 1GiB}, devices: 2, reserve: 512MiB}\nlayout: {data_parallel: fsdp}\n"


def test_memory_that_a_step_leaves_free_has_a_minimum(repo: Repo) -> None:
    repo.write(spec().replace("training:\n", "training:\n  device: h100\n") + ON_DEVICES)
    repo.write(budget("free_bytes", min="400MiB"), "planner.yaml")
    review = repo.review()
    free = figures(review)["free_bytes"]
    assert (free["before"], free["after"]) == (None, 2**30 - 2**29 - figures(review)["peak_bytes"]["after"])
    assert repo.run("diff")[0] == 0
    repo.write(budget("free_bytes", min="512MiB"), "planner.yaml")  # all that the reserve leaves
    (finding,) = (one for one in repo.review()["findings"] if one["rule"].startswith("budget:"))
    assert finding["message"].startswith("free_bytes ")
    assert "is below budget" in finding["message"]


def test_a_step_must_fit_if_free_memory_is_at_least_0(repo: Repo) -> None:
    repo.write(spec().replace("training:\n", "training:\n  device: h100\n") + ON_DEVICES)
    repo.write(budget("free_bytes", min="0"), "planner.yaml")
    assert repo.run("diff")[0] == 0
    repo.write(spec(batch_size="90000").replace("training:\n", "training:\n  device: h100\n") + ON_DEVICES)
    (finding,) = (one for one in repo.review()["findings"] if one["rule"].startswith("budget:"))
    assert finding["severity"] == "error"


def test_a_budget_whose_metric_loses_its_value_is_a_warning(repo: Repo) -> None:
    on_devices = spec().replace("training:\n", "training:\n  device: h100\n")
    repo.write(budget("free_bytes", min="400MiB"), "planner.yaml")
    repo.write(on_devices + ON_DEVICES)
    assert [one["state"] for one in repo.review()["budgets"]] == ["kept"]
    repo.commit()
    repo.write(on_devices)
    review = repo.review("--base", "HEAD")
    (finding,) = (one for one in review["findings"] if one["rule"].startswith("budget:"))
    assert (finding["severity"], review["failed"]) == ("warning", False)
    assert finding["message"].startswith("free_bytes has no value any more")


def test_a_budget_of_a_metric_without_a_value_has_no_status(repo: Repo) -> None:
    repo.write(spec(n_layers="9"))
    repo.write(budget("free_bytes", min="400MiB"), "planner.yaml")
    assert repo.review()["budgets"] == []


PRICED = """\
cluster:
  device: H100-80GB-SXM
  devices: 1
  price: {per_device_hour: 2, currency: USD, source: "https://example.com", date: 2026-05-01}
"""


def test_estimates_have_budgets_whose_messages_show_the_range(repo: Repo) -> None:
    repo.write(spec().replace("training:\n", "training:\n  tokens: 1e15\n  device: h100\n") + PRICED)
    found = figures(repo.review())
    for figure, limit in (("step_us", "1us"), ("device_hours", "1h"), ("days", "1d"), ("cost", "1")):
        value = found[figure]["after"]
        repo.write(budget(figure, max=str(value)), "planner.yaml")
        assert repo.run("diff")[0] == 0
        repo.write(budget(figure, max=limit), "planner.yaml")
        (finding,) = (one for one in repo.review()["findings"] if one["rule"].startswith("budget:"))
        assert "; estimated, 80 % range " in finding["message"]
    assert found["cost"]["after"] == pytest.approx(2 * found["device_hours"]["after"], abs=1)


def test_a_minimum_of_free_memory_has_remedies(repo: Repo) -> None:
    text = spec(batch_size="8").replace("training:\n", "training:\n  device: h100\n") + ON_DEVICES
    repo.write(text)
    now = figures(repo.review())["free_bytes"]["after"]
    repo.write(budget("free_bytes", min=f"{now + 1024} bytes"), "planner.yaml")
    (finding,) = (one for one in repo.review()["findings"] if one["rule"].startswith("budget:"))
    assert finding["remedies"]
    for one in finding["remedies"]:
        assert one["figure"] == "peak_bytes"
        assert one["value"] <= 2**29 - now - 1024


def test_a_minimum_is_checked(repo: Repo) -> None:
    repo.write(spec(n_layers="1"))
    repo.write(budget("params_total", min="100k"), "planner.yaml")
    (finding,) = repo.review()["findings"]
    assert finding["message"] == "params_total 64.96 k is below budget cap (100k) by 35.04 k (planner.yaml:4)"
    assert finding["hint"] == ""


def test_filters_of_a_budget(repo: Repo) -> None:
    for name, tags in (("a-one", "[x]"), ("a-two", "[y, z]"), ("b-one", "[z]")):
        repo.write(spec(name, n_layers="5") + f"tags: {tags}\nscenarios: [{{name: more, batch_size: 9}}]\n", f"specs/{name}.yaml")

    def covered(**terms: str) -> set[tuple[object, object]]:
        repo.write(budget("peak_bytes", max="0 bytes", **terms), "planner.yaml")
        return {(one["model"], one["scenario"]) for one in found(repo.review("specs/a-*", "specs/b-*"), "budget:cap")}

    every = {(name, scenario) for name in ("a-one", "a-two", "b-one") for scenario in ("base", "more")}
    assert covered() == every
    assert covered(models="['a-*']") == {one for one in every if one[0] != "b-one"}
    assert covered(tags="[z, nobody]") == {one for one in every if one[0] != "a-one"}
    assert covered(models="['a-*']", tags="[z]") == {("a-two", "base"), ("a-two", "more")}
    assert covered(scenarios="[m*]", models="[b-one]") == {("b-one", "more")}


def test_a_warning_is_reported_and_does_not_fail(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.write(budget("params_total", max="0", severity="warning"), "planner.yaml")
    code, out, _ = repo.run("diff", "--format", "github")
    assert code == 0
    assert "::warning file=specs/tiny.yaml,line=6" in out


def test_unchanged_models_are_only_checked_if_the_policy_changed(repo: Repo) -> None:
    repo.write(budget("params_total", max="0"), "planner.yaml")
    assert len(repo.review()["findings"]) == 1
    base = repo.commit()
    assert repo.review("--base", base)["findings"] == []
    repo.write(spec("other", n_layers="5"), "specs/other.yaml")
    assert {one["model"] for one in repo.review("--base", base)["findings"]} == {"other"}


WAIVED = "waivers: [{budget: cap, reason: until the optimizer is sharded, until: 2027-01-31}]\n"


def test_a_waiver_applies_through_its_last_day_and_every_report_shows_it(repo: Repo) -> None:
    repo.write(spec(n_layers="3") + WAIVED)
    repo.write(budget("params_total", max="1000"), "planner.yaml")
    code, out, _ = repo.run("diff", "--today", "2027-01-31", "--format", "md")
    assert code == 0
    assert "🔕 cap |" in out
    assert "waived until 2027-01-31: until the optimizer is sharded" in out
    assert "tiny may exceed cap until 2027-01-31: until the optimizer is sharded" in out
    code, out, _ = repo.run("diff", "--today", "2027-02-01")
    assert code == 1
    assert "its waiver expired on 2027-01-31" in out
    assert repo.run("run", "specs")[0] in (0, 1)
    assert "cap, until 2027-01-31: until the optimizer is sharded" in (repo.root / "reports/capacity.md").read_text(encoding="utf-8")
    assert "cap, until 2027-01-31: until the optimizer is sharded" in repo.run("show", "specs/tiny.yaml")[1]


def test_waivers_of_unchanged_models_are_shown(repo: Repo) -> None:
    repo.write(spec() + WAIVED)
    repo.write(budget("params_total", max="1000"), "planner.yaml")
    base = repo.commit()
    repo.write(spec("other", n_layers="1"), "specs/other.yaml")
    reported = repo.review("--base", base, "--today", "2027-01-01")
    assert reported["waivers"][0]["model"] == "tiny"
    assert reported["waivers"][0]["waiver"]["until"] == "2027-01-31"


def test_a_waiver_for_an_unknown_budget_is_a_warning(repo: Repo) -> None:
    repo.write(spec() + WAIVED)
    (finding,) = repo.review()["findings"]
    assert (finding["severity"], finding["place"]["line"]) == ("warning", 12)
    assert finding["message"] == "waiver for unknown budget 'cap'"


def test_a_waiver_for_a_budget_of_other_models_is_a_warning(repo: Repo) -> None:
    repo.write(spec() + WAIVED)
    repo.write(budget("params_total", max="1M", models="[other]"), "planner.yaml")
    repo.write(spec("other"), "specs/other.yaml")
    (finding,) = repo.review()["findings"]
    assert (finding["severity"], finding["place"]["line"]) == ("warning", 12)
    assert finding["message"] == "waiver for budget 'cap', which does not apply to this model"


@pytest.mark.parametrize(
    ("terms", "line", "message"),
    [
        ({"models": "['large-*']"}, 5, "'large-*' matches no model"),
        ({"models": "[tiny, nobody]"}, 5, "'nobody' matches no model"),
        ({"tags": "[prod, 'production*']"}, 5, "'production*' matches no tag"),
        ({"scenarios": "[long]"}, 5, "'long' matches no scenario"),
        ({"models": "[tiny]", "tags": "[prod]"}, 2, "budget cap applies to no model"),
    ],
)
def test_a_pattern_that_matches_nothing_is_a_warning_at_its_line(repo: Repo, terms: dict[str, str], line: int, message: str) -> None:
    repo.write(spec("other") + "tags: [prod, production]\n", "specs/other.yaml")
    repo.write(budget("params_total", max="1M", **terms), "planner.yaml")
    (finding,) = repo.review()["findings"]
    place = finding["place"]
    assert isinstance(place, dict)
    assert (finding["rule"], finding["severity"], place["file"], place["line"]) == ("unmatched", "warning", "planner.yaml", line)
    assert finding["message"] == message
    assert repo.review("specs/other.yaml")["findings"] == []  # the other specs are not read


def test_a_path_of_the_policy_that_matches_nothing_is_a_warning(repo: Repo) -> None:
    repo.git("mv", "specs", "models")
    repo.write("specs: [models, specs/]\n", "planner.yaml")
    (finding,) = repo.review()["findings"]
    assert (finding["rule"], finding["severity"], finding["message"]) == ("unmatched", "warning", "'specs/' matches no spec")
    assert finding["place"] == {"file": "planner.yaml", "line": 1, "column": 17}


@pytest.mark.parametrize("until", ["2027-02-30", "soon", "2027-1-1", "20270101", "２０２７-01-01"])
def test_a_waiver_needs_a_valid_date(repo: Repo, until: str) -> None:
    repo.write(spec() + f"waivers: [{{budget: cap, reason: r, until: '{until}'}}]\n")
    code, _, err = repo.run("validate", "specs")
    assert code == 1
    assert f"error[date]: invalid date '{until}' for waivers[0].until; use YYYY-MM-DD, for example 2027-01-31" in err


def test_waivers_and_tags_are_not_inherited(repo: Repo) -> None:
    repo.write(spec() + WAIVED + "tags: [production]\n")
    path = repo.write("name: child\nextends: tiny.yaml\n", "specs/child.yaml")
    loaded, parent = planner.load(path), planner.load(repo.root / "specs/tiny.yaml")
    assert (loaded.waivers, loaded.tags) == ((), ())
    assert (parent.waivers[0].until, parent.tags) == (date(2027, 1, 31), ("production",))


@pytest.mark.parametrize(
    ("name", "layers", "says"),
    [
        ("mine-7m", 140, ""),  # within a tenth
        ("mine-5m", 140, "name suggests 5m, but params_total is 7.013 M (40.3 % more)"),
        ("mine-8B-chat", 140, "name suggests 8B, but params_total is 7.013 M (99.9 % less)"),
        ("5M_mine", 140, "name suggests 5M, but params_total is 7.013 M (40.3 % more)"),
        ("mine-7m-a2m", 140, "name suggests a2m, but params_active is 7.013 M (250.6 % more)"),
        ("mine-7.0m", 140, ""),
        ("mine-1m", 28, ""),  # 1,414,528 rounds to 1 M
        ("mine-1m", 30, "name suggests 1m, but params_total is 1.514 M (51.4 % more)"),  # 14,976 + 30·49,984
        ("mine-1.2m", 28, "name suggests 1.2m, but params_total is 1.415 M (17.9 % more)"),  # 14,976 + 28·49,984
        ("mine-7m-1b", 140, ""),  # the first size is that of the model
        ("mixture-8x5m", 140, ""),  # a product of experts and size is not checked
        ("adam-8bit", 140, ""),
        ("mine-4k", 140, ""),
        ("v5", 140, ""),
    ],
)
def test_a_size_in_a_name_is_checked_against_the_parameters(repo: Repo, name: str, layers: int, says: str) -> None:
    # 14,976 + 140·49,984 = 7,012,736
    repo.write(spec(name, n_layers=str(layers)), "specs/labelled.yaml")
    labels = found(repo.review(), "size_label")
    assert [finding["message"] for finding in labels] == ([says] if says else [])
    if says:
        assert labels[0]["place"] == {"file": "specs/labelled.yaml", "line": 1, "column": 7}
        assert labels[0]["severity"] == "warning"


def test_the_policy_and_waivers_apply_to_size_labels(repo: Repo) -> None:
    waiver = "waivers: [{budget: size_label, reason: the family's name, until: 2027-01-31}]\n"
    repo.write(spec("mine-5m", n_layers="140"), "specs/labelled.yaml")
    cases = {"{severity: error}": ["error"], "{severity: 'off'}": [], "{tolerance: 50%}": [], "{tolerance: 40%}": ["warning"]}
    for policy, severities in cases.items():
        repo.write(f"size_label: {policy}\n", "planner.yaml")
        assert [finding["severity"] for finding in found(repo.review(), "size_label")] == severities
    repo.write(spec("mine-5m", n_layers="140") + waiver, "specs/labelled.yaml")
    assert [finding["severity"] for finding in found(repo.review("--today", "2027-01-01"), "size_label")] == ["waived"]


def test_a_failed_expected_value_is_a_finding_at_its_line(repo: Repo) -> None:
    repo.write(spec() + f"expect: {{params_total: {TINY_PARAMS + 1}}}\n")
    (finding,) = repo.review()["findings"]
    assert (finding["rule"], finding["severity"], finding["model"]) == ("expect", "error", "tiny")
    assert finding["place"] == {"file": "specs/tiny.yaml", "line": 12, "column": 24}
    assert finding["message"] == "params_total is 114,944, expected 114,945 (1 less)"


def test_run_reports_exceeded_budgets_and_writes_its_reports(repo: Repo) -> None:
    repo.write(budget("params_total", max="1000", message="Ask us."), "planner.yaml")
    code, out, err = repo.run("run", "specs")
    assert code == 1
    assert "tiny" in out
    assert err.splitlines()[-1] == (
        "specs/tiny.yaml:1: error[budget:cap]: tiny: params_total 114.9 k exceeds budget cap (1000) by 113.9 k (planner.yaml:4); Ask us."
    )
    assert (repo.root / "reports/capacity.csv").exists()
    assert repo.run("run", "specs", "--check")[0] == 1
    repo.write(budget("params_total", max="1M"), "planner.yaml")
    assert repo.run("run", "specs", "--check")[0] == 0


SERVING = "serving: {batch_size: 2, prompt: 16, output: 2}\n"


def test_budgets_limit_figures_of_serving(repo: Repo) -> None:
    repo.write(spec() + SERVING)
    repo.commit()
    # 2 layers of 64 keys and values of 4 bytes: 1,024 bytes a token; the cache of 3 sequences of 16 tokens is 48 KiB, of 2 it is 32 KiB
    repo.write("budgets: [{name: cache, figure: serving_cache_bytes, max: 40KiB}]\n", "planner.yaml")
    repo.write(spec() + SERVING.replace("batch_size: 2", "weights: fp32, batch_size: 3"))
    code, out, _ = repo.run("diff", "--base", "HEAD")
    assert code == 1
    assert "serving.batch_size 2 → 3" in out
    assert "serving_cache_bytes 48.00 KiB exceeds budget cache (40KiB) by 8.000 KiB" in out
