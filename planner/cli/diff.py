"""Compare specs with a git revision or saved report.

Compare specs in the working tree with a git revision; both sides are computed with this version. Reports what changed, which line caused
it, and which budgets, expect values and size labels fail. Without SPEC, review the specs that planner.yaml lists, or else the folder specs.
The default base is the merge base with the main branch; --base REF is that revision, --base REF... the merge base with it. Models are
matched by name. Nothing in the working tree or the repository changes. Exits with 1 if any finding has severity error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.arguments import CI_FORMATS
from planner.cli.command import FINDING, FINE
from planner.cli.streams import fail

if TYPE_CHECKING:
    from datetime import date

    from planner.review.review import Review

_LEAST, _DIGITS = 2_000, 9  # of --limit
_FORMATS = ("text", "md", "json", *CI_FORMATS)

EXAMPLES = (("planner diff --base origin/main", "what a spec change costs, why, and which budgets it exceeds"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("specs", metavar="SPEC", nargs="*", help="files, folders or globs (default: the specs that planner.yaml lists)")
    base = parser.add_mutually_exclusive_group()
    base.add_argument(
        "--base", metavar="REF", help="git revision; REF... is the merge base with it (default: the merge base with the main branch)"
    )
    base.add_argument("--base-report", metavar="FILE", type=Path, help="compare with a saved capacity.json instead")
    parser.add_argument("--format", choices=_FORMATS, default="text", help="output format (default: text)")
    parser.add_argument(
        "--output", metavar="FORMAT=FILE", type=_output, action="append", default=[], help="also write the review to FILE (repeatable)"
    )
    parser.add_argument("--limit", metavar="N", type=_limit, help="maximum characters of Markdown (default: 65,000, for GitHub)")
    parser.add_argument("--links", metavar="URL", default="", help="base URL of the files; turns locations in Markdown into links")
    parser.add_argument("--today", metavar="DATE", type=_date, help="evaluate waivers as of this date (default: today, UTC)")
    codes = parser.add_mutually_exclusive_group()
    codes.add_argument("--exit-code", action="store_true", help="exit 1 on any change")
    codes.add_argument("--exit-zero", action="store_true", help="exit 0 even if there are findings")


def _output(text: str) -> tuple[str, Path]:
    form, _, path = text.partition("=")
    if form not in _FORMATS or not path:
        raise argparse.ArgumentTypeError(f"expected FORMAT=FILE, got {text!r}; choose FORMAT from {', '.join(_FORMATS)}")
    return form, Path(path)


def _limit(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS or int(text) < _LEAST:
        raise argparse.ArgumentTypeError(f"invalid limit {text!r}; use a number from {_LEAST:,}")
    return int(text)


def _date(text: str) -> date:
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid date {text!r}; use YYYY-MM-DD") from None


def run(arguments: argparse.Namespace) -> int:
    from functools import partial

    from planner.report import terminal
    from planner.report.write import write
    from planner.review.diff import Request, ReviewError, review
    from planner.review.findings import this_day
    from planner.review.formats import FORMATS
    from planner.review.markdown import LIMIT, markdown
    from planner.review.text import text

    request = Request(tuple(arguments.specs), arguments.base, arguments.base_report, arguments.today or this_day())
    try:
        made = review(request, Path.cwd())
    except ReviewError as error:
        return fail(f"diff: {error}")
    formats: dict[str, Callable[[Review], str]] = {**FORMATS, "md": partial(markdown, blob=arguments.links, limit=arguments.limit or LIMIT)}
    for form, path in arguments.output:
        write(path.parent, {path.name: formats[form](made).encode(errors="backslashreplace")})
    printed = text(made, terminal.style(sys.stdout)) if arguments.format == "text" else formats[arguments.format](made)
    sys.stdout.write(printed)
    if arguments.exit_zero:
        return FINE
    return FINDING if made.failed or (arguments.exit_code and (made.changed or made.policy_edits)) else FINE
