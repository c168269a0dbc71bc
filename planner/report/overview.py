"""The metrics in an overview of plans, and the table of ``planner run``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill

from planner.capacity.figures import Plan
from planner.report import devices, omitted, quantity, time
from planner.report.columns import OVERVIEW, Column
from planner.report.terminal import PLAIN, Style, table
from planner.spec.printable import printable
from planner.spec.records import Spec

_SUMMARY = tuple(column for column in OVERVIEW.values() if column.tier == "summary")
_SHORT = {"parameters": "params", "train FLOPs per token": "train/token"}


def label(model: str, scenario: str) -> str:
    """Return the name of a scenario of a model: only the model for the base scenario."""
    return model if scenario == "base" else f"{model} · {scenario}"


def title(plan: Plan) -> str:
    """Return the name of a plan."""
    return label(plan.name, plan.scenario)


def cells(plan: Plan, columns: Iterable[Column] = OVERVIEW.values()) -> tuple[str, ...]:
    """Format the metrics of a plan, rounded; one without a value is empty."""
    values = ((column, column.value(plan)) for column in columns)
    return tuple("" if value is None else quantity.rounded(column, value) for column, value in values)


def verdicts(plans: Iterable[Plan]) -> tuple[str, ...]:
    """Return a line per plan with a cluster: whether a step fits."""
    return tuple(f"{title(plan)} on {devices.cluster(plan.fleet)} fits: {devices.verdict(plan.fleet)}" for plan in plans if plan.fleet)


def times(plan: Plan) -> tuple[str, ...]:
    """Return the time of a step of a plan with a cluster."""
    return (f"  time: {time.summary(plan)}",) if plan.fleet else ()


def _to_fit(plan: Plan, spec: Spec | None) -> Iterator[str]:
    found = devices.remedies(spec, plan).notes if spec else ()
    yield from (f"  {'or' if number else 'to fit:'} {one}" for number, one in enumerate(found))


def text(plans: Sequence[Plan], style: Style = PLAIN, width: int | None = None, specs: Iterable[Spec] = ()) -> str:
    """Return the table of ``planner run``, one row per plan, and the units below it; remedies for plans of ``specs`` that do not fit."""
    known = {spec.name: spec for spec in specs}
    headings = ("model", *(_SHORT.get(column.heading, column.heading) for column in _SUMMARY))
    rows = ((title(plan), *cells(plan, _SUMMARY)) for plan in plans)
    conventions = ", ".join(sorted({plan.flops.chosen.convention for plan in plans}))
    notes = f"GiB is 2³⁰ bytes. A multiply-add is 2 FLOPs; convention: {conventions}."
    left_out = (printable(line) for line in omitted.of_plans(plans))
    wrapped = (line if width is None else fill(line, width) for line in left_out)
    on_devices = [plan for plan in plans if plan.fleet]
    fits = [printable(line) for plan in on_devices for line in (*verdicts([plan]), *times(plan), *_to_fit(plan, known.get(plan.name)))]
    fits += [""] if fits else []
    return "\n".join([*table(headings, "lrrrrr", rows, style, width), "", *fits, *wrapped, notes, omitted.UNPADDED, ""])
