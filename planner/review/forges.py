"""Where the comments of a pull request are: GitHub, GitLab, Bitbucket Cloud and Azure Repos, from the variables of their CI.

Sources: docs.github.com, REST API, issue comments; docs.gitlab.com, Notes API and CI/CD job tokens (a job token can only read notes);
developer.atlassian.com, Bitbucket Cloud, pull requests; learn.microsoft.com, Azure DevOps, pull request threads. GitLab documents its limit
of characters; the others are those of error messages: 65,536 (GitHub), "less than 32768" (Bitbucket), 150,000 (Azure).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

Environment = Mapping[str, str]
Json = Mapping[str, Any]

BITBUCKET_API = "https://api.bitbucket.org/2.0"
_TAGS = (  # Bitbucket escapes HTML; these are all the tags of a review, whose texts are escaped
    (re.compile(r"<a href=\"([^\"]*)\">(.*?)</a>"), r"[\2](\1)"),
    (re.compile(r"<summary>(.*?)</summary>"), r"**\1**"),
    (re.compile(r"<br>"), " / "),
    (re.compile(r"</?(?:code|details|sub)>"), ""),
)
_CHARACTER = re.compile(r"&#(\d+);")
_ESCAPABLE = set("\\`*_{}[]()#+-.!|>")


class ForgeError(Exception):
    """Why no comment can be posted, and the fix."""


class Run(NamedTuple):
    """A run of a pipeline; later runs have greater numbers, later attempts of a run greater attempts."""

    number: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of a pull request. ``ours``: whether the token's user wrote it; None: the forge does not tell."""

    url: str  # of its update
    body: str
    ours: bool | None


@dataclass(frozen=True, slots=True)
class Forge:
    """A pull request, and how its comments are read and written."""

    name: str
    limit: int  # of a comment, in characters
    variable: str  # where the token is
    headers: Mapping[str, str]
    comments: str  # URL: GET lists them, POST adds one
    read: Callable[[Json, Json], Comment | None]  # an entry of the list, and the token's user
    new: Callable[[str], Json]  # the body of a POST
    update: str  # the method for a change
    changed: Callable[[str], Json]  # its body
    run: Run
    user: str = ""  # URL of the token's user; empty: not needed
    html: bool = True  # whether comments may have HTML


def github(environment: Environment) -> Forge | None:
    """Return the pull request of a run of GitHub Actions."""
    number = (event(environment).get("pull_request") or {}).get("number")
    if not isinstance(number, int):
        return None
    api = f"{environment.get('GITHUB_API_URL') or 'https://api.github.com'}/repos/{_variable(environment, 'GITHUB_REPOSITORY')}/issues"

    def read(one: Json, _user: Json) -> Comment:
        # The token of a workflow belongs to a bot, which has no user to compare with.
        return Comment(f"{api}/comments/{int(one['id'])}", str(one.get("body") or ""), (one.get("user") or {}).get("type") == "Bot")

    accept = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    return Forge(
        name="GitHub",
        limit=65_536,
        variable="GITHUB_TOKEN",
        headers={"Authorization": f"Bearer {_token(environment, 'GITHUB_TOKEN')}", **accept},
        comments=f"{api}/{number}/comments?per_page=100",
        read=read,
        new=_body,
        update="PATCH",
        changed=_body,
        run=_run(environment, "GITHUB_RUN_NUMBER", "GITHUB_RUN_ATTEMPT"),
    )


def gitlab(environment: Environment) -> Forge | None:
    """Return the merge request of a pipeline of GitLab."""
    number = environment.get("CI_MERGE_REQUEST_IID")
    if not number:
        return None
    api = _variable(environment, "CI_API_V4_URL")
    notes = f"{api}/projects/{quote(_variable(environment, 'CI_MERGE_REQUEST_PROJECT_ID'), safe='')}/merge_requests/{quote(number)}/notes"

    def read(one: Json, user: Json) -> Comment:
        return Comment(f"{notes}/{int(one['id'])}", str(one.get("body") or ""), (one.get("author") or {}).get("id") == user["id"])

    return Forge(
        name="GitLab",
        limit=1_000_000,
        variable="GITLAB_TOKEN",
        headers={"PRIVATE-TOKEN": _token(environment, "GITLAB_TOKEN")},
        comments=f"{notes}?per_page=100",
        read=read,
        new=_body,
        update="PUT",
        changed=_body,
        run=_run(environment, "CI_PIPELINE_ID", "CI_JOB_ID"),
        user=f"{api}/user",
    )


