"""Several devices in reports: whether a step fits, the memory and the traffic of the device with the largest peak."""

from __future__ import annotations

from fractions import Fraction

from planner import devices
from planner.capacity.figures import Fleet, Plan
from planner.report import quantity, units
from planner.report.breakdown import Section
from planner.report.quantity import Amount
from planner.report.remedies import describe, find_remedies
from planner.spec.records import RESERVE_BYTES, Layout, Spec, Training


def verdict(fleet: Fleet) -> str:
    """Return whether a step fits into the memory of a device, and by how much."""
    return f"yes, {units.memory(fleet.free_bytes)} free" if fleet.free_bytes >= 0 else f"no, {units.memory(-fleet.free_bytes)} over"


def remedies(spec: Spec, plan: Plan) -> Section:
    """List changes with which a step fits into the memory of a device, each planned; nothing if it does."""
    name, fleet = "Changes with which a step fits, and the peak then", plan.fleet
    if fleet is None or fleet.free_bytes >= 0:
        return Section(name)
    found = find_remedies(spec, plan.scenario, "peak_bytes", Fraction(usable(fleet.layout)))
    return Section(name, notes=tuple(map(describe, found)) or ("none found; other settings, layouts and devices were tried",))


def reserve(training: Training) -> int:
    """Return the bytes of a device that a step may not use: the cluster's reserve.

    On one device it is the default of that, unless the peak already includes ``training.reserve_bytes``.
    """
    if training.layout:
        return training.layout.cluster.reserve_bytes
    return 0 if training.reserve_bytes else RESERVE_BYTES


def step_memory(text: str, training: Training) -> Amount:
    """Return the memory that a step may use: an amount as given, or the memory of a device less the reserve. Raises ValueError."""
    given, device = quantity.parse(text, "bytes", bare=False), devices.find(text)
    return _less_reserve(device.name, device.memory_bytes, training) if device else given


def cluster_memory(training: Training) -> Amount | None:
    """Return the memory of a cluster's device that a step may use; None without a cluster."""
    of = training.layout and training.layout.cluster
    return _less_reserve(str(of.device), of.memory_bytes, training) if of else None


def _less_reserve(name: str, memory_bytes: int, training: Training) -> Amount:
    kept_free = reserve(training)
    written = f"{units.memory(memory_bytes)} of {name} - {units.memory(kept_free)} reserved"
    return Amount(written if kept_free else name, Fraction(memory_bytes - kept_free))


def usable(layout: Layout) -> int:
    """Return the bytes of a device that a step may use."""
    return layout.cluster.memory_bytes - layout.cluster.reserve_bytes


def cluster(fleet: Fleet) -> str:
    """Return the number, name and memory of the devices."""
    of = fleet.layout.cluster
    return f"{units.exact(of.devices)} × {of.device} ({units.memory(of.memory_bytes)}, {units.memory(of.reserve_bytes)} reserved)"


def memory(plan: Plan) -> Section:
    """Show the memory of the device with the largest peak, by part, and the verdict."""
    name, fleet, used = "Memory of a device", plan.fleet, plan.memory
    if fleet is None:
        return Section(name)
    parts = (
        *((state.part, state.total_bytes) for state in used.states if state.total_bytes),
        *((what, size) for what, size in fleet.buffers if size),
        ("saved for backward", used.activations_bytes),
        ("peak: parts above as far as they live together, and temporary tensors", used.peak_bytes),
        ("reserve", fleet.layout.cluster.reserve_bytes),
    )
    rows = tuple((what, units.exact(size), units.memory(size)) for what, size in parts)
    notes = (
        f"Fits: {verdict(fleet)}, on {cluster(fleet)}.",
        f"Device: {fleet.fullest}. It stores {units.exact(fleet.params)} parameters.",
        *routing(fleet.layout),
        *([f"In host memory: {units.exact(fleet.host_bytes)} bytes ({units.memory(fleet.host_bytes)})."] if fleet.host_bytes else []),
    )
    return Section(name, ("part", "bytes", ""), "lrr", rows, notes=notes)


def routing(layout: Layout) -> tuple[str, ...]:
    """Return how tokens are assumed to be routed to experts that devices share."""
    if layout.expert_parallel == 1:
        return ()
    if layout.imbalance == 1:
        return ("Routing is assumed to be balanced: experts of all devices get equally many tokens.",)
    return (f"The experts of the fullest device get {float(layout.imbalance):g} times the average number of tokens (layout.imbalance).",)


def traffic(plan: Plan) -> Section:
    """Show what the device communicates in a step: whole tensors, by collective and link."""
    name, fleet = "Communication of a device per step", plan.fleet
    if fleet is None:
        return Section(name)
    per_node = fleet.layout.cluster.per_node
    rows = (
        (one.collective, units.exact(one.bytes), units.memory(one.bytes), "inside nodes" if one.spans <= per_node else "between nodes")
        for one in fleet.traffic
    )
    return Section(name, ("collective", "bytes of whole tensors", "", "link"), "lrrl", tuple(rows))


def ranks(plan: Plan) -> Section:
    """Show every kind of device if there are several: its parameters and its peak."""
    name, fleet = "Devices", plan.fleet
    if fleet is None or len(fleet.ranks) == 1:
        return Section(name)
    rows = tuple((one.which, units.exact(one.params), units.exact(one.peak_bytes), units.memory(one.peak_bytes)) for one in fleet.ranks)
    return Section(name, ("device", "parameters", "peak bytes", ""), "lrrr", rows)


def every_rank(plan: Plan) -> Section:
    """Show every kind of device with its memory by part and the peak of each phase, the fullest first."""
    name, fleet = "Ranks, the fullest first", plan.fleet
    if fleet is None:
        return Section(name)
    ranks = sorted(fleet.ranks, key=lambda one: -one.peak_bytes)
    parts = [part for part, _ in ranks[0].parts]
    phases = [f"{one.phase} peak" for one in ranks[0].phases]
    rows = tuple(
        (
            one.which,
            units.exact(one.params),
            *(units.memory(size) for _, size in one.parts),
            *(units.memory(phase.peak_bytes) if phase.peak_bytes else "" for phase in one.phases),
            units.exact(one.peak_bytes),
        )
        for one in ranks
    )
    headings = ("device", "parameters", *parts, *phases, "peak bytes")
    return Section(name, headings, "l" + "r" * (len(headings) - 1), rows)


SECTIONS = (memory, ranks, traffic)
