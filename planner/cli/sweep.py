"""``planner sweep``: figures over a grid of settings."""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_output
from planner.cli.command import FINE, Command
from planner.cli.specs import report
from planner.cli.streams import Bar, fail, note, progress


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="a spec file")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUES",
        action="append",
        required=True,
        help="a setting and its values, as training.batch_size=1..64; repeatable",
    )
    parser.add_argument("--figure", metavar="FIGURE", default="peak_bytes", help="what the pivot and the chart show (default: peak_bytes)")
    add_output(parser)
    add_format(parser, "md")


def _run(arguments: argparse.Namespace) -> int:
    from planner.explore import axes, sweep, view
    from planner.report import terminal
    from planner.report.write import write

    if arguments.figure not in sweep.FIGURES:
        return fail(f"sweep: there is no figure {arguments.figure!r}; there are {', '.join(sweep.FIGURES)}")
    try:
        made, problems = sweep.sweep(arguments.spec, [axes.parse(one) for one in arguments.set], Bar())
    except (ValueError, sweep.SweepError) as error:
        return fail(f"sweep: {error}")
    finally:
        progress("")
    if made is None:
        return report(problems)
    figure = arguments.figure
    files = {
        "sweep.csv": "".join(sweep.csv(made)).encode(),
        "sweep.md": view.as_markdown(made, figure).encode(),
        "sweep.svg": view.chart(made, figure).encode(),
    }
    write(arguments.output, files)
    note(f"wrote {', '.join((arguments.output / name).as_posix() for name in files)}")
    if arguments.format == "text":
        sys.stdout.write(view.text(made, figure, terminal.style(sys.stdout)))
    else:
        sys.stdout.write(view.as_markdown(made, figure) if arguments.format == "md" else view.as_json(made))
    return FINE


COMMAND = Command(
    name="sweep",
    help="figures over a grid of settings",
    description="""\
Evaluate the base scenario over a grid of settings, exactly: every combination of the values that --set names. Values have commas between
them; a..b is all whole numbers from a to b, a..b..c those in steps of c. Writes sweep.csv (a row for each point), sweep.md (a pivot) and
sweep.svg (a chart), and prints the pivot.
""",
    examples=(("planner sweep specs/gpt2-small.yaml --set training.batch_size=1..64 --set training.precision=fp32,bf16", ""),),
    add_arguments=_add_arguments,
    run=_run,
)
