"""Post a review as one comment on the pull request of a CI run.

Creates the comment, or updates the one of an earlier run. FILE is the review that planner diff --output md=FILE wrote. Variables of GitHub
Actions, GitLab CI, Bitbucket Pipelines and Azure Pipelines name the pull request; the token is in GITHUB_TOKEN, GITLAB_TOKEN,
BITBUCKET_TOKEN or SYSTEM_ACCESSTOKEN. Without a pull request, nothing is posted. Exits with 2 if the comment cannot be posted.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from pathlib import Path

from planner.cli.command import FINE
from planner.cli.streams import fail

EXAMPLES = (("planner comment review.md", "post a review that planner diff wrote as a comment on the pull request"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from planner.review.comment import WHEN

    parser.add_argument("file", metavar="FILE", type=Path, help="review in Markdown")
    parser.add_argument("--review", metavar="FILE", type=Path, help="the same review in JSON, which --when needs")
    parser.add_argument(
        "--when", choices=WHEN, default="always", help="when to create a comment; an existing one is updated (default: always)"
    )
    parser.add_argument("--id", metavar="ID", type=_id, default="default", help="name that separates several comments on one pull request")
    parser.add_argument("--optional", action="store_true", help="exit 0 if the comment cannot be posted, e.g. in a pipeline for a fork")


def _id(text: str) -> str:
    import re

    if not re.fullmatch(r"[\w.-]{1,100}", text, re.ASCII):
        raise argparse.ArgumentTypeError("expected letters, digits, dots, hyphens and underscores")
    return text


def _read(path: Path) -> str:
    if path.exists() and not path.is_file():  # a pipe could be waited for forever
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return path.read_text(encoding="utf-8")


def run(arguments: argparse.Namespace) -> int:
    import json

    from planner.review.comment import post, wanted
    from planner.review.forges import ForgeError, find
    from planner.spec.printable import printable

    if arguments.when != "always" and arguments.review is None:
        return fail(f"comment: --when {arguments.when} requires --review")
    try:
        report = _read(arguments.file)
        new = arguments.when == "always" or wanted(arguments.when, json.loads(_read(arguments.review)))
    except (ValueError, TypeError, KeyError, RecursionError):
        return fail("comment: the files are not those of planner diff")
    try:
        forge = find(os.environ)
        done = post(forge, report, arguments.id, new=new) if forge else "no comment: this run is not for a pull request"
    except ForgeError as error:
        if not arguments.optional:
            return fail(f"comment: {error}")
        done = f"no comment was posted: {error}"
    sys.stdout.write(f"{printable(done)}\n")
    return FINE
