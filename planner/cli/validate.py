"""Validate specs without computing anything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.cli.arguments import CI_FORMATS, add_format, add_specs
from planner.cli.specs import exit_code, read
from planner.cli.streams import note

EXAMPLES = (("planner validate specs/*.yaml", "validate specs without computing anything"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_specs(parser)
    add_format(parser, *CI_FORMATS)


def run(arguments: argparse.Namespace) -> int:
    if arguments.format == "json":
        return _as_json(arguments.specs)
    if arguments.format != "text":
        return _for_ci(arguments.specs, arguments.format)
    specs, code = read(arguments.specs)
    if not code:
        note(f"{len(specs)} {'spec is' if len(specs) == 1 else 'specs are'} valid")
    return code


def _for_ci(paths: Sequence[str], form: str) -> int:
    from planner import spec
    from planner.importer.convert import as_spec
    from planner.review.formats import FORMATS
    from planner.review.without_base import validation

    specs, problems = spec.read(paths, convert=as_spec)
    sys.stdout.write(FORMATS[form](validation(specs, problems, Path.cwd())))
    return exit_code(problems)


def _as_json(paths: Sequence[str]) -> int:
    import json

    from planner import spec
    from planner.importer.convert import as_spec

    specs, problems = spec.read(paths, convert=as_spec)
    reported = [
        {
            "file": problem.place.file,
            "line": problem.place.line,
            "column": problem.place.column,
            "code": problem.code,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
    sys.stdout.write(json.dumps({"valid": [one.path for one in specs], "problems": reported}, ensure_ascii=False, indent=2) + "\n")
    return exit_code(problems)
