"""``planner schema``: print a JSON Schema."""

from __future__ import annotations

import argparse
import sys

from planner.cli.command import FINE, Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "of",
        choices=("spec", "policy", "csv"),
        nargs="?",
        default="spec",
        help="of a spec, of planner.yaml, or the Table Schemas of the CSV files, datapackage.json (default: spec)",
    )


def _run(arguments: argparse.Namespace) -> int:
    import json

    if arguments.of == "csv":
        from planner.report.datapackage import datapackage

        sys.stdout.write(datapackage())
        return FINE
    from planner import spec

    sys.stdout.write(json.dumps(spec.schema(arguments.of), indent=2, ensure_ascii=False) + "\n")
    return FINE


COMMAND = Command(
    name="schema",
    help="print a JSON Schema",
    description="Print a JSON Schema.",
    examples=(("planner schema > spec.schema.json", "the JSON Schema, for editors"),),
    add_arguments=_add_arguments,
    run=_run,
)
