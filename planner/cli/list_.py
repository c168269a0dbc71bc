"""List the models in the catalog, or the devices.

Print the models' names and parameter counts. Use a name with `extends:`, and its file under specs/ with `planner run`. With --devices,
print the memory, peak rates and bandwidths of accelerators: names for `cluster.device`, budgets and `planner fit --memory`.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format
from planner.cli.command import FINDING, FINE
from planner.cli.streams import note, width

EXAMPLES = (
    ("planner list llama", "catalog models; start from one with extends: catalog/NAME"),
    ("planner list --devices h100", "devices, with their memory, rates and links"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="", help="part of a name or family (default: all)")
    parser.add_argument("--devices", action="store_true", help="list devices instead of models")
    add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    return _devices(arguments) if arguments.devices else _models(arguments)


def _devices(arguments: argparse.Namespace) -> int:
    """List devices."""
    import json
    from dataclasses import asdict

    from planner import devices
    from planner.report import terminal, units

    found = devices.entries(arguments.pattern)
    if not found:
        near = devices.nearest(arguments.pattern)
        note(f"no device named {arguments.pattern!r} in the catalog" + (f"; similar: {', '.join(near)}" if near else ""))
        return FINDING
    if arguments.format == "json":
        sys.stdout.write(json.dumps([asdict(one) for one in found], ensure_ascii=False, indent=2) + "\n")
        return FINE
    rows = [
        (
            one.name,
            units.memory(one.memory_bytes),
            *(f"{one.tflops[kind]:,g}" if kind in one.tflops else "" for kind in ("bf16", "fp16", "fp8")),
            f"{one.gb_per_s:,g}" if one.gb_per_s else "",
            f"{one.link}, {one.link_gb_per_s:,g}" if one.link else "",
            str(one.per_node),
            str(one.watts or ""),
        )
        for one in found
    ]
    headings = ("name", "memory", "bf16\nTFLOP/s", "fp16\nTFLOP/s", "fp8\nTFLOP/s", "memory\nGB/s", "link, GB/s", "per\nnode", "W")
    for line in terminal.table(headings, "lrrrrrlrr", rows, terminal.style(sys.stdout), width()):
        sys.stdout.write(f"{line}\n")
    note("dense peak rates; links in one direction; blank: no document was read. --format json prints each figure's source")
    return FINE


def _models(arguments: argparse.Namespace) -> int:
    """List models."""
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
