"""List the models in the catalog.

Print their names and parameter counts. Use a name with `extends:`, and its file under specs/ with `planner run`.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format
from planner.cli.command import FINDING, FINE
from planner.cli.streams import note, width

EXAMPLES = (("planner list llama", "catalog models; start from one with extends: catalog/NAME"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="", help="part of a model name or family (default: all)")
    add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    import json

    from planner.report import omitted, terminal, units
    from planner.spec import catalogue
    from planner.spec.printable import printable

    found = catalogue.entries(arguments.pattern)
    if not found:
        near = catalogue.nearest(arguments.pattern)
        note(f"no model named {arguments.pattern!r} in the catalog" + (f"; similar: {', '.join(near)}" if near else ""))
        return FINDING
    if arguments.format == "json":
        entries = [
            {
                "name": f"catalog/{one.name}",
                "params_total": one.params_total,
                "params_active": one.params_active,
                "model": one.title,
                "not_counted": one.omits,
            }
            for one in found
        ]
        sys.stdout.write(json.dumps(entries, ensure_ascii=False, indent=2) + "\n")
        return FINE
    rows = [(f"catalog/{one.name}", units.count(one.params_total), units.count(one.params_active), one.title) for one in found]
    for line in terminal.table(("name", "params", "active", "model"), "lrrl", rows, terminal.style(sys.stdout), width()):
        sys.stdout.write(f"{line}\n")
    for line in omitted.lines((one.name, one.omits) for one in found):
        sys.stdout.write(f"{printable(line)}\n")
    return FINE
