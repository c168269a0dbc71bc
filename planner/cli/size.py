"""Suggest model configurations for a target of parameters, FLOPs or memory.

Configurations have the proportions of a reference model and come closest to the target: d_model and d_ff are multiples of 128, head_dim
is the reference's if it divides d_model, with the same query-to-KV-head ratio, and d_model / n_layers is between 32 and 256. Training
FLOPs are those of 20 tokens per parameter unless --tokens is given. With --memory, they are the largest whose training step fits.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_set
from planner.cli.command import FINE
from planner.cli.specs import read
from planner.cli.streams import fail

EXAMPLES = (
    ("planner size --params 7e9 --like llama", "configurations with about 7 B parameters"),
    ("planner size --memory RTX-4090-24GB --set training.sequence_length=2048", "the largest that one GPU can train"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--params", metavar="N", help="target parameter count, e.g. 7e9 or 7B")
    target.add_argument("--flops", metavar="C", help="target training compute in FLOPs, e.g. 1e21 or 1ZFLOP")
    target.add_argument("--memory", metavar="MEMORY", help="memory of a training step, or a device, less 2 GiB, e.g. 24GiB or h100-80gb")
    parser.add_argument(
        "--like", metavar="LIKE", default="llama", help="reference model: gpt2, llama, a spec or a catalog name (default: llama)"
    )
    parser.add_argument("--tokens", metavar="D", help="training tokens, e.g. 300e9 (default: 20 per parameter)")
    add_format(parser)
    add_set(parser)


def run(arguments: argparse.Namespace) -> int:
    from planner.explore import size
    from planner.report import devices, quantity, terminal

    units = {"params": "parameters", "flops": "FLOP", "memory": "bytes"}
    (of,) = (name for name in units if getattr(arguments, name) is not None)
    try:
        given = quantity.parse(getattr(arguments, of), units[of], bare=of != "memory")
        tokens = int(quantity.parse(arguments.tokens, "tokens").value) if arguments.tokens else None
        path = size.path_of(arguments.like)
    except (ValueError, size.SizeError) as error:
        return fail(f"size: {error}")
    specs, code = read([path], arguments.set)
    if code:
        return code
    if of == "memory":
        given = devices.step_memory(arguments.memory, specs[0].scenarios[0].training)
    try:
        found = size.shapes(specs[0], int(given.value), of=of, tokens=tokens)
    except size.SizeError as error:
        return fail(f"size: {error}")
    sys.stdout.write(
        size.as_json(specs[0], found)
        if arguments.format == "json"
        else size.text(specs[0], found, given, terminal.style(sys.stdout), of=of)
    )
    return FINE
