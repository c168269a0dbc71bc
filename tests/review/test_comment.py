"""One comment on a pull request, at four forges for which a local server stands in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from planner.cli import main
from planner.report.markdown import escape
from planner.review import forges
from planner.review.forges import without_html
from planner.review.markdown import markdown
from planner.review.review import Finding, Review
from planner.spec.records import Place
from tests.hostile_words import WORDS
from tests.test_hostile_words import Page, shown

from .stand_in import TOKEN, StandIn

NAMES = ("github", "gitlab", "bitbucket", "azure")
each_forge = pytest.mark.parametrize("name", NAMES)
REPORT = "## Model capacity\n\n| a | b |\n| --- | --- |\n| <code>n_layers</code><br>é → 😀 | 1 |\n"
PLAIN = "## Model capacity\n\n| a | b |\n| --- | --- |\n| n_layers / é → 😀 | 1 |\n"


def variables(name: str, url: str, run: int, folder: Path) -> dict[str, str]:
    """Return what the CI of a forge sets in a run for a pull request."""
    event = folder / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}), encoding="utf-8")
    return {
        "github": {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": url,
            "GITHUB_REPOSITORY": "owner/name",
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_RUN_NUMBER": str(run),
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_TOKEN": TOKEN,
        },
        "gitlab": {
            "GITLAB_CI": "true",
            "CI_API_V4_URL": f"{url}/gitlab",
            "CI_MERGE_REQUEST_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_IID": "9",
            "CI_PIPELINE_ID": str(run),
            "CI_JOB_ID": "1",
            "GITLAB_TOKEN": TOKEN,
        },
        "bitbucket": {
            "BITBUCKET_BUILD_NUMBER": str(run),
            "BITBUCKET_STEP_RUN_NUMBER": "1",
            "BITBUCKET_REPO_FULL_NAME": "team/repo",
            "BITBUCKET_PR_ID": "9",
            "BITBUCKET_TOKEN": TOKEN,
        },
        "azure": {
            "TF_BUILD": "True",
            "SYSTEM_COLLECTIONURI": f"{url}/azure/",
            "SYSTEM_TEAMPROJECT": "a b",
            "BUILD_REPOSITORY_ID": "some-guid",
            "BUILD_REPOSITORY_PROVIDER": "TfsGit",
            "SYSTEM_PULLREQUEST_PULLREQUESTID": "9",
            "BUILD_BUILDID": str(run),
            "SYSTEM_JOBATTEMPT": "1",
            "SYSTEM_ACCESSTOKEN": TOKEN,
        },
    }[name]


def entry(name: str, number: int, body: str, *, ours: bool) -> dict[str, Any]:
    """Return a comment in the shape of the forge."""
    return {
        "github": {"id": number, "body": body, "user": {"type": "Bot" if ours else "User"}},
        "gitlab": {"id": number, "body": body, "author": {"id": 7 if ours else 8}},
        "bitbucket": {"id": number, "content": {"raw": body}, "deleted": False},
        "azure": {"id": number, "isDeleted": False, "comments": [{"id": 1, "content": body}]},
    }[name]


def text_of(one: dict[str, Any]) -> str:
    text: str = one.get("body") or one.get("content", {}).get("raw") or one["comments"][0]["content"]
    return text


def marked(name: str, run: int, *, id_: str = "default", report: str | None = None) -> str:
    """Return a comment's text: the marker is hidden in the first line, except on Bitbucket, which escapes HTML."""
    marker = f"modelplan-review id={id_} run={run}.1"
    return f"{report or PLAIN}\n_{marker}_\n" if name == "bitbucket" else f"<!-- {marker} -->\n{report or REPORT}"


Post = Callable[..., tuple[int, str]]


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stand_in: StandIn) -> Post:
    """Run the command as in a CI; return the exit code and the output, which never has the token."""
    monkeypatch.setattr(forges, "BITBUCKET_API", f"{stand_in.url}/bitbucket")
    for name in forges.FORGES:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "review.md"

    def run(name: str, *arguments: str, run: int = 5, report: str = REPORT, without: str = "", **changed: str) -> tuple[int, str]:
        file.write_text(report, encoding="utf-8")
        with monkeypatch.context() as context:
            for variable, value in (variables(name, stand_in.url, run, tmp_path) | changed).items():
                if variable != without:
                    context.setenv(variable, value)
            code = main(["comment", str(file), *arguments])
        out, err = capsys.readouterr()
        assert TOKEN not in out + err
        assert "Traceback" not in err
        return code, out + err

    return run


@each_forge
def test_a_comment_is_created_then_updated(name: str, post: Post, stand_in: StandIn) -> None:
    assert post(name)[0] == 0
    assert [text_of(one) for one in stand_in.entries] == [marked(name, 5)]
    code, out = post(name, run=6, report="## New\n")
    assert (code, out.startswith("updated the comment")) == (0, True)
    assert [text_of(one) for one in stand_in.entries] == [marked(name, 6, report="## New\n")]


