"""``planner fit``: the largest value of a setting at which a training step fits in memory, and what limits it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from textwrap import fill

from planner.capacity import vary
from planner.capacity.figures import Plan
from planner.capacity.plan import PADDED_TOKENS
from planner.report import omitted, quantity, units
from planner.report.fewest import fewest as fewest_devices
from planner.report.quantity import Amount
from planner.report.remedies import Remedy, describe
from planner.report.terminal import PLAIN, Style, table
from planner.spec.edits import problems_of
from planner.spec.layout_checks import divisors
from planner.spec.printable import printable
from planner.spec.records import Spec
from planner.trace.kernels import FLASH_ALIGNMENT

SETTINGS = ("batch_size", "sequence_length", "n_layers", "d_model", vary.RANK)
_WIDTH = 80  # cells of a terminal
FURTHEST = 2**40  # a setting that fits here is not limited by memory


@dataclass(frozen=True, slots=True)
class Fit:
    """The largest multiple of ``step`` at which the peak fits in the memory."""

    setting: str
    now: int
    step: int
    largest: int | None  # None: no value fits
    peak_bytes: int | None  # at the largest value
    limited_by: str


def fits(spec: Spec, scenario: str, memory_bytes: int, settings: Sequence[str]) -> tuple[Fit, ...]:
    """Return for each setting the largest value that fits, others unchanged; one that cannot vary is omitted."""
    values = {setting: vary.value_of(spec, scenario, setting) for setting in settings}
    return tuple(_fit(spec, scenario, memory_bytes, setting, now) for setting, now in values.items() if now is not None)


def _fit(spec: Spec, scenario: str, memory_bytes: int, setting: str, now: int) -> Fit:
    step = _step(spec, scenario, setting)
    rest = now % step if setting == "n_layers" else 0  # of the stages with layers of their own number
    shares = _shares(spec, scenario) if setting == "batch_size" else ()

    def value(count: int) -> int:
        return shares[count - 1] if 0 < count <= len(shares) else count * step + rest

    def planned(count: int) -> Plan | None:
        return None if shares and count > len(shares) else vary.planned(spec, scenario, {setting: value(count)})

    found = _largest(planned, memory_bytes)
    best, beyond = planned(found) if found else None, planned(found + 1)
    if found >= FURTHEST:
        limited_by = "not limited by memory"
    elif shares and found == len(shares):
        limited_by = "all sequences of a device in one pass fit"
    elif beyond is None:
        problems = problems_of(spec, [vary.setting(spec, scenario, setting, value(found + 1))])
        why = problems[0].message if problems else "not supported"
        limited_by = f"cannot be {units.exact(value(found + 1))}: {why}"
    else:
        limited_by = _excess(beyond, units.exact(value(found + 1)), memory_bytes)
    return Fit(setting, now, step, value(found) if found else None, None if best is None else best.memory.peak_bytes, limited_by)


def _shares(spec: Spec, scenario: str) -> tuple[int, ...]:
    """Return the batch sizes that divide the sequences of a device in a step, if a global batch fixes these."""
    training = next(one.training for one in spec.scenarios if one.name == scenario)
    sequences = training.batch_size * training.gradient_accumulation
    fixed = any(place[-1:] == ("global_batch_size",) for place in spec.places)
    return tuple(divisors(sequences)) if fixed else ()


def _largest(planned: Callable[[int], Plan | None], memory_bytes: int) -> int:
    """Return the largest count that fits, 0 if not even 1 does."""

    def peak(count: int) -> int | None:
        plan = planned(count)
        return None if plan is None else plan.memory.peak_bytes

    exceeds = 1
    while exceeds < FURTHEST and (value := peak(exceeds)) is not None and value <= memory_bytes:
        exceeds *= 2
    return FURTHEST if exceeds >= FURTHEST else vary.largest(peak, Fraction(memory_bytes), exceeds // 2, exceeds)


def _step(spec: Spec, scenario: str, setting: str) -> int:
    """Return the step of a setting.

    Sequences are equal parts, stages have equally many layers, and d_model keeps a derived head_dim supported by every attention kernel.
    """
    layout = next(one.training.layout for one in spec.scenarios if one.name == scenario)
    if setting == "sequence_length" and layout:
        return layout.sequence_multiple
    if setting == "n_layers" and layout and layout.pipeline_parallel > 1:
        others = sum(one is not None for one in (layout.first_stage_layers, layout.last_stage_layers))
        return max(layout.stages - others, 1)
    layers = [layer for run in spec.model.runs for layer in run.layers]
    heads = {layer.attention.n_heads for layer in layers if layer.attention}
    if setting != "d_model" or "model.head_dim" not in spec.defaulted or len(heads) != 1:
        return 1
    return FLASH_ALIGNMENT * heads.pop()


def _excess(plan: Plan, what: str, memory_bytes: int) -> str:
    """Describe a plan that does not fit: its peak, the excess, the operator, and the larger part of the memory."""
    memory = plan.memory
    top = max(memory.phases, key=lambda phase: phase.peak_bytes)
    over = units.memory(memory.peak_bytes - memory_bytes)
    parts = {"model states": memory.model_states_bytes, "activations": memory.activations_bytes}
    most = max(parts, key=lambda part: parts[part])
    return (
        f"{what} peaks at {units.memory(memory.peak_bytes)} ({over} over) in {top.phase}, {top.operator}; "
        f"mostly {most}, {units.memory(parts[most])}"
    )


@dataclass(frozen=True, slots=True)
class Fewest:
    """The fewest devices of a cluster on which a step fits, by another data-parallel degree; None if more devices do not suffice."""

    now: int
    fewest: int | None
    peak_bytes: int | None  # on them


def fewest(spec: Spec, scenario: str, memory_bytes: int) -> Fewest | None:
    """Return the fewest devices on which a scenario's step fits; None without a cluster."""
    layout = next(one.training.layout for one in spec.scenarios if one.name == scenario)
    return Fewest(layout.cluster.devices, *(fewest_devices(spec, scenario, memory_bytes) or (None, None))) if layout else None


