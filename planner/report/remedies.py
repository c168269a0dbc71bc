"""Remedies for a metric that exceeds its limit: other training settings, a larger device, smaller sizes. Each is computed by planning it.

They are ordered by what they change: first settings that leave the result of training unchanged, then those that change its numerics, then
the device, then the size of the batch and the sequence. The architecture is what a spec proposes, so only a limit on parameters suggests
fewer layers, and at most a quarter fewer: a smaller share would be another model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import ceil

from planner import devices
from planner.capacity import vary
from planner.capacity.plan import plan
from planner.capacity.vary import Settings
from planner.report import quantity, units
from planner.report.columns import CLAIMABLE
from planner.report.fewest import fewest
from planner.spec.nodes import REPLACES
from planner.spec.records import Precision, Spec, Training

MOST = 4  # remedies for one metric
_ACCUMULATED = 1024  # passes per step that are tried at most
_LEAST = {"batch_size": Fraction(0), "sequence_length": Fraction(1, 4)}  # least share that remains
_LEAST_LAYERS = {"n_layers": Fraction(3, 4)}
_SMALLER: Mapping[Precision, Sequence[Settings]] = {
    "fp32": ({"precision": "bf16-autocast"}, {"precision": "bf16"}),
    "bf16-autocast": ({"precision": "bf16-master", "gradient_dtype": "bf16"}, {"precision": "bf16"}),
    "fp16-autocast": ({"precision": "bf16-master", "gradient_dtype": "bf16"}, {"precision": "bf16"}),
    "bf16-master": ({"gradient_dtype": "bf16"}, {"precision": "bf16"}),
    "fp16-master": ({"precision": "bf16"},),
    "bf16": (),
}

_Measure = Callable[[Settings], int | None]


@dataclass(frozen=True, slots=True)
class Remedy:
    """Settings, or a device, with which a metric is within its limit, and its value then."""

    figure: str  # a column of capacity.csv
    value: int
    settings: Settings
    device: str = ""


def find_remedies(
    spec: Spec, scenario: str, figure: str, limit: Fraction, *, device: bool = True, sizes: bool = True
) -> tuple[Remedy, ...]:
    """Return the first remedies for a metric of a scenario, with ``device`` also another device, with ``sizes`` also smaller sizes.

    A spec that is not from a file has none.
    """
    if not spec.written:
        return ()
    found = tuple(islice(_remedies(spec, scenario, figure, limit, device=device, sizes=sizes), MOST))
    return (*found, *_layouts(spec, scenario, limit)) if figure == "peak_bytes" and device else found


def _layouts(spec: Spec, scenario: str, limit: Fraction) -> Iterator[Remedy]:
    """Yield other layouts and devices of a cluster with which the peak is within the limit."""
    layout = next(one.training.layout for one in spec.scenarios if one.name == scenario)

    def measure(settings: Settings) -> int | None:
        planned = vary.planned(spec, scenario, settings)
        return planned.memory.peak_bytes if planned else None

    now = measure({})
    if layout is None or now is None or now <= limit:
        return
    degrees = [layout.tensor_parallel << power for power in range(1, layout.cluster.per_node.bit_length())]
    shared: list[Settings] = [{"layout.tensor_parallel": degree} for degree in degrees if degree <= layout.cluster.per_node]
    sharded: list[Settings] = [{"layout.data_parallel": "fsdp"}] if layout.data_parallel in ("ddp", "zero1", "zero2") else []
    larger = devices.smallest(now + layout.cluster.reserve_bytes)
    replaced: list[Settings] = [{"cluster.device": larger.name}] if larger else []
    for choices, most in ((sharded, limit), (shared, limit), (replaced, Fraction(larger.memory_bytes if larger else 0))):
        tried = ((settings, measure(settings)) for settings in choices)
        yield from islice((Remedy("peak_bytes", value, settings) for settings, value in tried if value is not None and value <= most), 1)
    if other := fewest(spec, scenario, int(limit)):
        yield Remedy("peak_bytes", other[1], {"cluster.devices": other[0]})


def _remedies(spec: Spec, scenario: str, figure: str, limit: Fraction, *, device: bool, sizes: bool) -> Iterator[Remedy]:
    column, chosen = CLAIMABLE[figure], next(one for one in spec.scenarios if one.name == scenario)

    def measure(settings: Settings) -> int | None:
        planned = vary.planned(spec, scenario, settings)
        return column.value(planned) if planned else None

    now = column.value(plan(spec, chosen))
    if now is None or now <= limit:
        return
    valid: list[Settings] = []
    fitting = False
    for settings in _changes(chosen.training):
        value = measure(settings)
        valid += [settings] if value is not None else []
        if value is not None and value <= limit and value < now:
            fitting = True
            yield _remedy(figure, measure, _fewest_passes(settings, chosen.training, measure, limit))
    if not fitting and (together := _together(valid, measure, limit)):
        yield _remedy(figure, measure, _fewest_passes(together, chosen.training, measure, limit))
    if device and figure == "peak_bytes" and chosen.training.layout is None and (larger := devices.smallest(now)):
        yield Remedy(figure, now, {}, larger.name)
    smaller = (_LEAST if sizes else {}) | (_LEAST_LAYERS if column.unit == "parameters" else {})
    for setting, least in smaller.items():
        if settings := _largest(setting, vary.value_of(spec, scenario, setting), least, measure, now, limit):
            yield _remedy(figure, measure, settings)


def _remedy(figure: str, measure: _Measure, settings: Settings) -> Remedy:
    value = measure(settings)
    assert value is not None  # noqa: S101 - they fit
    return Remedy(figure, value, settings)


def _changes(training: Training) -> Iterator[Settings]:
    """Yield the changes of settings that may use less memory, in the order of their effects."""
    if training.use_cache:
        yield {"use_cache": False}
    if training.keep_logits:
        yield {"keep_logits": False}
    if training.implementation.endswith("-eager"):
        yield {"implementation": training.implementation.removesuffix("-eager")}
    if training.optimizer in ("adamw", "adam") and training.optimizer_kernel != "fused":
        yield {"optimizer_kernel": "fused"}
    if training.loss != "linear_cross_entropy_chunked":
        yield {"loss": "linear_cross_entropy_chunked"}
    if passes := _passes(training):
        yield _accumulated(training, passes[-1])
    if training.recompute == "none":
        yield {"recompute": "selective"}
    if training.recompute != "full":
        yield {"recompute": "full"}
    if training.optimizer == "adamw":
        yield {"optimizer": "adamw-8bit"}
    yield from _SMALLER[training.precision]


def _passes(training: Training) -> list[int]:
    """Return the numbers of passes into which a batch can be split."""
    return [passes for passes in range(2, min(training.batch_size, _ACCUMULATED) + 1) if training.batch_size % passes == 0]


def _accumulated(training: Training, passes: int) -> Settings:
    """Split each batch into several passes; a step has the same tokens."""
    return {"batch_size": training.batch_size // passes, "gradient_accumulation": training.gradient_accumulation * passes}


def _fewest_passes(settings: Settings, training: Training, measure: _Measure, limit: Fraction) -> Settings:
    """Return the settings with the batch split into as few passes as fit, if they split it."""
    if "gradient_accumulation" not in settings:
        return settings
    passes = _passes(training)[::-1]
    split = [{**settings, **_accumulated(training, each)} for each in passes]
    return split[vary.largest(lambda index: measure(split[index]), limit, 0, len(split))]


def _together(changes: Sequence[Settings], measure: _Measure, limit: Fraction) -> Settings:
    """Return the first changes that fit together, without those that are not needed; empty if all of them do not fit."""

    def fit(chosen: Iterable[Settings]) -> bool:
        value = measure(_merged(chosen))
        return value is not None and value <= limit

    count = next((count for count in range(2, len(changes) + 1) if fit(changes[:count])), 0)
    needed = list(changes[:count])
    for change in changes[: max(count - 1, 0)][::-1]:
        without = [one for one in needed if one is not change]
        needed = without if fit(without) else needed
    return _merged(needed)


def _merged(changes: Iterable[Settings]) -> Settings:
    merged: dict[str, int | str] = {}
    for change in changes:
        for rival in (rival for key in change for rival in REPLACES.get(key, ())):
            merged.pop(rival, None)
        merged |= change
    return merged


def _largest(setting: str, now: int | None, least: Fraction, measure: _Measure, value: int, limit: Fraction) -> Settings:
    """Return the largest value of a size that fits, of which at least a share remains; empty if there is none."""
    lowest = max(1, ceil(least * (now or 0)))
    smallest = measure({setting: lowest}) if now and lowest < now else None
    if not now or smallest is None or smallest > limit or smallest == value:
        return {}
    return {setting: vary.largest(lambda size: measure({setting: size}), limit, lowest, now)}


def describe(one: Remedy) -> str:
    """Describe a remedy: ``recompute: full → 7.122 GiB``, ``device: L40-48GB (44.99 GiB) → 43.31 GiB``."""
    device = devices.find(one.device)
    named = [f"{setting}: {_text(value)}" for setting, value in one.settings.items()]
    named += [f"device: {device.name} ({units.memory(device.memory_bytes)})"] if device else []
    return f"{', '.join(named)} → {quantity.rounded(CLAIMABLE[one.figure], one.value)}"


def _text(value: object) -> str:
    return units.exact(value) if type(value) is int else vary.written(value)
