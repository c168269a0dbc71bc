"""Fit the coefficients of step time to published runs, and write planner/time/coefficients.yaml and docs/time.md: `make time`.

``--judge FILE`` also predicts runs of another file, which the fit never sees, and prints their errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from planner.time.calibration import refit  # noqa: E402
from planner.time.coefficients import CALIBRATED, Coefficients, text  # noqa: E402
from planner.time.fit import device_factors, source_weights  # noqa: E402
from planner.time.terms import TERMS  # noqa: E402
from tools.published_runs import Run, by_sweep, campaigns, runs  # noqa: E402

if TYPE_CHECKING:
    from planner.time.fit import Array

COEFFICIENTS = ROOT / "planner" / "time" / "coefficients.yaml"
PAGE = ROOT / "docs" / "time.md"
LEAST = 6  # layouts of a sweep that is ranked
PREDICTED = 4  # runs of a group that are predicted, beside those that calibrate
WORST = 12
REASONS = (
    ("sc21_table2_zero3", "DeepSpeed's ZeRO-3 of 2021 across up to 280 nodes: no bandwidth explains all four runs"),
    ("gpt-oss", "kernels of gpt-oss in the first releases; later ones are up to 1.7 times as fast with the same layout"),
    ("qwen3-30b", "releases differ by up to 77 % with the same layout"),
    ("mbridge", "experts: exchange that programs hide, and kernels that change from release to release"),
    ("llmfoundry_h100", "software of 2023, before kernels for H100"),
    ("simumax", "products of B200 that sustain less than the best measured one"),
    ("torchtitan", "compilation fuses operators that are modeled one by one"),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """Runs with their blind predictions: no run of a source was seen when it was predicted."""

    runs: Sequence[Run]
    error: Array  # predicted over measured, minus 1

    def of(self, chosen: Callable[[Run], object]) -> dict[str, Array]:
        """Return the errors by group."""
        groups = np.array([str(chosen(run)) for run in self.runs])
        return {name: self.error[groups == name] for name in sorted(set(groups))}


def matrix(some: Sequence[Run]) -> tuple[Array, Array]:
    """Return the terms of runs [runs, terms], and their seconds."""
    return np.array([[float(run.terms[name]) for name in TERMS] for run in some]), np.array([run.seconds for run in some])


def blind(known: Sequence[Run], judged: Sequence[Run]) -> Judged:
    """Predict each run by a fit to all known runs of other sources."""
    terms, seconds = matrix(known)
    others, theirs = matrix(judged)
    sources, error = np.array([run.source for run in known]), np.zeros(len(judged))
    origins = np.array([run.source for run in judged])
    for source in sorted(set(origins)):
        seen, these = sources != source, origins == source
        some = [run for run, is_seen in zip(known, seen, strict=True) if is_seen]
        found, factors = device_factors(
            terms[seen], seconds[seen], source_weights([run.source for run in some]), [r.device for r in some], [r.source for r in some]
        )
        factor = np.array([factors.get(run.device, 1.0) for run, is_one in zip(judged, these, strict=True) if is_one])
        error[these] = (others[these] @ found) * factor / theirs[these] - 1
    return Judged(judged, error)


def predicted(run: Run, found: Array, factors: dict[str, float]) -> float:
    """Return the seconds of a run that coefficients give."""
    return float(matrix([run])[0][0] @ found) * factors.get(run.device, 1.0)


def band(error: Array) -> tuple[float, float]:
    """Return the 10 and 90 % quantiles of measured over predicted."""
    low, high = np.quantile(1 / (1 + error), [0.1, 0.9])
    return float(low), float(high)


def coverage(judged: Judged) -> float:
    """Return the share of runs inside the band that the other sources of their class give."""
    sources, kinds = (np.array([getattr(run, name) for run in judged.runs]) for name in ("source", "kind"))
    inside = []
    for source in sorted(set(sources)):
        for kind in sorted(set(kinds[sources == source])):
            low, high = band(judged.error[(kinds == kind) & (sources != source)])
            these = 1 / (1 + judged.error[(kinds == kind) & (sources == source)])
            inside += list((these >= low) & (these <= high))
    return float(np.mean(inside))


def calibrated(some: Sequence[Run], found: Array, factors: dict[str, float], count: int) -> Array:
    """Return the errors on other layouts of a model and device, of which ``count`` runs calibrate the coefficients (five draws each)."""
    draw, errors = np.random.default_rng(1), []
    for group in by_sweep(some).values():
        if len(group) < count + PREDICTED:
            continue
        terms, seconds = matrix(group)
        terms = terms * factors.get(group[0].device, 1.0)
        for _ in range(5):
            pick = draw.choice(len(group), count, replace=False)
            rest = np.setdiff1d(np.arange(len(group)), pick)
            errors += list(terms[rest] @ refit(terms[pick], seconds[pick], found) / seconds[rest] - 1)
    return np.array(errors)


def ranking(judged: Judged) -> list[tuple[str, int, float, float, float]]:
    """Return, for each sweep, layouts, rank correlation, and how much slower than the best its first choice and best of three are."""
    error = {run.name: one for run, one in zip(judged.runs, judged.error, strict=True)}
    rows = []
    for name, group in sorted(by_sweep(judged.runs).items()):
        if not name.startswith(("hag", "bs-", "simumax")):
            continue  # other groups are no sweeps: their runs differ in more than the layout
        layouts = {run.layout: (run.seconds, run.seconds * (1 + error[run.name])) for run in reversed(group)}
        if len(layouts) < LEAST:
            continue
        measured, predicted = np.array(list(layouts.values())).T
        order = [np.argsort(np.argsort(one)).astype(np.float64) for one in (measured, predicted)]
        best = measured.min()
        first, three = measured[np.argmin(predicted)] / best - 1, measured[np.argsort(predicted)[:3]].min() / best - 1
        rows.append((name, len(layouts), float(np.corrcoef(order[0], order[1])[0, 1]), float(first), float(three)))
    return rows


def percent(value: float) -> str:
    """Return a share in percent."""
    return f"{100 * value:.1f} %"


def summary(error: Array) -> tuple[str, str, str, str]:
    """Return the number of runs, the median and the 90 % quantile of absolute errors, and the band."""
    low, high = band(error)
    size = np.abs(error)
    return str(len(error)), percent(float(np.median(size))), percent(float(np.quantile(size, 0.9))), f"{low:.2f} to {high:.2f}"


def table(heading: str, rows: Iterable[Sequence[str]], columns: Sequence[str]) -> str:
    """Return a Markdown table; all columns after the first are numbers."""
    lines = [f"| {heading} | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def page(judged: Judged, found: Array, factors: dict[str, float], three: Array, one: Array) -> str:
    """Return docs/time.md."""
    columns = ("runs", "median error", "90 % of errors below", "measured / predicted, 10 to 90 %")
    groups: tuple[tuple[str, Callable[[Run], object]], ...] = (
        ("class", lambda run: run.kind), ("device", lambda run: run.device), ("source", lambda run: run.source)
    )  # fmt: skip
    tables = "\n\n".join(
        table(name, [(key, *summary(error)) for key, error in judged.of(chosen).items()], columns) for name, chosen in groups
    )
    order = np.argsort(-np.abs(judged.error))[:WORST]
    worst = [
        (judged.runs[place].name, f"{100 * judged.error[place]:+.0f} %", reason(judged.runs[place].name), judged.runs[place].link)
        for place in map(int, order)
    ]
    sweeps = [(name, str(count), f"{rank:.2f}", percent(first), percent(best)) for name, count, rank, first, best in ranking(judged)]
    every = [(run, hours, predicted(run, found, factors)) for run, hours in campaigns()]
    whole = [
        (run.name, f"{hours:,}", f"{hours * seconds / run.seconds:,.0f}", f"{run.seconds / seconds:.2f}") for run, hours, seconds in every
    ]
    dense = calibrated([run for run in judged.runs if run.kind.startswith("dense")], found, factors, 3)
    terms = [(name, f"{value:.2f}", TERMS[name]) for name, value in zip(TERMS, found, strict=True)]
    slower = [(name, f"{value:.2f}") for name, value in sorted(factors.items()) if abs(value - 1) >= 0.005]  # noqa: PLR2004 - as printed
    return f"""# Step time: how it is predicted, and how well

