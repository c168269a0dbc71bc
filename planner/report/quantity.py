"""Quantities with units: parse those of budgets and options, format metrics and their changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from planner import devices
from planner.report import units
from planner.report.columns import Column
from planner.spec.amount import BYTES, SI

_FORMATS: Mapping[str, Callable[[int], str]] = {
    "parameters": units.count,
    "tokens": units.count,
    "sequences": units.count,
    "devices": units.count,
    "requests": units.count,
    "bytes": units.memory,
    "FLOP": units.flops,
    "10⁹ FLOP": units.count,
    "µs": lambda value: units.seconds(value / 10**6),
}
_FLOP = {"FLOP": 1} | {f"{letter}FLOP": 1000**power for power, letter in enumerate(SI, 1)}
_COUNT = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_UNITS: Mapping[str, Mapping[str, int]] = {
    "bytes": BYTES,
    "FLOP": _FLOP | {f"{unit}s": size for unit, size in _FLOP.items()},
    "µs": {"µs": 1, "us": 1, "ms": 10**3, "s": 10**6, "min": 60 * 10**6},
    "hours": _COUNT | {"hours": 1, "h": 1},
    "days": _COUNT | {"days": 1, "d": 1},
}
_EXAMPLES: Mapping[str, str] = {"bytes": "80GB, 40GiB", "FLOP": "1.5ZFLOP, 3e21", "µs": "5s, 900ms", "hours": "5000, 5k", "days": "30"}
_AMOUNT = re.compile(r"(?P<number>\d{1,20}(?:\.\d{1,20})?(?:[eE]\+?\d{1,2})?)\s?(?P<unit>[A-Za-zµ%]*)")


@dataclass(frozen=True, slots=True)
class Amount:
    """A limit as written, and its value: a number in the metric's unit, or a share of a metric."""

    text: str
    value: Fraction
    share: bool = False  # value is a factor: 5 % is 1/20

    def of(self, figure: int) -> Fraction:
        """Return the limit in the metric's unit; a share is taken of ``figure``."""
        return self.value * figure if self.share else self.value


def parse(text: str | int, unit: str, *, share: bool = False, bare: bool = True) -> Amount:
    """Parse ``40GiB``, ``80GB``, ``7B``, with ``bare`` also ``300e9``, with ``share`` also ``5%``; for bytes also a device, ``h100-80gb``.

    Raises ValueError with the expected form.
    """
    example = _EXAMPLES.get(unit, "7B, 124M, 300e9") + (", 5%" if share else "")
    found = _AMOUNT.fullmatch(str(text).replace(",", "").replace("_", "").strip())
    if not found and unit == "bytes" and (device := devices.find(str(text))):
        return Amount(device.name, Fraction(device.memory_bytes))
    if not found and unit == "bytes" and (near := devices.nearest(str(text))):
        raise ValueError(f"unknown device; did you mean {' or '.join(near)}?")
    if not found or not (found["unit"] or bare):
        raise ValueError(f"use a number and a unit, for example {example}")
    number, named = Fraction(found["number"]), found["unit"]
    if named == "%" and share:
        return Amount(str(text), number / 100, share=True)
    sizes = _UNITS.get(unit, _COUNT)
    if named and named not in sizes:
        raise ValueError(f"the unit must be {unit}, for example {example}")
    return Amount(str(text), number * sizes.get(named, 1))


def spelled_out(memory: Amount) -> str:
    """Format memory as given, rounded and exact: ``80GB (74.51 GiB, 80,000,000,000 bytes)``."""
    size = int(memory.value)
    return f"{memory.text} ({units.memory(size)}, {units.exact(size)} bytes)"


def rounded(column: Column, value: int | None) -> str:
    """Format a metric, rounded, with its unit: ``43.12 GiB``."""
    if value is None:
        return "none"
    return _FORMATS[column.unit](value) if column.unit in _FORMATS else f"{units.exact(value)} {column.unit}"


def pair(column: Column, before: int | None, after: int | None) -> tuple[str, str]:
    """Format two values of a metric, with every digit if rounding hides their difference."""
    texts = rounded(column, before), rounded(column, after)
    if texts[0] == texts[1] and before is not None and after is not None and before != after:
        return units.exact(before), units.exact(after)
    return texts


def difference(column: Column, by: int) -> str:
    """Format a difference with its sign, in a unit that shows it: ``+43.12 GiB``, ``−1 B``."""
    return f"{'−' if by < 0 else '+'}{rounded(column, abs(by))}"


def change(column: Column, before: int | None, after: int | None) -> str:
    """Format a change, absolute and in percent: ``+43.12 GiB, +100.0 %``."""
    if before is None or after is None:
        return "now known" if before is None else "no longer known"
    percent = units.relative(before, after)
    return difference(column, after - before) + (f", {percent}" if percent else "")
