"""Read the specs of a command line and report their errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.cli.command import FAILURE, FINDING, FINE
from planner.cli.streams import fail, note

if TYPE_CHECKING:
    from planner.spec.problems import Problem
    from planner.spec.records import Scenario, Spec

_NOT_READ = ("folder", "no-specs", "not-found", "unreadable")  # errors in the command line, not in a spec


def read(paths: Sequence[str], overrides: Sequence[str] = ()) -> tuple[Sequence[Spec], int]:
    """Read the specs; report all errors and return the exit code for them. Print remarks on configurations that are imported."""
    from functools import partial

    from planner import spec
    from planner.importer.convert import as_spec

    specs, problems = spec.read(paths, overrides, convert=partial(as_spec, tell=note))
    return specs, report(problems)


def read_one(command: str, arguments: argparse.Namespace) -> tuple[Spec, Scenario] | int:
    """Read the one spec and scenario that a command accepts; otherwise report the error and return the exit code."""
    specs, code = read([arguments.spec], arguments.set)
    if code:
        return code
    if len(specs) > 1:
        return fail(f"{command} accepts one spec; {arguments.spec} contains {len(specs)}")
    (spec,) = specs
    for scenario in spec.scenarios:
        if scenario.name == arguments.scenario:
            return spec, scenario
    return fail(f"unknown scenario {arguments.scenario!r} in {spec.name}; available: {', '.join(one.name for one in spec.scenarios)}")


def report(problems: Sequence[Problem]) -> int:
    """Print the errors and return the exit code for them."""
    if problems:
        from planner.report.terminal import style
        from planner.spec.problems import render

        sys.stderr.write(render(problems, color=style(sys.stderr).color) + "\n")
    return exit_code(problems)


def exit_code(problems: Sequence[Problem]) -> int:
    """Return the exit code for these errors."""
    if not problems:
        return FINE
    return FAILURE if any(problem.code in _NOT_READ or problem.place.file.startswith("--set ") for problem in problems) else FINDING
