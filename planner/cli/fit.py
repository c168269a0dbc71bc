"""``planner fit``: the largest that fits into memory."""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_scenario, add_set, add_spec
from planner.cli.command import FINDING, FINE, Command
from planner.cli.specs import read_one
from planner.cli.streams import fail


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    parser.add_argument("--memory", metavar="BYTES", required=True, help="of the device, as 80GiB or 80GB")
    parser.add_argument(
        "--for",
        dest="settings",
        choices=("batch_size", "sequence_length", "n_layers", "d_model"),
        action="append",
        help="a setting to solve for; repeatable (default: all)",
    )
    add_scenario(parser)
    add_format(parser)
    add_set(parser)


def _run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.explore import fit
    from planner.report import terminal
    from planner.review import quantity

    try:
        memory = int(quantity.parse(arguments.memory, "bytes", bare=False).value)
    except ValueError as error:
        return fail(f"fit: --memory cannot be {arguments.memory!r}; {error}")
    read = read_one("fit", arguments)
    if isinstance(read, int):
        return read
    spec, scenario = read
    capacity.plan(spec, scenario)  # or it is refused here, with the reason
    found = fit.fits(spec, arguments.scenario, memory, arguments.settings or fit.SETTINGS)
    if not found:
        return fail(f"fit: {spec.name} has its layers in several runs, so that n_layers is not one setting")
    if arguments.format == "json":
        sys.stdout.write(fit.as_json(spec, arguments.scenario, memory, found))
    else:
        sys.stdout.write(fit.text(spec, arguments.scenario, memory, found, terminal.style(sys.stdout)))
    return FINE if all(one.largest for one in found) else FINDING


COMMAND = Command(
    name="fit",
    help="the largest that fits into memory",
    description="Solve for the largest value of a setting with which the peak of a training step stays within the memory, and say what "
    "limits it.",
    examples=(("planner fit specs/gpt2-small.yaml --memory 80GiB", "the largest batch, sequence, depth and width that fit"),),
    add_arguments=_add_arguments,
    run=_run,
)
