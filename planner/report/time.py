"""The time of a training step and of a whole training in reports. It is the only figure with a range."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from planner.capacity.figures import Plan
from planner.report import units
from planner.report.breakdown import Section
from planner.spec.records import Cluster
from planner.time.estimate import Estimate, of_plan
from planner.time.terms import TERMS
from planner.time.training import WholeTraining, whole_training

NAMES = {**TERMS, "bubble": "bubble of the pipeline, part of the terms above", "recomputed": "recomputation, part of the products"}
SMALL = 0.0005  # shares below are not listed
MFU = "MFU counts the model's matrix products with causal attention, HFU all that run, over the dense peak in 16 or 32 bits."


def estimated(plan: Plan, read: Callable[[Estimate], float]) -> int | None:
    """Return a figure of a plan's step time, rounded; None if it has none."""
    found = of_plan(plan) if plan.fleet else ""
    return None if isinstance(found, str) else round(read(found))


def trained(plan: Plan, read: Callable[[WholeTraining], Fraction | None]) -> int | None:
    """Return a figure of a whole training, rounded; None if it is not counted."""
    found = of_plan(plan) if plan.fleet else ""
    whole = None if isinstance(found, str) else whole_training(plan, found)
    value = read(whole) if whole else None
    return None if value is None else round(value)


def spread(plan: Plan, value: int, *, is_rate: bool) -> tuple[int, int] | None:
    """Return the range of a figure that is proportional to the time of a step, or of a rate; None without an estimate."""
    found = of_plan(plan)
    if isinstance(found, str):
        return None
    low, high = found.low / found.seconds, found.high / found.seconds
    return (round(value / high), round(value / low)) if is_rate else (round(value * low), round(value * high))


def summary(plan: Plan) -> str:
    """Return the time of a step with its range and rates, or why there is none."""
    found = of_plan(plan)
    if isinstance(found, str):
        return f"not counted: {found}"
    return (
        f"{units.seconds(found.seconds)} per step ({units.seconds(found.low)} to {units.seconds(found.high)}), "
        f"{found.tokens_per_second_per_device:,.0f} tokens/s per device, MFU {100 * found.mfu:.1f} %"
    )


def section(plan: Plan) -> Section:
    """Show the time of a step by term, its range, rates and utilization, and the whole training."""
    name = "Time of a step"
    if plan.fleet is None:
        return Section(name)
    found = of_plan(plan)
    if isinstance(found, str):
        return Section(name, notes=(f"not counted: {found}",))
    rows = tuple(
        (NAMES[term], units.seconds(share * found.seconds), f"{100 * share:.1f} %")
        for term, share in found.shares.items()
        if share >= SMALL
    )
    notes = (
        f"{summary(plan)}, HFU {100 * found.hfu:.1f} %. {MFU}",
        f"The range holds 80 % of published runs of the class ({found.kind}); calibrated on {found.calibrated_on}.",
        f"Attack next: {NAMES[found.largest]}.",
        *_whole(plan, found),
    )
    return Section(name, ("term", "time", "share"), "lrr", rows, notes=notes)


def _whole(plan: Plan, found: Estimate) -> tuple[str, ...]:
    """Return what the whole training takes."""
    whole = whole_training(plan, found)
    if whole is None or plan.fleet is None:
        return ("Whole training: not counted, since the spec has no tokens.",)
    cluster = plan.fleet.layout.cluster
    range_ = f"{float(whole.days) * found.low / found.seconds:.4g} to {float(whole.days) * found.high / found.seconds:.4g}"
    amounts = (
        ("energy", whole.energy_kwh, "kWh"),
        ("CO₂", whole.co2_kg, "kg"),
        ("cost", whole.cost, _price(cluster)),
    )
    listed = (f"{what} {_amount(value)} {unit}" if value is not None else f"{what} not counted" for what, value, unit in amounts)
    share = f", {100 * float(cluster.availability):g} % of them training" if cluster.availability != 1 else ""
    return (
        (
            f"Whole training: {_amount(whole.days)} days ({range_}), {_amount(whole.device_hours)} device hours without restarts, "
            f"evaluation and failures{share}; {', '.join(listed)}."
        ),
    )


def _price(cluster: Cluster) -> str:
    price = float(cluster.price_per_device_hour or 0)
    return f"{cluster.currency} (at {price:g} per device hour, {cluster.price_source}, {cluster.price_date})"


def _amount(value: Fraction) -> str:
    return f"{float(value):.4g}" if value < 1000 else f"{round(value):,}"  # noqa: PLR2004 - where whole numbers are exact enough
