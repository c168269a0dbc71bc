"""``planner compare``: candidates side by side."""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_set, add_specs
from planner.cli.command import FINE, Command
from planner.cli.specs import read
from planner.cli.streams import fail, width


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_specs(parser)
    parser.add_argument("--scenario", metavar="NAME", help="the scenario of each spec (default: all)")
    add_format(parser, "md")
    add_set(parser)


def _run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.explore import compare
    from planner.report import terminal

    specs, code = read(arguments.specs, arguments.set)
    if code:
        return code
    meant = [(spec, one) for spec in specs for one in spec.scenarios if arguments.scenario in (None, one.name)]
    if not meant:
        return fail(f"compare: no spec has a scenario {arguments.scenario!r}")
    plans = [capacity.plan(spec, one) for spec, one in meant]
    if arguments.format == "text":
        sys.stdout.write(compare.text(plans, terminal.style(sys.stdout), width() or 80))
    else:
        sys.stdout.write(compare.as_markdown(plans) if arguments.format == "md" else compare.as_json(plans))
    return FINE


COMMAND = Command(
    name="compare",
    help="candidates side by side",
    description="""\
Put specs side by side: what they take, how much more or less than the first one, the settings in which they differ, and the training tokens
that are compute-optimal for their parameters. All scenarios of each spec, or the one named.
""",
    examples=(("planner compare specs/gpt2-*.yaml", "candidates side by side, and the tokens that suit them"),),
    add_arguments=_add_arguments,
    run=_run,
)
