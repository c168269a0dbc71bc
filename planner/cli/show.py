"""``planner show``: one model's breakdown."""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_scenario, add_set, add_spec
from planner.cli.command import FINE, Command
from planner.cli.specs import read_one
from planner.cli.streams import width


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    add_scenario(parser)
    parser.add_argument("--explain", action="store_true", help="each figure's formula, the numbers put in, and its source")
    parser.add_argument("--shapes", action="store_true", help="the shape of every tensor from token ids to logits")
    parser.add_argument("--tensors", action="store_true", help="every stored tensor")
    parser.add_argument("--kept", action="store_true", help="every tensor kept for backward, with its shape, dtype, bytes and keeper")
    add_format(parser)
    add_set(parser)


def _run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.report import breakdown, show, terminal
    from planner.report import json as as_json

    found = read_one("show", arguments)
    if isinstance(found, int):
        return found
    spec, scenario = found
    plan = capacity.plan(spec, scenario)
    if arguments.format == "json":
        sys.stdout.write(as_json.report([plan], [spec], capacity.explain(spec, scenario) if arguments.explain else None))
        return FINE
    wanted = {breakdown.shapes: arguments.shapes, breakdown.tensors: arguments.tensors, breakdown.kept: arguments.kept}
    extra = [section(plan) for section, asked in wanted.items() if asked]
    style = terminal.style(sys.stdout)
    sys.stdout.write(show.tree(spec, plan, extra, style, width()))
    if arguments.explain:
        sys.stdout.write("\n" + show.explanations(capacity.explain(spec, scenario), style))
    return FINE


COMMAND = Command(
    name="show",
    help="one model's breakdown",
    description="Print one model's breakdown as a tree.",
    examples=(
        ("planner show specs/gpt2-small.yaml --explain", "one model, and where its figures come from"),
        ("planner show specs/gpt2-small.yaml --set training.batch_size=16", ""),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
