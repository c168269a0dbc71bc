"""A whole training: days, device hours, energy, CO2 and cost. Exact in its inputs; what is not given is None, never 0.

Device hours are those without restarts, evaluation and failures, divided by the share of hours that train (availability).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from planner import devices
from planner.capacity.figures import Plan
from planner.spec.records import Cluster
from planner.time.estimate import Estimate

HOUR, DAY = 3600, 24


@dataclass(frozen=True, slots=True)
class WholeTraining:
    """The whole training of a spec with a number of tokens. None: not counted, since an input is missing."""

    device_hours: Fraction
    days: Fraction
    energy_kwh: Fraction | None  # of the devices at their rated power, times PUE
    co2_kg: Fraction | None
    cost: Fraction | None  # in the currency of the price


def whole_training(plan: Plan, of: Estimate) -> WholeTraining | None:
    """Return the whole training, None without a number of tokens."""
    if plan.fleet is None or plan.train_tokens is None:
        return None
    cluster = plan.fleet.layout.cluster
    hours = Fraction(plan.train_tokens) / Fraction(of.tokens_per_second) / HOUR * cluster.devices / cluster.availability
    device = devices.find(cluster.device)
    return of_hours(hours, cluster, device.watts if device else None)


def of_hours(device_hours: Fraction, cluster: Cluster, watts: int | None) -> WholeTraining:
    """Return what device hours take: energy = hours x power x PUE (Touvron et al. 2023, arXiv:2302.13971, section 6), CO2 and cost."""
    energy = None if watts is None or cluster.pue is None else device_hours * watts * cluster.pue / 1000
    return WholeTraining(
        device_hours,
        device_hours / cluster.devices / DAY,
        energy,
        None if energy is None or cluster.kg_co2_per_kwh is None else energy * cluster.kg_co2_per_kwh,
        None if cluster.price_per_device_hour is None else device_hours * cluster.price_per_device_hour,
    )
