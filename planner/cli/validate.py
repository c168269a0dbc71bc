"""Validate specs without computing anything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.arguments import CI_FORMATS, add_format, add_specs
from planner.cli.specs import exit_code, report
from planner.cli.streams import note

if TYPE_CHECKING:
    from planner.spec.problems import Problem
    from planner.spec.records import Spec

EXAMPLES = (("planner validate specs/*.yaml", "validate specs without computing anything"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_specs(parser)
    add_format(parser, *CI_FORMATS)


def run(arguments: argparse.Namespace) -> int:
    from planner import spec
    from planner.importer.convert import as_spec

    specs, problems = spec.read(arguments.specs, convert=as_spec)
    if arguments.format == "text":
        if not problems:
            note(f"{len(specs)} {'spec is' if len(specs) == 1 else 'specs are'} valid")
        return report(problems)
    if arguments.format == "json":
        sys.stdout.write(_as_json(specs, problems))
    else:
        from planner.review.formats import FORMATS
        from planner.review.without_base import validation

        sys.stdout.write(FORMATS[arguments.format](validation(specs, problems, Path.cwd())))
    return exit_code(problems)


def _as_json(specs: Sequence[Spec], problems: Sequence[Problem]) -> str:
    import json
    from dataclasses import asdict

    reported = [asdict(one.place) | {"code": one.code, "message": one.message, "hint": one.hint} for one in problems]
    return json.dumps({"valid": [one.path for one in specs], "problems": reported}, ensure_ascii=False, indent=2) + "\n"
