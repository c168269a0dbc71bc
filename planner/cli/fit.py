"""Find the largest batch, sequence, depth, width or rank of adapters that fits in memory.

For each setting, find the largest value at which a training step fits in the given memory, and report what limits it. If the current
settings do not fit, also list changes that do, e.g. recomputation or another optimizer. For a spec with a cluster, values are per device,
its memory less the reserve is the default of --memory, and the fewest devices on which a step fits are reported as well.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_scenario, add_set, add_spec
from planner.cli.command import FINDING, FINE
from planner.cli.specs import read_one
from planner.cli.streams import fail

EXAMPLES = (("planner fit specs/gpt2-small.yaml --memory 80GiB", "the largest batch, sequence, depth and width that fit"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    parser.add_argument(
        "--memory", help="device memory or a device, e.g. 80GiB, 80GB or h100-80gb (default: the cluster's, less its reserve)"
    )
    parser.add_argument(
        "--for",
        dest="settings",
        choices=("batch_size", "sequence_length", "n_layers", "d_model", "adapters.rank"),
        action="append",
        help="setting to maximize (repeatable; default: all)",
    )
    add_scenario(parser)
    add_format(parser)
    add_set(parser)


def run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.explore import fit
    from planner.report import quantity, terminal
    from planner.report.remedies import find_remedies

    try:
        memory = quantity.parse(arguments.memory, "bytes", bare=False) if arguments.memory else None
    except ValueError as error:
        return fail(f"fit: invalid value {arguments.memory!r} for --memory; {error}")
    read = read_one("fit", arguments)
    if isinstance(read, int):
        return read
    spec, scenario = read
    layout = scenario.training.layout
    if memory is None and layout is None:
        return fail(f"fit: {spec.name} has no cluster; give --memory, for example --memory 80GiB")
    memory = memory or fit.of_cluster(layout)  # type: ignore[arg-type]  # without memory, it has one
    capacity.plan(spec, scenario)  # raises if the plan as given is not supported
    found = fit.fits(spec, arguments.scenario, int(memory.value), arguments.settings or fit.SETTINGS)
    if not found:
        why = f"{spec.name} defines several layer groups" if "n_layers" in arguments.settings else f"{spec.name} has no adapters"
        return fail(f"fit: cannot vary {' or '.join(arguments.settings)}: {why}")
    fewest = fit.fewest(spec, arguments.scenario, int(memory.value)) if layout else None
    remedies = find_remedies(spec, arguments.scenario, "peak_bytes", memory.value, sizes=False)
    if arguments.format == "json":
        sys.stdout.write(fit.as_json(spec, arguments.scenario, int(memory.value), found, remedies, fewest))
    else:
        sys.stdout.write(fit.text(spec, arguments.scenario, memory, found, remedies, terminal.style(sys.stdout), fewest))
    return FINE if all(one.largest for one in found) else FINDING
