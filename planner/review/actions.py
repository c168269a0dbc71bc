"""The steps of the GitHub action, from the environment and the event file of a run; nothing is sent.

``python -m planner.review.actions base`` prints the revision to compare with, ``pull-request`` the number of the pull request.
``outputs FOLDER`` prints the outputs for the review in the folder, as ``name=value`` lines. ``comment FOLDER`` reads the review and the
pull request's comments there, writes ``body.json``, and prints ``create``, ``update ID`` or ``none REASON``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Environment = Mapping[str, str]

MODES = ("always", "on-change", "on-finding", "never")
MOST = 65_536  # GitHub's limit for a comment, in characters
_MARKER = re.compile(r"<!-- modelplan-review id=(?P<id>[\w.-]*) run=(?P<run>\d{1,18})\.(?P<attempt>\d{1,9}) -->")
_ID = re.compile(r"[\w.-]{1,100}")
_REVISION = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NONE = "0" * 40  # what GitHub names as the commit before the first of a branch


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """A run of a workflow; later runs have greater numbers, later attempts of a run greater attempts."""

    number: int
    attempt: int

    def is_older_than(self, other: WorkflowRun) -> bool:
        """Whether the other run began later."""
        return (self.number, self.attempt) < (other.number, other.attempt)


def event(environment: Environment) -> Mapping[str, Any]:
    """Return the event that started the run."""
    path = environment.get("GITHUB_EVENT_PATH")
    read: Any = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return read if isinstance(read, dict) else {}


def base(environment: Environment) -> str:
    """Return the revision to compare with: the merge base with a pull request's target, or the commit before a push; empty: default."""
    data = event(environment)
    pull, queue = data.get("pull_request") or {}, data.get("merge_group") or {}
    for commit in ((pull.get("base") or {}).get("sha"), queue.get("base_sha")):
        if commit and _REVISION.fullmatch(str(commit)):
            return f"{commit}..."
    before = str(data.get("before") or _NONE)
    return before if _REVISION.fullmatch(before) and before != _NONE and not pull else ""


def pull_request(environment: Environment) -> int | None:
    """Return the number of the pull request that the run is for."""
    number = (event(environment).get("pull_request") or {}).get("number")
    return number if isinstance(number, int) else None


def outputs(review: Mapping[str, Any]) -> dict[str, str]:
    """Return the action's outputs."""
    errors = sum(finding["severity"] == "error" for finding in review["findings"])
    return {
        "changed": str(review["changed"]),
        "policy-changes": str(len(review["policy_edits"])),
        "findings": str(errors),
        "failed": "true" if review["failed"] else "false",
    }


def comment(review: Mapping[str, Any], report: str, comments: Sequence[Mapping[str, Any]], environment: Environment) -> tuple[str, str]:
    """Return what to do with the comment, ``create``, ``update ID`` or ``none REASON``, and its body.

    The comment is found by its hidden first line among those of bots, so a person's comment is never changed. The comment of a later run is
    kept. Unless the mode is ``never``, an existing comment is always updated, so that it does not become outdated.
    """
    mode, name = environment.get("MODELPLAN_COMMENT", "on-change"), environment.get("MODELPLAN_COMMENT_ID", "default")
    if mode not in MODES:
        raise ValueError(f"comment is {mode!r}; it can be {', '.join(MODES)}")
    if not _ID.fullmatch(name):
        raise ValueError("comment-id is made of letters, digits, dots, hyphens and underscores")
    own = WorkflowRun(int(environment.get("GITHUB_RUN_NUMBER", "0")), int(environment.get("GITHUB_RUN_ATTEMPT", "1")))
    body = f"<!-- modelplan-review id={name} run={own.number}.{own.attempt} -->\n{report}"
    if mode == "never":
        return "none comments are switched off", body
    if len(body) >= MOST:
        return "none the report is longer than a comment may be", body
    there = next(((one, run) for one, run in _ours(comments, name)), None)
    if there is not None:
        one, run = there
        return ("none a later run has commented" if own.is_older_than(run) else f"update {int(one['id'])}"), body
    wanted = {
        "always": True,
        "on-change": review["changed"] or review["policy_edits"] or review["findings"],
        "on-finding": review["findings"],
    }[mode]
    return ("create" if wanted else "none nothing to report"), body


def _ours(comments: Sequence[Mapping[str, Any]], name: str) -> Iterator[tuple[Mapping[str, Any], WorkflowRun]]:
    for one in comments:
        first = str(one.get("body") or "").split("\n", 1)[0].strip()
        marker = _MARKER.fullmatch(first)
        if marker and marker["id"] == name and (one.get("user") or {}).get("type") == "Bot":
            yield one, WorkflowRun(int(marker["run"]), int(marker["attempt"]))


def pages(text: str) -> list[Mapping[str, Any]]:
    """Return the comments in what ``gh api --paginate`` prints: one JSON array, or one for each page."""
    decoder, found, at = json.JSONDecoder(), list[Mapping[str, Any]](), 0
    while at < len(text):
        page, end = decoder.raw_decode(text, at)
        found += [one for one in page if isinstance(one, dict)]
        at = len(text) - len(text[end:].lstrip())
    return found


def main(arguments: Sequence[str], environment: Environment) -> int:
    """Run the step that the arguments name."""
    what, folder = arguments[0], Path(arguments[1] if len(arguments) > 1 else ".")
    if what == "base":
        result = base(environment)
    elif what == "pull-request":
        result = str(pull_request(environment) or "")
    else:
        review = json.loads((folder / "review.json").read_text(encoding="utf-8"))
        if what == "outputs":
            result = "\n".join(f"{name}={value}" for name, value in outputs(review).items())
        else:
            report = (folder / "review.md").read_text(encoding="utf-8")
            try:
                result, body = comment(review, report, pages((folder / "comments.json").read_text(encoding="utf-8")), environment)
            except ValueError as error:
                sys.stderr.write(f"{error}\n")
                return 2
            (folder / "body.json").write_text(json.dumps({"body": body}), encoding="utf-8")
    sys.stdout.write(f"{result}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
