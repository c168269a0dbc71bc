"""``planner diff``: review what a change of specs costs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.arguments import GATES, today
from planner.cli.command import FINDING, FINE, Command
from planner.cli.streams import fail

if TYPE_CHECKING:
    from datetime import date

    from planner.review.records import Review

_FORMATS = ("text", "md", "json", *GATES)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("specs", metavar="SPEC", nargs="*", help="files, folders or globs (default: what planner.yaml names)")
    base = parser.add_mutually_exclusive_group()
    base.add_argument("--base", metavar="REF", help="a git revision; REF... is the merge base with it (default: that with the main branch)")
    base.add_argument("--base-report", metavar="FILE", type=Path, help="compare with a saved capacity.json instead")
    parser.add_argument("--format", choices=_FORMATS, default="text", help="of what is printed (default: text)")
    parser.add_argument(
        "--output", metavar="FORMAT=FILE", type=_output, action="append", default=[], help="write a file in a format as well; repeatable"
    )
    parser.add_argument("--links", metavar="URL", default="", help="where the files are on the web; makes places in Markdown links")
    parser.add_argument("--today", metavar="DATE", type=_date, help="the day on which waivers are in force (default: today, UTC)")
    codes = parser.add_mutually_exclusive_group()
    codes.add_argument("--exit-code", action="store_true", help="exit 1 on any change")
    codes.add_argument("--exit-zero", action="store_true", help="exit 0 whatever is found")


def _output(text: str) -> tuple[str, Path]:
    form, _, path = text.partition("=")
    if form not in _FORMATS or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not FORMAT=FILE with a format of {', '.join(_FORMATS)}")
    return form, Path(path)


def _date(text: str) -> date:
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day as year-month-day") from None


def _run(arguments: argparse.Namespace) -> int:
    from functools import partial

    from planner.report import terminal
    from planner.report.write import write
    from planner.review.diff import Request, ReviewError, review
    from planner.review.formats import FORMATS
    from planner.review.markdown import markdown
    from planner.review.text import text

    request = Request(tuple(arguments.specs), arguments.base, arguments.base_report, arguments.today or today())
    try:
        made = review(request, Path.cwd())
    except ReviewError as error:
        return fail(f"diff: {error}")
    formats: dict[str, Callable[[Review], str]] = {**FORMATS, "md": partial(markdown, blob=arguments.links)}
    for form, path in arguments.output:
        write(path.parent, {path.name: formats[form](made).encode(errors="backslashreplace")})
    printed = text(made, terminal.style(sys.stdout)) if arguments.format == "text" else formats[arguments.format](made)
    sys.stdout.write(printed)
    if arguments.exit_zero:
        return FINE
    return FINDING if made.failed or (arguments.exit_code and made.changed) else FINE


COMMAND = Command(
    name="diff",
    help="review what a change costs",
    description="""\
Compare the specs of the work tree with those of a git revision, computed anew by today's formulas: what changed, which line moved it, and
whether budgets, claims and names still hold. Without SPEC, what planner.yaml names under specs, or the folder specs. The base is the merge
base with the main branch; --base REF is that revision, --base REF... the merge base with it. Models are matched by name. Nothing in the
work tree or the repository changes. Exit code 1: a finding that is more than a warning.
""",
    examples=(("planner diff --base origin/main", "what a change of specs costs, why, and whether it is allowed"),),
    add_arguments=_add_arguments,
    run=_run,
)
