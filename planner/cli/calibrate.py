"""Fit the time of a step to measured ones.

Refit the coefficients of step time to steps of one's own, with those of published runs as what is expected, and write a calibration file.
Specs name it as `cluster.calibration`. One step scales all terms; from two on, each term is fitted. RUNS.csv has a row per measured step:
the columns `spec` and `step_s` (seconds per step), optionally `scenario`, and settings by their keys, e.g. `layout.tensor_parallel`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from planner.cli.arguments import add_format
from planner.cli.command import FINE
from planner.cli.streams import fail, note

EXAMPLES = (("planner calibrate runs.csv", "write calibration.yaml"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUNS.csv", type=Path, help="file of measured steps")
    parser.add_argument(
        "--output", metavar="FILE", type=Path, default=Path("calibration.yaml"), help="file to write (default: calibration.yaml)"
    )
    add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    from functools import partial

    from planner import spec
    from planner.explore import calibrate
    from planner.importer.convert import as_spec
    from planner.time.coefficients import text

    try:
        runs = calibrate.read(arguments.runs, partial(spec.load, convert=as_spec))
    except calibrate.RunsError as error:
        return fail(f"calibrate: {error}")
    found = calibrate.calibrate(runs, arguments.runs.name)
    try:
        arguments.output.write_text(text(found, "Written by planner calibrate."), encoding="utf-8")
    except OSError as error:
        return fail(f"cannot write {arguments.output.as_posix()}: {error.strerror or error}")
    note(f"wrote {arguments.output.as_posix()}")
    sys.stdout.write((calibrate.as_json if arguments.format == "json" else calibrate.text)(runs, found))
    return FINE