def bitbucket(environment: Environment) -> Forge | None:
    """Return the pull request of a pipeline of Bitbucket Cloud."""
    number = environment.get("BITBUCKET_PR_ID")
    if not number:
        return None
    repository = quote(_variable(environment, "BITBUCKET_REPO_FULL_NAME"))
    comments = f"{BITBUCKET_API}/repositories/{repository}/pullrequests/{quote(number)}/comments"

    def read(one: Json, _user: Json) -> Comment | None:
        text = str((one.get("content") or {}).get("raw") or "")
        return None if one.get("deleted") else Comment(f"{comments}/{int(one['id'])}", text, ours=None)

    def content(text: str) -> Json:
        return {"content": {"raw": text}}

    return Forge(
        name="Bitbucket",
        limit=32_767,
        variable="BITBUCKET_TOKEN",
        headers={"Authorization": f"Bearer {_token(environment, 'BITBUCKET_TOKEN')}", "Accept": "application/json"},
        comments=f"{comments}?pagelen=100",
        read=read,
        new=content,
        update="PUT",
        changed=content,
        run=_run(environment, "BITBUCKET_BUILD_NUMBER", "BITBUCKET_STEP_RUN_NUMBER"),
        html=False,
    )


def azure(environment: Environment) -> Forge | None:
    """Return the pull request of a run of Azure Pipelines. A comment is a thread of its own, closed, so that it blocks no merge."""
    number = environment.get("SYSTEM_PULLREQUEST_PULLREQUESTID")
    if not number:
        return None
    if (provider := environment.get("BUILD_REPOSITORY_PROVIDER", "TfsGit")) != "TfsGit":
        raise ForgeError(f"the repository is at {provider}, not in Azure Repos")
    project = f"{_variable(environment, 'SYSTEM_COLLECTIONURI').rstrip('/')}/{quote(_variable(environment, 'SYSTEM_TEAMPROJECT'))}"
    repository = quote(_variable(environment, "BUILD_REPOSITORY_ID"))
    threads, version = f"{project}/_apis/git/repositories/{repository}/pullRequests/{quote(number)}/threads", "api-version=7.0"

    def read(one: Json, _user: Json) -> Comment | None:
        first = next(iter(one.get("comments") or ()), None)
        if first is None or one.get("isDeleted") or first.get("isDeleted"):
            return None
        url = f"{threads}/{int(one['id'])}/comments/{int(first['id'])}?{version}"
        return Comment(url, str(first.get("content") or ""), ours=None)

    def content(text: str) -> Json:
        return {"parentCommentId": 0, "content": text, "commentType": "text"}

    def thread(text: str) -> Json:
        return {"comments": [content(text)], "status": "closed"}

    return Forge(
        name="Azure Repos",
        limit=150_000,
        variable="SYSTEM_ACCESSTOKEN",
        headers={"Authorization": f"Bearer {_token(environment, 'SYSTEM_ACCESSTOKEN')}", "Accept": "application/json"},
        comments=f"{threads}?{version}",
        read=read,
        new=thread,
        update="PATCH",
        changed=content,
        run=_run(environment, "BUILD_BUILDID", "SYSTEM_JOBATTEMPT"),
    )


FORGES: Mapping[str, Callable[[Environment], Forge | None]] = {  # by a variable that only their CI sets
    "GITHUB_ACTIONS": github,
    "GITLAB_CI": gitlab,
    "BITBUCKET_BUILD_NUMBER": bitbucket,
    "TF_BUILD": azure,
}


def find(environment: Environment) -> Forge | None:
    """Return the pull request that this run of a CI is for, if it is for one. Raises ForgeError."""
    for variable, forge in FORGES.items():
        if environment.get(variable):
            try:
                return forge(environment)
            except (ValueError, RecursionError):
                raise ForgeError("the event of the run is no JSON") from None
    raise ForgeError(f"no CI recognized: none of {', '.join(FORGES)} is set")


def event(environment: Environment) -> Json:
    """Return the event that started a run of GitHub Actions."""
    path = environment.get("GITHUB_EVENT_PATH")
    read: Any = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return read if isinstance(read, dict) else {}


def without_html(report: str) -> str:
    """Return the Markdown of a review without tags and character references. It is never longer."""
    for tag, plain in _TAGS:
        report = tag.sub(plain, report)
    return _CHARACTER.sub(_character, report)


def _character(match: re.Match[str]) -> str:
    char = chr(int(match[1]))
    if char in "<~":  # not every Markdown has escapes for them
        return f"{char}\u200b"
    return f"\\{char}" if char in _ESCAPABLE else char


def _body(text: str) -> Json:
    return {"body": text}


def _variable(environment: Environment, name: str) -> str:
    if value := environment.get(name):
        return value
    raise ForgeError(f"the variable {name} is not set")


def _token(environment: Environment, name: str) -> str:
    token = _variable(environment, name).strip()
    if not re.fullmatch(r"[!-~]+", token):  # or http.client would print it in an error
        raise ForgeError(f"the variable {name} has characters that no token has")
    return token


def _run(environment: Environment, number: str, attempt: str) -> Run:
    numbers = (environment.get(name, "") for name in (number, attempt))
    return Run(*(int(value) if re.fullmatch(r"\d{1,18}", value, re.ASCII) else 0 for value in numbers))
