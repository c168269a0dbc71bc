"""Compare with PyTorch.

Build the model from PyTorch modules and compare it with the plan. Parameters are always compared, by name; options add more checks.
Requires the torch extra (--index does not), and for adapters the tuning extra, but no GPU: --kept, --flops and --step run at full size on a
fake A100-class device, without data. --optimizer and --loss run a scaled-down copy of the model on the CPU, --layout one on fake devices.
Models that cannot be built are listed and exit with 2.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.arguments import add_format, add_set, add_specs
from planner.cli.command import FAILURE, FINDING, FINE
from planner.cli.progress import Progress
from planner.cli.specs import read
from planner.cli.streams import fail, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.spec.records import Scenario, Spec
    from planner.verify.measured import Check, Compared

_CHECKS: dict[Check, str] = {
    "kept": "compare bytes saved for the backward pass, by module",
    "flops": "compare FLOPs of the forward and backward pass",
    "step": "compare peak memory of a training step, by phase",
    "optimizer": "compare the optimizer state of a scaled-down copy after one step",
    "loss": "compare the logits' shape and initial loss of a scaled-down copy",
    "layout": "compare memory and communication of several devices, rank by rank, on a scaled-down copy",
}

EXAMPLES = (
    ("planner verify specs/*.yaml", "compare parameters with PyTorch"),
    ("planner verify specs/gpt2-small.yaml --all", "also saved tensors, FLOPs, peak memory, optimizer state"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_specs(parser)
    for check, what in _CHECKS.items():
        parser.add_argument(
            f"--{check}", *(["--saved"] if check == "kept" else []), action="append_const", const=check, dest="checks", help=what
        )
    parser.add_argument("--all", action="store_true", help="run all of the checks above")
    parser.add_argument("--device", choices=("cuda",), help="also measure the peak of a real training step on the local GPU")
    statement = parser.add_mutually_exclusive_group()
    statement.add_argument(
        "--config", metavar="FILE", type=Path, help="compare only parameters, with the class transformers builds from this config.json"
    )
    statement.add_argument(
        "--index", metavar="FILE", type=Path, help="compare only parameters, with the total size in this model.safetensors.index.json"
    )
    statement.add_argument("--against", choices=("transformers",), help="also compare parameters with the equivalent transformers class")
    add_format(parser, "md")
    add_set(parser)


def run(arguments: argparse.Namespace) -> int:
    from planner import verify
    from planner.report import terminal
    from planner.trace.unsupported import UnsupportedError

    specs, code = read(arguments.specs, arguments.set)
    if code:
        return code
    if arguments.index:
        return _weigh(arguments, specs)
    if problem := verify.torch_problem():
        return fail(f"verify: {problem}")
    from planner.verify import table
    from planner.verify.comparison import compare

    chosen: tuple[Check, ...] = tuple(arguments.checks or ())
    chosen = (*chosen, "device") if arguments.device else chosen
    progress = Progress(after=0)
    rows: list[Compared] = []
    for done, spec in enumerate(specs):
        config = arguments.config or (Path(spec.path) if spec.path.endswith(".json") and not arguments.against else None)
        for scenario in spec.scenarios if chosen or arguments.all else spec.scenarios[:1]:
            asked = _every(scenario) if arguments.all else chosen
            # Scenarios share the model and its parameters.
            parts = [(check,) for check in _of_the_model(arguments, config)] if scenario.name == "base" else []
            for checks in (*parts, asked):
                progress.step(f"{done + 1} of {len(specs)}: {spec.name} · {scenario.name}")
                compared: list[Compared] = []
                try:
                    compared += compare(spec, scenario, checks, config)  # an error leaves the rows before it
                except (verify.CannotMeasureError, UnsupportedError) as error:
                    progress.clear()
                    measured = {row.check for row in compared}
                    failed = error.checks if isinstance(error, verify.OptimizerError) else [one for one in checks if one not in measured]
                    code = fail(f"{spec.path}, scenario {scenario.name}, {', '.join(failed)} cannot be measured: {error}")
                rows += compared
    progress.clear()
    omits = {spec.name: spec.omits for spec in specs}
    if arguments.format == "text":
        sys.stdout.write(table.text(rows, omits, terminal.style(sys.stdout), width()))
    else:
        sys.stdout.write(table.markdown(rows, omits) if arguments.format == "md" else table.as_json(rows, omits))
    return code or (FINE if all(row.agrees for row in rows) else FINDING)


def _every(scenario: Scenario) -> tuple[Check, ...]:
    """Return all checks of a scenario: of one device or of several, with frozen weights or without."""
    layout = scenario.training.layout
    if layout is not None and layout.cluster.devices > 1:
        return ("layout",)
    from planner.verify.comparison import OF_ALL_WEIGHTS
    from planner.verify.tuned import tunes

    left_out = {"layout"} | (OF_ALL_WEIGHTS if tunes(scenario.training) else set())
    return tuple(check for check in _CHECKS if check not in left_out)


def _weigh(arguments: argparse.Namespace, specs: Sequence[Spec]) -> int:
    """Compare the parameters of one spec with the total size of a checkpoint."""
    import json

    from planner import capacity, verify
    from planner.verify.weight_index import check

    if len(specs) != 1:
        return fail(f"verify: --index requires one spec, got {len(specs)}")
    (spec,) = specs
    try:
        found = check(capacity.plan(spec, spec.scenarios[0]), arguments.index)
    except verify.CannotMeasureError as error:
        return fail(f"verify: {error}")
    if arguments.format == "json":
        sys.stdout.write(
            json.dumps({"model": spec.name, "agrees": found.agrees, "reason": found.text}, ensure_ascii=False, indent=2) + "\n"
        )
    else:
        sys.stdout.write(f"{spec.name}: {found.text}\n")
    return {True: FINE, False: FINDING, None: FAILURE}[found.agrees]


def _of_the_model(arguments: argparse.Namespace, config: Path | None) -> tuple[Check, ...]:
    """Return how parameters are compared: with a given config.json's own class, with the equivalent class, or with modules built here."""
    if config:
        return ("config",)
    return ("parameters", "transformers") if arguments.against else ("parameters",)