@each_forge
def test_the_comment_is_found_on_a_later_page_among_others(name: str, post: Post, stand_in: StandIn) -> None:
    stand_in.entries += [entry(name, number, f"looks good {number}", ours=number % 2 == 0) for number in range(7)]
    stand_in.entries += [entry(name, 7, marked(name, 999, id_="other"), ours=True), entry(name, 8, f"x\n{marked(name, 999)}\nx", ours=True)]
    before = [text_of(one) for one in stand_in.entries]
    for run in (5, 6):
        assert post(name, run=run)[0] == 0
        assert [text_of(one) for one in stand_in.entries] == [*before, marked(name, run)]


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_an_older_run_changes_nothing_and_a_forged_marker_stops_nothing(name: str, post: Post, stand_in: StandIn) -> None:
    forged = entry(name, 1, marked(name, 999), ours=False)
    stand_in.entries.append(forged)
    post(name, run=5)
    code, out = post(name, run=4, report="## Old\n")
    assert (code, out) == (0, "no comment: a later run has commented\n")
    assert [text_of(one) for one in stand_in.entries] == [marked(name, 999), marked(name, 5)]


@pytest.mark.parametrize("name", ["bitbucket", "azure"])
def test_a_forged_marker_does_not_silence_a_forge_that_names_no_author(name: str, post: Post, stand_in: StandIn) -> None:
    stand_in.entries.append(entry(name, 1, marked(name, 999), ours=False))
    stand_in.denied = {"PUT": 403, "PATCH": 403}  # of the comments of others
    assert post(name)[0] == 2


def test_deleted_comments_are_not_updated(post: Post, stand_in: StandIn) -> None:
    stand_in.entries.append(entry("bitbucket", 1, marked("bitbucket", 1), ours=True) | {"deleted": True})
    assert post("bitbucket")[1].startswith("created")
    stand_in.entries[:] = [entry("azure", 1, marked("azure", 1), ours=True) | {"isDeleted": True}, {"id": 2, "comments": []}]
    assert post("azure")[1].startswith("created")


@each_forge
@pytest.mark.parametrize("code", [302, 401, 403, 404, 422, 500, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_refusal_names_the_code_and_never_the_token(name: str, code: int, method: str, post: Post, stand_in: StandIn) -> None:
    stand_in.denied = {method: code}
    exit_code, out = post(name)
    assert (exit_code, stand_in.entries) == (2, [])
    assert f"refused {method} with {code}" in out
    if code in (401, 403, 404):
        assert f"{name.upper() if name != 'azure' else 'SYSTEM'}_" in out
    exit_code, out = post(name, "--optional")
    assert (exit_code, out.startswith("no comment was posted: ")) == (0, True)


@each_forge
@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"3", b'"a"', b"[[]]", b"[3]", b'{"values": 3}', b'{"value": [{}]}', b"\xff", b"[" * 9999]
)
def test_an_answer_of_another_shape_is_an_error(name: str, answer: bytes, post: Post, stand_in: StandIn) -> None:
    stand_in.answer = answer
    code, out = post(name)
    assert code in (0, 2)  # a list without comments may have any shape
    assert "bug in planner" not in out


