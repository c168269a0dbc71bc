"""Find the largest batch, sequence, depth, width or rank of adapters that fits in memory, or the most users and the longest context.

For each setting, find the largest value at which a training step fits in the given memory, and report what limits it. If the current
settings do not fit, also list changes that do, e.g. recomputation or another optimizer. For a spec with a cluster, values are per device,
its memory less the reserve is the default of --memory, and the fewest devices on which a step fits are reported as well. With --serving,
find the most sequences and the longest prompt of the section serving, the most sequences by length of the prompt, and the fewest devices of
an engine that share every layer.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_scenario, add_set, add_spec
from planner.cli.command import FINDING, FINE
from planner.cli.specs import read_one
from planner.cli.streams import fail

EXAMPLES = (
    ("planner fit specs/gpt2-small.yaml --memory 80GiB", "the largest batch, sequence, depth and width that fit"),
    (
        "planner fit catalog/llama-3-70b --serving --set serving.engine=vllm --set serving.tensor_parallel=4 --memory H100-80GB-SXM",
        "for how many users, and at what context, the engine's cache has room",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    parser.add_argument(
        "--memory", help="device memory or a device less a reserve of 2 GiB, e.g. 80GiB, 80GB or h100-80gb (default: the cluster's)"
    )
    parser.add_argument(
        "--serving", action="store_true", help="find the most sequences and the longest prompt of the section serving instead"
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


def _of_serving(arguments: argparse.Namespace) -> int:
    """Find what fits of the section ``serving``; a spec without one decodes one token after one prompt."""
    from planner.capacity.serving import of_section
    from planner.explore import serving_fit
    from planner.report import terminal

    if arguments.settings:
        return fail("fit: --for lists settings of training; remove it, or --serving")
    arguments.scenario = "base"
    arguments.set += [f"serving.memory={arguments.memory}"] if arguments.memory else []
    read = read_one("fit", arguments)
    if isinstance(read, int):
        return read
    spec, _ = read
    if spec.serving is None or (spec.serving.memory_bytes is None and spec.serving.cache_bytes is None):
        return fail(f"fit: {spec.name} has no memory for serving; give --memory, for example --memory 80GiB")
    of_section(spec)  # raises if the section as given is not supported
    found, devices = serving_fit.largest(spec, spec.serving), serving_fit.fewest_devices(spec, spec.serving)
    lengths = serving_fit.users(spec, spec.serving)
    if arguments.format == "json":
        sys.stdout.write(serving_fit.as_json(spec, found, devices, lengths))
    else:
        sys.stdout.write(serving_fit.text(spec, found, devices, lengths, terminal.style(sys.stdout)))
    return FINE if all(one.best for one in found) else FINDING


def run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.explore import fit
    from planner.report import devices, terminal
    from planner.report.remedies import find_remedies

    if arguments.serving:
        return _of_serving(arguments)
    read = read_one("fit", arguments)
    if isinstance(read, int):
        return read
    spec, scenario = read
    try:
        memory = devices.step_memory(arguments.memory, scenario.training) if arguments.memory else devices.cluster_memory(scenario.training)
    except ValueError as error:
        return fail(f"fit: invalid value {arguments.memory!r} for --memory; {error}")
    if memory is None:
        return fail(f"fit: {spec.name} has no cluster; give --memory, for example --memory 80GiB")
    capacity.plan(spec, scenario)  # raises if the plan as given is not supported
    found = fit.fits(spec, arguments.scenario, int(memory.value), arguments.settings or fit.SETTINGS)
    if not found:
        why = f"{spec.name} defines several layer groups" if "n_layers" in arguments.settings else f"{spec.name} has no adapters"
        return fail(f"fit: cannot vary {' or '.join(arguments.settings)}: {why}")
    fewest = fit.fewest(spec, arguments.scenario, int(memory.value))
    remedies = find_remedies(spec, arguments.scenario, "peak_bytes", memory.value, sizes=False)
    if arguments.format == "json":
        sys.stdout.write(fit.as_json(spec, arguments.scenario, int(memory.value), found, remedies, fewest))
    else:
        sys.stdout.write(fit.text(spec, arguments.scenario, memory, found, remedies, terminal.style(sys.stdout), fewest))
    return FINE if all(one.largest for one in found) else FINDING
