"""Find the fastest layout of a model on a cluster.

Plan every possible layout exactly (tensor, pipeline, context and expert parallelism, virtual stages, what data-parallel devices share,
microbatch, recomputation), and list the fastest ones that fit, with memory, time and the largest loss. Layouts within 2 % count as equal:
fewer devices, fewer stages and less recomputation come first. The place of the spec's own layout is reported, and why other layouts are not
listed. All layouts that fit are in the formats csv and json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.arguments import add_format, add_scenario, add_set, add_spec
from planner.cli.command import FINDING, FINE
from planner.cli.progress import Progress
from planner.cli.specs import read_one
from planner.cli.streams import fail, note

if TYPE_CHECKING:
    from planner.explore import best_view
    from planner.explore.best_layouts import Search
    from planner.explore.found_columns import Layouts
    from planner.spec.records import Cluster, Scenario, Spec, Training

MOST = 10**6  # devices, sequences of a step, or a fixed setting
EXAMPLES = (
    ("planner layouts specs/fleet/llama-3-8b-8-h100.yaml", "the fastest layouts on the spec's cluster"),
    ("planner layouts llama-3-8b --devices 16xH100-80GB-SXM --global-batch 64", "on another cluster"),
    ("planner layouts llama-3-8b --devices 8xH100-80GB-SXM,16xH100-80GB-SXM --global-batch 64 --sort cost", "on one of two"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    parser.add_argument("--devices", metavar="NxDEVICE", help="one or more clusters, e.g. 512xH100-80GB-SXM (default: the spec's)")
    parser.add_argument("--global-batch", metavar="N", type=int, help="sequences per step (default: the spec's)")
    parser.add_argument("--top", metavar="N", type=int, default=10, help="number of layouts to list (default: 10)")
    parser.add_argument(
        "--fix", metavar="KEY=VALUE", action="append", default=[], help="keep a setting, e.g. tensor_parallel=8 (repeatable)"
    )
    parser.add_argument("--sort", choices=("time", "cost", "memory", "devices"), default="time", help="order of the list (default: time)")
    parser.add_argument("--pareto", action="store_true", help="list only layouts that no other one beats in both time and memory")
    parser.add_argument("--explain", metavar="N", type=int, help="also show all terms of the time of the N-th layout")
    parser.add_argument("--write", metavar="FILE", type=Path, help="write cluster, layout and training settings of the first layout")
    add_scenario(parser)
    add_format(parser, "csv")
    add_set(parser)


def run(arguments: argparse.Namespace) -> int:
    from planner.explore import best_view
    from planner.time.coefficients import CalibrationError
    from planner.trace.unsupported import UnsupportedError

    read = read_one("layouts", arguments)
    if isinstance(read, int):
        return read
    spec, scenario = read
    try:
        made, listed, head = _searched(arguments, spec, scenario)
    except (ValueError, UnsupportedError, CalibrationError) as error:
        return fail(f"layouts: {error}")
    if arguments.format == "text":
        sys.stdout.write(best_view.text(head, made, listed[: max(arguments.top, 0)], arguments.sort))
        if arguments.explain is not None:
            sys.stdout.write(f"\n{best_view.explained(listed[arguments.explain - 1])}")
    else:
        sys.stdout.writelines((best_view.as_csv if arguments.format == "csv" else best_view.as_json)(listed))
    if arguments.write and listed:
        try:
            arguments.write.write_text(best_view.as_yaml(listed[0]), encoding="utf-8")
        except OSError as error:
            return fail(f"cannot write {arguments.write.as_posix()}: {error.strerror or error}")
        note(f"wrote {arguments.write.as_posix()}")
    return FINE if listed else FINDING


def _searched(arguments: argparse.Namespace, spec: Spec, scenario: Scenario) -> tuple[Search, Layouts, best_view.Head]:
    """Return the search, the layouts to list, and the heading. Raises ValueError for an option."""
    from planner.explore import best_layouts, best_view

    clusters, fixed = _clusters(arguments.devices, spec, scenario.training), _fixed(arguments.fix)
    if arguments.sort == "cost" and len({cluster.device for cluster in clusters}) > 1:
        raise ValueError("--sort cost requires clusters of one device, whose hours have one price")
    sequences = best_layouts.sequences_of(scenario.training) if arguments.global_batch is None else arguments.global_batch
    if sequences is None or not 1 <= sequences <= MOST:
        found = "are not known" if sequences is None else f"must be from 1 to {MOST:,}, not {sequences:,}"
        raise ValueError(f"the sequences of a step {found}; give --global-batch, for example --global-batch 1024")
    with Progress() as progress:
        made = best_layouts.search(spec, scenario, clusters, sequences, progress, fixed)
    listed = made.found.front() if arguments.pareto else made.found.ranked(arguments.sort)
    if arguments.explain is not None and not 1 <= arguments.explain <= len(listed):
        raise ValueError(f"--explain must be from 1 to {len(listed)}" if listed else "no layout fits that --explain could show")
    return made, listed, best_view.Head(spec.name, clusters, sequences, best_layouts.more_modeled(spec, clusters[0]))


def _clusters(text: str | None, spec: Spec, training: Training) -> list[Cluster]:
    """Return the clusters of --devices, or the spec's. Raises ValueError."""
    if text is not None:
        return [_cluster(one, training) for one in text.split(",")]
    if training.layout is None:
        raise ValueError(f"{spec.name} has no cluster; give --devices, for example --devices 8xH100-80GB-SXM")
    return [training.layout.cluster]


def _cluster(text: str, training: Training) -> Cluster:
    """Return a cluster of --devices; prices and other settings are the spec's. Raises ValueError."""
    from dataclasses import replace

    from planner import devices
    from planner.spec.records import Cluster

    count, _, name = text.partition("x")
    found = devices.find(name)
    if not count.isdecimal() or not 1 <= int(count) <= MOST or found is None:
        near = " or ".join(devices.nearest(name)) if name and found is None else ""
        hint = f"; did you mean {near}?" if near else ", for example 512xH100-80GB-SXM"
        raise ValueError(f"--devices must be a number and a device of the catalog, not {text!r}{hint}")
    per_node = min(found.per_node, int(count))
    if int(count) % per_node:
        raise ValueError(f"--devices {count} is no multiple of the {per_node} devices of a node")
    given = training.layout.cluster if training.layout else Cluster("", 0, 1)
    return replace(given, device=found.name, memory_bytes=found.memory_bytes, devices=int(count), per_node=per_node)


def _fixed(texts: list[str]) -> dict[str, int | str]:
    """Return the settings of --fix. Raises ValueError."""
    from planner.explore.best_layouts import SETTINGS
    from planner.explore.found import RECOMPUTE, SHARING

    choices = {"recompute": RECOMPUTE, "data_parallel": SHARING}
    fixed: dict[str, int | str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in SETTINGS:
            raise ValueError(f"cannot fix {name!r}; choose from {', '.join(SETTINGS)}")
        if name in choices and value not in choices[name]:
            raise ValueError(f"{name} must be one of {', '.join(choices[name])}, not {value!r}")
        if name not in choices and not (value.isdecimal() and 0 < int(value) <= MOST):
            raise ValueError(f"{name} must be a whole number above 0, not {value!r}")
        fixed[name] = value if name in choices else int(value)
    return fixed
