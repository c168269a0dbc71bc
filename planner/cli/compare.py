"""Compare specs side by side.

Print their metrics, the change from the first spec, the settings that differ, and the number of training tokens that is compute-optimal for
their parameters. Compares all scenarios of each spec, or the one given.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_set, add_specs
from planner.cli.command import FINE
from planner.cli.specs import read
from planner.cli.streams import fail, width

EXAMPLES = (("planner compare specs/gpt2-*.yaml", "compare specs, with compute-optimal token counts"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_specs(parser)
    parser.add_argument("--scenario", metavar="NAME", help="scenario to compare (default: all)")
    add_format(parser, "md")
    add_set(parser)


def run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.explore import compare
    from planner.report import terminal

    specs, code = read(arguments.specs, arguments.set)
    if code:
        return code
    meant = [(spec, one) for spec in specs for one in spec.scenarios if arguments.scenario in (None, one.name)]
    if not meant:
        return fail(f"compare: unknown scenario {arguments.scenario!r}")
    plans = [capacity.plan(spec, one) for spec, one in meant]
    if arguments.format == "text":
        sys.stdout.write(compare.text(plans, terminal.style(sys.stdout), width() or 80))
    else:
        sys.stdout.write(compare.as_markdown(plans) if arguments.format == "md" else compare.as_json(plans))
    return FINE