def text(
    spec: Spec,
    scenario: str,
    memory: Amount,
    found: Sequence[Fit],
    remedies: Sequence[Remedy] = (),
    style: Style = PLAIN,
    devices: Fewest | None = None,
) -> str:
    """Return the result for a terminal, with the remedies for a step that does not fit."""
    maxima = ((units.exact(one.largest), units.memory(one.peak_bytes)) if one.largest and one.peak_bytes else ("none", "") for one in found)
    rows = [(one.setting, units.exact(one.now), *maximum) for one, maximum in zip(found, maxima, strict=True)]
    head = f"{printable(spec.name)}, scenario {printable(scenario)}\nMemory: {quantity.spelled_out(memory)}"
    lines = table(("setting", "current", "maximum", "peak"), "lrrr", rows, style)
    ways = (
        ["", "The current settings do not fit. These changes do:", "", *(f"  {describe(one)}" for one in remedies), ""] if remedies else []
    )
    notes = (fill(printable(note), _WIDTH) for note in (*omitted.of_specs([spec], scenario), omitted.UNPADDED))
    reasons = [*map(_reason, found), *([_devices(devices)] if devices else [])]
    return "\n".join([head, *ways, "Largest values that fit, other settings unchanged:", "", *lines, "", *reasons, *notes, ""])


def _devices(one: Fewest) -> str:
    if one.fewest is None or one.peak_bytes is None:
        return "Fewest devices: none found; more data-parallel devices do not suffice"
    return f"Fewest devices: {units.exact(one.fewest)}, with a peak of {units.memory(one.peak_bytes)} (current: {units.exact(one.now)})"


def _reason(one: Fit) -> str:
    reasons = {"sequence_length": "are equal parts on all devices", "n_layers": "are one layer for each stage"}
    why = reasons.get(one.setting, "keep head_dim supported by every attention kernel")
    steps = f" (steps of {one.step} {why})" if one.step > 1 else ""
    return fill(f"{one.setting}{steps}: {one.limited_by}", _WIDTH, subsequent_indent="  ")


def as_json(spec: Spec, scenario: str, memory_bytes: int, found: Sequence[Fit], remedies: Sequence[Remedy], devices: Fewest | None) -> str:
    """Return the result as JSON, exact."""
    made = {"model": spec.name, "scenario": scenario, "memory_bytes": memory_bytes}
    made |= {"fits": [asdict(one) for one in found], "remedies": [asdict(one) for one in remedies]}
    made |= {"devices": asdict(devices)} if devices else {}
    made["not_counted"] = [*spec.omits, PADDED_TOKENS]
    return json.dumps(made, ensure_ascii=False, indent=2) + "\n"