@each_forge
def test_no_server_is_an_error(name: str, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = "http://127.0.0.1:9"  # the port of discard, where nothing listens
    monkeypatch.setattr(forges, "BITBUCKET_API", nobody)
    code, out = post(name, GITHUB_API_URL=nobody, CI_API_V4_URL=nobody, SYSTEM_COLLECTIONURI=nobody)
    assert (code, "was not reached" in out) == (2, True)


def test_the_token_is_sent_to_one_server_only(post: Post, stand_in: StandIn) -> None:
    stand_in.entries += [entry("github", number, "x", ours=True) for number in range(5)]
    for elsewhere in ("http://127.0.0.1:9/x", "file:///etc/passwd", "https://example.org/"):
        stand_in.next_page = elsewhere
        code, out = post("github")
        assert (code, "the token is not sent to another address" in out) == (2, True)
    assert post("github", GITHUB_API_URL="file:///etc")[0] == 2


@each_forge
def test_a_run_that_is_not_for_a_pull_request_posts_nothing(name: str, post: Post, stand_in: StandIn) -> None:
    number = {
        "github": "GITHUB_EVENT_PATH",
        "gitlab": "CI_MERGE_REQUEST_IID",
        "bitbucket": "BITBUCKET_PR_ID",
        "azure": "SYSTEM_PULLREQUEST_PULLREQUESTID",
    }[name]
    assert post(name, without=number) == (0, "no comment: this run is not for a pull request\n")
    assert stand_in.calls == []


@each_forge
def test_a_missing_variable_is_named(name: str, post: Post, stand_in: StandIn, tmp_path: Path) -> None:
    token = next(variable for variable in variables(name, "", 1, tmp_path) if variable.endswith("TOKEN"))
    code, out = post(name, without=token)
    assert (code, f"the variable {token} is not set" in out) == (2, True)
    code, out = post(name, **{token: f"{TOKEN}\nX-Other: 1"})
    assert (code, f"the variable {token} has characters that no token has" in out) == (2, True)
    assert stand_in.calls == []


def test_outside_a_ci_and_at_another_forge_nothing_is_posted(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the repository is at GitHub, not in Azure Repos" in post("azure", BUILD_REPOSITORY_PROVIDER="GitHub")[1]
    monkeypatch.delenv("TF_BUILD", raising=False)
    code, out = post("azure", without="TF_BUILD")
    assert (code, "no CI recognized" in out) == (2, True)


@pytest.mark.parametrize(("name", "limit"), [("github", 65_536), ("gitlab", 1_000_000), ("bitbucket", 32_767), ("azure", 150_000)])
def test_the_longest_comment_of_each_forge(name: str, limit: int, post: Post, stand_in: StandIn) -> None:
    room = limit - len(marked(name, 5, report=" "))
    code, out = post(name, report=f"😀{'x' * room}")  # two UTF-16 units
    assert (code, f"{name}".capitalize()[:3] in out.replace("GitHub", "Github").replace("GitLab", "Gitlab")) == (2, True)
    assert "planner diff --limit" in out
    assert stand_in.calls == []
    assert post(name, report=f"{'x' * (room + 1)}")[0] == 0


@pytest.mark.parametrize(
    ("when", "review", "posted"),
    [
        ("on-change", {"changed": 0, "policy_edits": [], "findings": []}, False),
        ("on-change", {"changed": 1, "policy_edits": [], "findings": []}, True),
        ("on-change", {"changed": 0, "policy_edits": [1], "findings": []}, True),
        ("on-finding", {"changed": 1, "policy_edits": [1], "findings": []}, False),
        ("on-finding", {"changed": 0, "policy_edits": [], "findings": [1]}, True),
    ],
)
def test_when_a_comment_is_created(when: str, review: dict[str, Any], posted: bool, post: Post, stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "review.json"
    file.write_text(json.dumps(review), encoding="utf-8")
    code, out = post("gitlab", "--when", when, "--review", str(file))
    assert (code, bool(stand_in.entries)) == (0, posted)
    assert posted or out == "no comment: nothing to report\n"


@pytest.mark.parametrize("arguments", [("--when", "on-change"), ("--when", "x"), ("--id", "a b"), ("--id", ""), ("--review", "missing")])
def test_bad_arguments_exit_with_2(arguments: tuple[str, ...], post: Post, stand_in: StandIn) -> None:
    when = ("--when", "on-change") if arguments[0] == "--review" else ()
    try:
        code = post("gitlab", *arguments, *when)[0]
    except SystemExit as exit_:
        code = int(str(exit_.code))
    assert (code, stand_in.calls) == (2, [])


@pytest.mark.parametrize("review", [b"", b"3", b"[]", b"{}", b"\xff", b"[" * 9999])
def test_a_file_that_is_no_review_exits_with_2(review: bytes, post: Post, tmp_path: Path) -> None:
    file = tmp_path / "review.json"
    file.write_bytes(review)
    assert post("gitlab", "--when", "on-change", "--review", str(file))[0] == 2


def test_a_pipe_is_not_waited_for(post: Post, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, out = post("gitlab", "--when", "on-change", "--review", str(tmp_path / "pipe"))
    assert (code, "is not a regular file" in out) == (2, True)


def test_a_review_without_html_is_not_longer_and_has_its_links() -> None:
    findings = tuple(Finding("rule", "error", word, Place("specs/a.yaml", 3, 1), "tiny") for word in WORDS)
    report = markdown(Review("main", (), findings), blob="https://example.org/src")
    plain = without_html(report)
    assert len(plain) <= len(report)
    assert "[specs/a.yaml:3](https://example.org/src/specs/a.yaml#L3)" in plain
    for tag in ("<a ", "</a>", "<br>", "<code>", "<sub>", "&#8203;"):
        assert tag not in plain


@pytest.mark.parametrize("word", WORDS, ids=ascii)
def test_a_word_without_html_is_still_literal(word: str) -> None:
    renderer = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    for around in ("x {} x", "- x {}", "| h |\n| --- |\n| x {} |"):
        plain, page = (Page(renderer.render(around.format(text))) for text in ("x", without_html(escape(word))))
        assert page.tags == plain.tags
        assert shown(word) in shown(page.text.replace("\N{ZERO WIDTH SPACE}", "")) or "\N{ZERO WIDTH SPACE}" in word