`make time` writes this page from {len(judged.runs)} published runs of {len({run.source for run in judged.runs})} sources
(`tests/data/published_runs.yaml`).

The time of a step is a sum of terms. Each term is work read off the trace over a full rate of the device or a link, times a coefficient.
A coefficient of 1.3 for matrix products means that they take 1.3 times as long as at the best measured rate. A device factor multiplies all
terms: the median deviation of the sources with at least four runs on the device, pulled to 1 by one source without deviation. Coefficients
are those of least absolute relative error of seconds per step, pulled weakly to values expected beforehand. The weight of a source grows
with the root of its runs. Pipelines add the bubble of their schedule to every term of a microbatch.

{table("term", terms, ("coefficient", "work"))}

{table("device", slower, ("factor",))}

## Errors on runs of sources that the fit did not see

All classes: median error {summary(judged.error)[1]}, 90 % of errors below {summary(judged.error)[2]}.
The range that the planner prints is the band of the run's class in the last column.
 A band fitted to other sources held {percent(coverage(judged))} of the runs.

{tables}

## With measured steps of one's own

`planner calibrate RUNS.csv` refits the coefficients to measured steps, and writes a file that specs name as `cluster.calibration`. A row
of RUNS.csv has a spec, the seconds of its step, and settings by their keys (`spec,layout.tensor_parallel,step_s`). A measured bandwidth
between nodes, of nccl-tests for example, is `cluster.inter_node`. On other layouts of the same model and devices, the median error is then
{summary(one)[1]} (90 % below {summary(one)[2]}) after one step, and {summary(three)[1]} (90 % below {summary(three)[2]}) after three.
Published steps with experts are of several releases of a program, which differ by up to 77 % with one layout, so that steps of one release
calibrate those of another. On models without experts, 90 % of errors after three steps are below {summary(dense)[2]}.

