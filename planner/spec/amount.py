"""Amounts of memory and bandwidth with their units, as text: ``80GiB``, ``400Gb/s``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

SI = ("k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")
BYTES: Mapping[str, int] = {
    **{f"{letter}B": 1000**power for power, letter in enumerate(SI, 1)},
    "KB": 1000,
    **{f"{letter}iB": 1024**power for power, letter in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
    "bytes": 1,
}
BITS_PER_SECOND: Mapping[str, int] = {
    **{f"{letter}b/s": 1000**power for power, letter in enumerate(SI[:5], 1)},
    **{f"{letter}B/s": 8 * 1000**power for power, letter in enumerate(SI[:5], 1)},
}
_AMOUNT = re.compile(r"(\d{1,20}(?:\.\d{1,20})?) ?([A-Za-z/]+)")


def amount(text: str, units: Mapping[str, int]) -> int | None:
    """Return an amount in the smallest of the units; None if the text is not a number and one of them, or not a whole amount."""
    value = fraction(text, units)
    return None if value is None or value.denominator != 1 else int(value)


def fraction(text: str, units: Mapping[str, int]) -> Fraction | None:
    """Return an amount as ``amount`` does, but whole or not."""
    found = _AMOUNT.fullmatch(text)
    return Fraction(found[1]) * units[found[2]] if found and found[2] in units else None
