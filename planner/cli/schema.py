"""Print a JSON Schema."""

from __future__ import annotations

import argparse
import sys

from planner.cli.command import FINE

EXAMPLES = (("planner schema > spec.schema.json", "the JSON Schema, for editors"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "of",
        metavar="{spec,policy,csv}",
        choices=("spec", "policy", "csv"),
        nargs="?",
        default="spec",
        help="which schema: spec, policy (planner.yaml) or csv (datapackage.json) (default: spec)",
    )


def run(arguments: argparse.Namespace) -> int:
    import json

    if arguments.of == "csv":
        from planner.report.datapackage import datapackage

        sys.stdout.write(datapackage())
        return FINE
    from planner import spec

    sys.stdout.write(json.dumps(spec.schema(arguments.of), indent=2, ensure_ascii=False) + "\n")
    return FINE
