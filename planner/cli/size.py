"""``planner size``: shapes of a size."""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format
from planner.cli.command import FINE, Command
from planner.cli.specs import read
from planner.cli.streams import fail


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--params", metavar="N", help="parameters, as 7e9 or 7B")
    target.add_argument("--flops", metavar="C", help="FLOPs of the whole training, as 1e21 or 1ZFLOP")
    parser.add_argument("--like", metavar="LIKE", default="llama", help="whose proportions and parts (default: llama)")
    parser.add_argument("--tokens", metavar="D", help="of the whole training, as 300e9 (default: 20 for each parameter)")
    add_format(parser)


def _run(arguments: argparse.Namespace) -> int:
    from planner.explore import size
    from planner.report import terminal
    from planner.review import quantity

    of = "params" if arguments.params else "flops"
    try:
        target = int(quantity.parse(getattr(arguments, of), {"params": "parameters", "flops": "FLOP"}[of]).value)
        tokens = int(quantity.parse(arguments.tokens, "tokens").value) if arguments.tokens else None
        path = size.path_of(arguments.like)
    except (ValueError, size.SizeError) as error:
        return fail(f"size: {error}")
    specs, code = read([path])
    if code:
        return code
    try:
        found = size.shapes(specs[0], target, of=of, tokens=tokens)
    except size.SizeError as error:
        return fail(f"size: {error}")
    sys.stdout.write(size.as_json(found) if arguments.format == "json" else size.text(found, target, terminal.style(sys.stdout)))
    return FINE


COMMAND = Command(
    name="size",
    help="shapes of a size",
    description="""\
Propose shapes like a model's that come closest to a number of parameters, or of training FLOPs: d_model and d_ff multiples of 128, heads as
wide as the model's that divide, as many heads to a key head, and 32 to 256 of d_model for each layer. LIKE is gpt2, llama, a spec, or a
model of the catalogue. FLOPs are those of 20 tokens for each parameter, unless --tokens says otherwise.
""",
    examples=(("planner size --params 7e9 --like llama", "shapes of about seven billion parameters"),),
    add_arguments=_add_arguments,
    run=_run,
)
