"""``planner run``: plan specs and write reports."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.arguments import add_output, add_set, add_specs, today
from planner.cli.command import FINDING, FINE, Command
from planner.cli.specs import read, report
from planner.cli.streams import fail, note, width

if TYPE_CHECKING:
    from planner.report.records import Planned

_FORMATS = ("csv", "md", "json", "xlsx", "html")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_specs(parser)
    add_output(parser)
    parser.add_argument(
        "--format",
        metavar="FORMATS",
        type=_formats,
        default=("csv", "md"),
        help="of csv (capacity.csv, components.csv, datapackage.json), md (capacity.md), json (capacity.json), xlsx (capacity.xlsx), "
        "html (capacity.html), with commas between (default: csv,md)",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a report on disk is missing or stale, and name it")
    add_set(parser)


def _formats(text: str) -> tuple[str, ...]:
    named = text.split(",")
    unknown = [name for name in named if name not in _FORMATS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no format {unknown[0]!r}; there are {', '.join(_FORMATS)}")
    return tuple(name for name in _FORMATS if name in named)


def _run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.report import claims, terminal
    from planner.report.files import files
    from planner.report.records import Planned
    from planner.report.write import outdated, write
    from planner.review import standing

    specs, code = read(arguments.specs, arguments.set)
    if code:
        return code
    models = [Planned(spec, capacity.plans(spec)) for spec in sorted(specs, key=lambda spec: spec.name)]
    if arguments.set:
        note("claims under expect are not checked under --set")
    elif broken := [problem for model in models for problem in claims.broken(model)]:
        return report(broken)
    if "xlsx" in arguments.format:
        from planner.report import workbook

        if problem := workbook.problem():
            return fail(f"run: {problem}")
    if {"xlsx", "html"} & set(arguments.format):
        models = standing.with_budgets(models, Path.cwd())
    reports = files(models, arguments.format)
    if arguments.check:
        wrong = outdated(arguments.output, reports)
        for path, how in wrong.items():
            note(f"{path.as_posix()} is {how}; planner run writes it")
        return max(FINDING if wrong else FINE, _check_budgets(models))
    try:
        write(arguments.output, reports)
    except OSError as error:
        return fail(f"cannot write {arguments.output.as_posix()}, nothing there has changed: {error.strerror or error}")
    note(f"wrote {', '.join((arguments.output / name).as_posix() for name in reports)}")
    plans = [plan for model in models for plan in model.plans]
    sys.stdout.write(terminal.overview(plans, terminal.style(sys.stdout), width()))
    return _check_budgets(models)


def _check_budgets(models: Sequence[Planned]) -> int:
    """Print what planner.yaml does not allow, and return the exit code that it calls for."""
    from planner.report.terminal import printable

    if not any((folder / "planner.yaml").is_file() for folder in (Path.cwd(), *Path.cwd().parents)):
        return FINE  # the rules need not be imported
    from planner.review import standing, telling

    found = standing.findings(models, Path.cwd(), today())
    for finding in found:
        sys.stderr.write(f"{printable(telling.line(finding))}\n")
    return FINDING if any(finding.severity == "error" for finding in found) else FINE


COMMAND = Command(
    name="run",
    help="plan specs and write reports",
    description="""\
Check all specs, plan every scenario, write the reports, and print a table. All errors of all specs are told, and with any of them, or
with a claim under expect that fails, nothing is written. Reports are written whole or not at all, their rows sorted by model.
Under --set, claims under expect are not checked: they are about the spec as it stands. Budgets of planner.yaml are told in the end.
""",
    examples=(
        ("planner run specs/*.yaml", "plan every spec, write reports/, print a table"),
        ("planner run specs --format csv,md,json", "folders too; capacity.json as well"),
        ("planner run specs --format html", "one page with pictures, reports/capacity.html"),
        ("planner run specs/*.yaml --check", "in CI: are the committed reports up to date?"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
