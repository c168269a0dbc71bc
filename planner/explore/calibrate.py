"""``planner calibrate``: coefficients of step time refitted to measured steps, with the shipped ones as what is expected."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.capacity.plan import plan
from planner.report import units
from planner.report.terminal import table
from planner.spec.printable import printable
from planner.spec.problems import SpecError
from planner.spec.records import Spec
from planner.time.calibration import refit
from planner.time.coefficients import CALIBRATED, Coefficients, coefficients
from planner.time.estimate import rank_terms, setting, step_time, top_k
from planner.time.terms import TERMS
from planner.trace.unsupported import UnsupportedError

OWN = ("spec", "scenario", "step_s")
"""Columns that are no settings."""
Load = Callable[[str, Sequence[str]], Spec]


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured step: its line in the file, model, and seconds, and those of each term at full rates times the device's factor."""

    line: int
    model: str
    seconds: float
    terms: tuple[float, ...]

    def predicted(self, known: Coefficients) -> float:
        """Return the seconds that coefficients give."""
        return sum(value * known.terms[term] for term, value in zip(TERMS, self.terms, strict=True))


class RunsError(Exception):
    """A file of runs that cannot be used; the message names the line."""


def read(path: Path, load: Load) -> list[Measured]:
    """Read a CSV file with a measured step in each row, and plan each. Raises RunsError.

    Its columns are the spec, optionally a scenario, the seconds of a step, and settings by their keys. A setting that is empty is the
    spec's own.
    """
    try:
        rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")), strict=True)
        missing = [name for name in ("spec", "step_s") if name not in (rows.fieldnames or ())]
        if missing:
            raise RunsError(f"{path.as_posix()} lacks the column {missing[0]}")
        found = [_measured(path.as_posix(), rows.line_num, row, load) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunsError(f"cannot read {path.as_posix()}: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise RunsError(f"{path.as_posix()} has no rows")
    return found


def _measured(file: str, line: int, row: Mapping[str, str], load: Load) -> Measured:
    place = f"{file}:{line}"
    if None in row or None in row.values():
        raise RunsError(f"{place}: the number of cells differs from that of columns")
    try:
        seconds = float(row["step_s"])
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise RunsError(f"{place}: step_s must be a number of seconds above 0, not {row['step_s']!r}")
    settings = [f"{name}={value}" for name, value in row.items() if name not in OWN and value]
    try:
        spec = load(row["spec"], settings)
        name = row.get("scenario") or "base"
        scenario = next((one for one in spec.scenarios if one.name == name), None)
        if scenario is None:
            raise RunsError(f"{place}: unknown scenario {name!r} in {spec.name}")
        layout = scenario.training.layout
        if layout is None:
            raise RunsError(f"{place}: {spec.name} has no cluster; a step time is one of a device")
        published = replace(layout, cluster=replace(layout.cluster, calibration=None))
        made = plan(spec, replace(scenario, training=replace(scenario.training, layout=published)))
        assert made.fleet is not None  # noqa: S101 - it has a cluster
        of = step_time(made.model, made.training, made.fleet)
    except (SpecError, UnsupportedError) as error:
        raise RunsError(f"{place}: {error}") from None
    factor = of.known.devices.get(layout.cluster.device, 1.0)
    full = rank_terms(of.slowest, setting(made.training, layout, top_k(made.model)), of.full)
    return Measured(line, made.name, seconds, tuple(float(full[term]) * factor for term in TERMS))


def calibrate(runs: Sequence[Measured], file: str) -> Coefficients:
    """Return the shipped coefficients refitted to measured steps."""
    import numpy as np

    known = coefficients()
    expected = np.array([known.terms[term] for term in TERMS])
    found = refit(np.array([run.terms for run in runs]), np.array([run.seconds for run in runs]), expected)
    data = f"{len(runs)} measured step{'s' * (len(runs) > 1)} in {file} and {known.data}"
    return Coefficients(data, dict(zip(TERMS, map(float, found), strict=True)), known.devices, {CALIBRATED: known.bands[CALIBRATED]})


def text(runs: Sequence[Measured], found: Coefficients) -> str:
    """Return measured and predicted times before and after the calibration, and the coefficients that changed."""
    known = coefficients()
    rows = [(str(run.line), printable(run.model), units.seconds(run.seconds), *(_off(run, one) for one in (known, found))) for run in runs]
    changed = [
        (term, f"{known.terms[term]:.2f}", f"{found.terms[term]:.2f}", TERMS[term])
        for term in TERMS
        if f"{known.terms[term]:.2f}" != f"{found.terms[term]:.2f}"
    ]
    lines = table(("line", "model", "measured", "before", "after"), "rlrrr", rows)
    return "\n".join([*lines, "", *table(("term", "before", "after", "work"), "lrrl", changed), ""])


def as_json(runs: Sequence[Measured], found: Coefficients) -> str:
    """Return the same as JSON."""
    known = coefficients()
    steps = [
        {"line": run.line, "model": run.model, "step_s": run.seconds, "before_s": run.predicted(known), "after_s": run.predicted(found)}
        for run in runs
    ]
    return json.dumps({"steps": steps, "coefficients": dict(found.terms)}, ensure_ascii=False, indent=1) + "\n"


def _off(run: Measured, known: Coefficients) -> str:
    predicted = run.predicted(known)
    return f"{units.seconds(predicted)} ({100 * (predicted / run.seconds - 1):+.1f} %)"
