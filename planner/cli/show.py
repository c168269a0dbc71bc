"""Show one model in detail.

Print its parameters, memory, FLOPs and settings as a tree. --settings prints only the settings.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_scenario, add_set, add_spec
from planner.cli.command import FINE
from planner.cli.specs import read_one
from planner.cli.streams import width

EXAMPLES = (
    ("planner show specs/gpt2-small.yaml --explain", "one model, with the formula behind each number"),
    ("planner show specs/gpt2-small.yaml --settings", "its settings, and which of them are defaults"),
    ("planner show specs/gpt2-small.yaml --set training.batch_size=16", "with another batch size"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    add_scenario(parser)
    parser.add_argument("--settings", action="store_true", help="list only the settings, defaults marked")
    parser.add_argument("--explain", action="store_true", help="show each number's formula, substituted values and source")
    parser.add_argument("--shapes", action="store_true", help="list the shape of every tensor from token ids to logits")
    parser.add_argument("--tensors", action="store_true", help="list every weight")
    parser.add_argument(
        "--formats", action="store_true", help="list the bytes of the weights in packed formats, such as gptq and gguf q4_k_m"
    )
    parser.add_argument("--kept", "--saved", action="store_true", help="list every tensor saved for backward: module, shape, dtype, bytes")
    parser.add_argument("--ranks", action="store_true", help="list every kind of device: memory by part and peak by phase, fullest first")
    add_format(parser)
    add_set(parser)


def run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.report import breakdown, devices, show, terminal
    from planner.report import json as as_json

    found = read_one("show", arguments)
    if isinstance(found, int):
        return found
    spec, scenario = found
    plan = capacity.plan(spec, scenario)
    if arguments.format == "json":
        sys.stdout.write(as_json.report([plan], [spec], capacity.explain(spec, scenario) if arguments.explain else None))
        return FINE
    style = terminal.style(sys.stdout)
    if arguments.settings:
        sys.stdout.write(show.settings(spec, plan, style, width()))
        return FINE
    wanted = {
        devices.every_rank: arguments.ranks,
        breakdown.shapes: arguments.shapes,
        breakdown.tensors: arguments.tensors,
        breakdown.stored: arguments.formats,
        breakdown.saved: arguments.kept,
    }
    extra = [section(plan) for section, asked in wanted.items() if asked]
    sys.stdout.write(show.tree(spec, plan, extra, style, width()))
    if arguments.explain:
        sys.stdout.write("\n" + show.explanations(capacity.explain(spec, scenario), style))
    return FINE
