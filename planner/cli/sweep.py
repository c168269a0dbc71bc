"""Evaluate a grid of settings.

Compute the base scenario exactly for every combination of the values that --set gives. Values are comma-separated; a..b is an integer
range, a..b..c a range with step c. Writes sweep.csv (one row per point), sweep.md (a pivot table) and sweep.svg (a chart), and prints the
pivot table. In a grid of layouts, a combination that is impossible or not modeled is a row without metrics, with the reason.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_output
from planner.cli.command import FINE
from planner.cli.progress import Progress
from planner.cli.specs import report
from planner.cli.streams import fail, note, width

EXAMPLES = (
    ("planner sweep specs/gpt2-small.yaml --set training.batch_size=1..64 --set training.precision=fp32,bf16", "a table and a chart"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="spec file or catalog model")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUES",
        action="append",
        required=True,
        help="setting and its values, e.g. training.batch_size=1..64 (repeatable)",
    )
    parser.add_argument(
        "--figure",
        "--metric",
        metavar="METRIC",
        default="peak_bytes",
        help="metric to tabulate and plot: an integer column of capacity.csv, or train_flops_per_step (default: peak_bytes)",
    )
    add_output(parser)
    add_format(parser, "md")


def run(arguments: argparse.Namespace) -> int:
    from functools import partial

    from planner import spec
    from planner.explore import axes, sweep, table, view
    from planner.importer.convert import as_spec
    from planner.report import terminal
    from planner.report.write import Content, write

    if arguments.figure not in table.METRICS:
        return fail(f"sweep: unknown metric {arguments.figure!r}; choose from {', '.join(table.METRICS)}")
    try:
        load = partial(spec.load, arguments.spec, convert=as_spec)
        with Progress() as progress:
            made = sweep.sweep(load, [axes.parse(one) for one in arguments.set], partial(progress, what="plans"), metric=arguments.figure)
    except spec.SpecError as error:
        return report(error.problems)
    except (ValueError, table.SweepError) as error:
        return fail(f"sweep: {error}")
    figure = arguments.figure
    with Progress() as progress:
        files: dict[str, Content] = {
            "sweep.csv": (piece.encode() for piece in table.csv(made, partial(progress, what="points"))),
            "sweep.md": view.as_markdown(made, figure).encode(),
            "sweep.svg": view.chart(made, figure).encode(),
        }
        write(arguments.output, files)
    note(f"wrote {', '.join((arguments.output / name).as_posix() for name in files)}")
    if arguments.format == "json":
        sys.stdout.writelines(view.as_json(made))
    else:
        in_terminal = view.text(made, figure, terminal.style(sys.stdout), width() or 80)
        sys.stdout.write(view.as_markdown(made, figure) if arguments.format == "md" else in_terminal)
    return FINE
