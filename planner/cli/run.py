"""Plan specs and write reports.

Check all specs, plan every scenario, write the reports and print a table. All errors are reported. If there are any, or an expect check
fails, no report is written. Reports are written atomically and sorted by model. With --set, expect values are not checked, because they
describe the unmodified spec. Exceeded budgets from planner.yaml are reported last.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.arguments import add_output, add_set, add_specs
from planner.cli.command import FINDING, FINE
from planner.cli.progress import Progress
from planner.cli.specs import read, report
from planner.cli.streams import fail, note, width

if TYPE_CHECKING:
    from planner.capacity.figures import Plan
    from planner.report.planned import Planned

_FORMATS = ("csv", "md", "json", "xlsx", "html")

EXAMPLES = (
    ("planner run specs/*.yaml", "plan every spec, write reports/, print a table"),
    ("planner run specs --format csv,md,json", "folders work too; also write capacity.json"),
    ("planner run specs --format html", "a self-contained page with charts"),
    ("planner run specs/*.yaml --check", "in CI: check that the committed reports are up to date"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_specs(parser)
    add_output(parser)
    parser.add_argument(
        "--format",
        metavar="FORMATS",
        type=_formats,
        default=("csv", "md"),
        help="comma-separated report formats: csv (capacity.csv, components.csv, datapackage.json, and serving.csv of specs with a section "
        "serving), md (capacity.md), json (capacity.json), xlsx (capacity.xlsx), html (capacity.html) (default: csv,md)",
    )
    parser.add_argument(
        "--check", action="store_true", help="do not write; list missing or outdated reports, in any format, and exit 1 if there are any"
    )
    parser.add_argument("--ranks", action="store_true", help="list every kind of device: memory by part and peak by phase, fullest first")
    add_set(parser)


def _formats(text: str) -> tuple[str, ...]:
    named = text.split(",")
    unknown = [name for name in named if name not in _FORMATS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown format {unknown[0]!r}; choose from {', '.join(_FORMATS)}")
    return tuple(name for name in _FORMATS if name in named)


def run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.report import claims, overview, terminal
    from planner.report.files import FORMAT_OF, files, present
    from planner.report.planned import Planned
    from planner.report.write import outdated, write
    from planner.review import without_base

    specs, code = read(arguments.specs, arguments.set)
    if code:
        return code
    with Progress() as progress:
        in_order = progress.of(sorted(specs, key=lambda spec: spec.name), "specs planned")
        models = [Planned(spec, capacity.plans(spec)) for spec in in_order]
    if arguments.set:
        note("skipping expect checks because --set is given")
    elif failed := [problem for model in models for problem in claims.failed(model)]:
        return report(failed)
    others = {name: form for name, form in present(arguments.output).items() if form not in arguments.format} if arguments.check else {}
    formats = dict.fromkeys((*arguments.format, *others.values()))
    if "xlsx" in formats:
        from planner.report import workbook

        if problem := workbook.problem():
            return fail(f"run: {problem}")
    if {"xlsx", "html"} & set(formats):
        models = without_base.with_budgets(models, Path.cwd())
    with progress:
        made = files(models, formats, lambda name: progress.step(f"making {name}"))
    reports = {name: content for name, content in made.items() if name in others or FORMAT_OF[name] in arguments.format}
    if arguments.check:
        wrong = outdated(arguments.output, reports)
        for path, how in wrong.items():
            other = others.get(path.name)
            note(f"{path.as_posix()} is {how}; run `planner run{f' --format {other}' if other else ''}` to update it")
        return max(FINDING if wrong else FINE, _check_budgets(models))
    try:
        write(arguments.output, reports)
    except OSError as error:
        return fail(f"cannot write {arguments.output.as_posix()}: {error.strerror or error}; no files were changed")
    note(f"wrote {', '.join((arguments.output / name).as_posix() for name in reports)}")
    plans = [plan for model in models for plan in model.plans]
    sys.stdout.write(overview.text(plans, terminal.style(sys.stdout), width(), [model.spec for model in models]))
    _show_ranks(plans if arguments.ranks else ())
    return _check_budgets(models)


def _show_ranks(plans: Sequence[Plan]) -> None:
    """Print every kind of device of plans on several devices."""
    from planner.report import devices, overview, show

    sys.stdout.write(show.sections((overview.title(plan), devices.every_rank(plan)) for plan in plans if plan.fleet))


def _check_budgets(models: Sequence[Planned]) -> int:
    """Print findings on the budgets of planner.yaml and return the exit code for them."""
    if not any((folder / "planner.yaml").is_file() for folder in (Path.cwd(), *Path.cwd().parents)):
        return FINE  # the rules need not be imported
    from planner.report import terminal
    from planner.review import without_base, wording
    from planner.review.findings import this_day

    style = terminal.style(sys.stderr)
    found = without_base.findings(models, Path.cwd(), this_day())
    for finding in found:
        sys.stderr.write(f"{wording.line(finding, style)}\n")
    return FINDING if any(finding.severity == "error" for finding in found) else FINE
