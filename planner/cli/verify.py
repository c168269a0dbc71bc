"""``planner verify``: compare with PyTorch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.arguments import add_format, add_set, add_specs
from planner.cli.command import FINDING, FINE, Command
from planner.cli.specs import read
from planner.cli.streams import fail, progress, width

if TYPE_CHECKING:
    from planner.verify.records import Check, Row

_CHECKS: dict[Check, str] = {
    "kept": "bytes kept for the backward pass, module by module",
    "flops": "FLOPs of the forward and the backward pass",
    "step": "the peak of a training step, by phase",
    "optimizer": "bytes that the optimizer of a small twin holds after a step",
    "loss": "the logits' shape and the first loss of a small twin",
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_specs(parser)
    for check, what in _CHECKS.items():
        parser.add_argument(f"--{check}", action="append_const", const=check, dest="checks", help=what)
    parser.add_argument("--all", action="store_true", help="all of these")
    parser.add_argument("--device", choices=("cuda",), help="the peak of a real training step on the GPU in this machine, too")
    statement = parser.add_mutually_exclusive_group()
    statement.add_argument(
        "--config", metavar="FILE", type=Path, help="the parameters of the class that transformers builds from this config.json, instead"
    )
    statement.add_argument(
        "--against", choices=("transformers",), help="the parameters of the transformers class that says the same model, too"
    )
    add_format(parser, "md")
    add_set(parser)


def _run(arguments: argparse.Namespace) -> int:
    from planner import verify
    from planner.report import terminal
    from planner.trace.refusal import NotModelledError
    from planner.verify import table

    specs, code = read(arguments.specs, arguments.set)
    if code:
        return code
    if problem := verify.torch_problem():
        return fail(f"verify: {problem}")
    asked: tuple[Check, ...] = tuple(_CHECKS) if arguments.all else tuple(arguments.checks or ())
    asked = (*asked, "device") if arguments.device else asked
    rows: list[Row] = []
    for done, spec in enumerate(specs):
        config = arguments.config or (Path(spec.path) if spec.path.endswith(".json") and not arguments.against else None)
        for scenario in spec.scenarios if asked else spec.scenarios[:1]:
            # Scenarios share the model, and so its parameters.
            parts = [(check,) for check in _of_the_model(arguments, config)] if scenario.name == "base" else []
            for checks in (*parts, asked):
                progress(f"{done + 1} of {len(specs)}: {spec.name} · {scenario.name}")
                try:
                    rows += verify.compare(spec, scenario, checks, config)
                except (verify.CannotMeasureError, NotModelledError) as error:
                    progress("")
                    code = fail(f"{spec.path}, scenario {scenario.name}, {', '.join(checks)} cannot be measured: {error}")
    progress("")
    if arguments.format == "text":
        sys.stdout.write(table.text(rows, terminal.style(sys.stdout), width()))
    else:
        sys.stdout.write(table.markdown(rows) if arguments.format == "md" else table.as_json(rows))
    return code or (FINE if all(row.agrees for row in rows) else FINDING)


def _of_the_model(arguments: argparse.Namespace, config: Path | None) -> tuple[Check, ...]:
    """Return how parameters are compared: with a given config.json's own class, with the equivalent class, or with modules built here."""
    if config:
        return ("config",)
    return ("parameters", "transformers") if arguments.against else ("parameters",)


COMMAND = Command(
    name="verify",
    help="compare with PyTorch",
    description="""\
Build the model from the spec as PyTorch modules and compare what PyTorch says: parameters name by name, always, and what the options ask
for. Needs the extra torch, and no GPU: --kept, --flops and --step run at full size on a GPU of the A100's class that is made up, without
data. --optimizer and --loss run a small twin of the model on the CPU. What cannot be built is named, and is never a pass: exit code 2.
""",
    examples=(
        ("planner verify specs/*.yaml", "does PyTorch count the same parameters?"),
        ("planner verify specs/gpt2-small.yaml --all", "and keep, compute and hold the same?"),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