## Order of layouts

Sweeps of at least {LEAST} layouts of one model on one cluster, predicted without any run of their source: how much slower than the best
measured layout the first choice is, and the best of the first three.

{table("sweep", sweeps, ("layouts", "rank correlation", "first choice", "best of three"))}

`planner layouts` lists the layouts of a cluster in this order.
The worst first choice, in a sweep that is not in the repository, was 46 % slower than the best layout: 256 A100 without a pipeline, where
the exchange of gradients between 32 nodes took several times as long as the rate of the links gives.

## Whole trainings

Device hours that papers and model cards report, over those that are predicted for the same tokens without restarts, evaluation and
failures. No fit saw them. Reported hours include what is not predicted, so more than 1 is expected: smaller batches at the start and
failures in Llama 3.1's, and in those of Llama 1 and 2 clusters and layouts that are not published, for which the fastest fully sharded
layout that fits is assumed. DeepSeek-V3's DualPipe hides the exchange of tokens between experts behind computation.

{table("training", whole, ("reported hours", "predicted", "ratio"))}

## The worst predictions

{table("run", worst, ("error", "reason", "source"))}

## What is not predicted

- Restarts, evaluation, checkpoints and failures: `cluster.availability` divides device hours by the share that trains.
- Fabrics that degrade with the number of nodes, and devices slower than others of the same kind.
- Data loading, and the first steps.
"""


def reason(name: str) -> str:
    """Return the reason for a bad prediction, if known."""
    return next((why for part, why in REASONS if part in name), "not known")


def coefficients(judged: Judged, found: Array, factors: dict[str, float], three: Array) -> str:
    """Return planner/time/coefficients.yaml."""
    bands = {**{name: band(error) for name, error in judged.of(lambda run: run.kind).items()}, CALIBRATED: band(three)}
    data = f"{len(judged.runs)} published runs of {len({run.source for run in judged.runs})} sources"
    made = Coefficients(data, dict(zip(TERMS, map(float, found), strict=True)), factors, bands)
    return text(made, "Written by tools/calibrate_time.py; docs/time.md explains it.")


def main() -> None:
    """Fit, write both files, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judge", type=Path, help="file of runs that are predicted, and not used for the fit")
    judge = parser.parse_args().judge
    known = list(runs())
    terms, seconds = matrix(known)
    sources, devices = [run.source for run in known], [run.device for run in known]
    found, factors = device_factors(terms, seconds, source_weights(sources), devices, sources)
    judged = blind(known, known)
    one, three = (calibrated(known, found, factors, count) for count in (1, 3))
    PAGE.write_text(page(judged, found, factors, three, one), encoding="utf-8")
    COEFFICIENTS.write_text(coefficients(judged, found, factors, three), encoding="utf-8")
    if judge:
        names = {run.name for run in known}
        others = list(runs(judge, names))
        extra = blind(known, others)
        judged = Judged([*known, *others], np.concatenate([judged.error, extra.error]))
        one, three = (calibrated(judged.runs, found, factors, count) for count in (1, 3))
    groups = {"all": judged.error, **judged.of(lambda run: run.kind), **judged.of(lambda run: run.kind.partition(",")[0])}
    for name, error in groups.items():
        print(name, *summary(error), f"bias {100 * np.median(error):+.1f} %")
    print("band holds", percent(coverage(judged)), "; calibrated, one and three runs:", *summary(one), *summary(three))
    rows = ranking(judged)
    for row in rows:
        print(*row)
    chosen, best = (np.array([row[place] for row in rows]) for place in (3, 4))
    print("sweeps", len(rows), "first choice, p90", percent(float(np.quantile(chosen, 0.9))), "; within 2 %:", int((best <= 0.02).sum()))  # noqa: PLR2004


if __name__ == "__main__":
    main()
