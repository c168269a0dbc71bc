"""Show the memory and FLOPs of a model that answers requests.

For the spec's section serving. Of transformers: weights, the cache of keys and values after the prompts and after the outputs, the peak of
each kind of pass, its FLOPs as PyTorch counts them, and whether it fits in a device. Of vLLM, SGLang, TensorRT-LLM and llama.cpp: the cache
of a token, of a request and of all requests, and how many requests fit at once. The exit code is 1 if the requests do not fit.
"""

from __future__ import annotations

import argparse
import sys

from planner.cli.arguments import add_format, add_set, add_spec
from planner.cli.command import FINDING, FINE
from planner.cli.specs import read_one
from planner.cli.streams import fail

EXAMPLES = (("planner serve catalog/llama-3-8b --set serving.prompt=4096", "memory and FLOPs of one prompt and its first token"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    add_format(parser)
    add_set(parser)


def run(arguments: argparse.Namespace) -> int:
    from planner.capacity import serving
    from planner.report import served, terminal
    from planner.report.serving_accuracy import accuracy

    arguments.scenario = "base"
    read = read_one("serve", arguments)
    if isinstance(read, int):
        return read
    spec, scenario = read
    if spec.serving is None:
        return fail(f"serve: {spec.name} has no section serving; write one, or add --set serving.prompt=2048")
    made = serving.serve(spec, spec.serving, scenario.training)
    known = accuracy(spec.model, spec.serving)
    sys.stdout.write(served.as_json(made, known) if arguments.format == "json" else served.text(made, known, terminal.style(sys.stdout)))
    return FINE if served.fits(made) else FINDING
