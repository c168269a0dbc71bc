"""Numbers as people read them: the only place that rounds. Integer arithmetic rounds any size to nearest.

Four significant digits: ``124.4 M``, ``1.535 GiB``, ``315.0 ZFLOP``. B is 10⁹ and GiB is 2³⁰; beyond the largest unit all digits appear.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import log

DIGITS = 4
_COUNT = ("", "k", "M", "B", "T")
_BYTES = ("B", "KiB", "MiB", "GiB")
_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP", "YFLOP", "RFLOP", "QFLOP")


def exact(value: int) -> str:
    """Every digit, in groups of three: ``124,439,808``."""
    return f"{value:,}"


def count(value: int) -> str:
    """Parameters or tokens: ``124.4 M``, ``8.030 B`` (10⁹)."""
    return _scaled(value, 1000, _COUNT)


def memory(value: int) -> str:
    """Bytes in powers of 1,024: ``474.6 MiB``, ``1.535 GiB``, ``6,049 GiB``, ``−2.000 GiB``."""
    return _scaled(value, 1024, _BYTES)


def power_of_two(value: int) -> str:
    """Bytes that are a power of two, as on a scale: ``16 GiB``."""
    power = min((value.bit_length() - 1) // 10, len(_BYTES) - 1)
    return f"{value >> (10 * power):,} {_BYTES[power]}"


def flops(value: int) -> str:
    """FLOPs with SI prefixes: ``291.6 GFLOP``."""
    return _scaled(value, 1000, _FLOPS)


def giga(value: int) -> int:
    """Whole 10⁹s, rounded to the nearest, halves up."""
    return _nearest(value, 10**9)


def seconds(value: float) -> str:
    """Format seconds with four digits, or whole ones if they have more."""
    return f"{value:.4g} s" if value < 9999.5 else f"{value:,.0f} s"  # noqa: PLR2004 - where four digits end


def share(part: int, whole: int) -> str:
    """``31.0 %``; two decimals below a tenth of a percent, and never ``0.00 %`` for a part that is not zero."""
    if part == 0 or whole == 0:
        return "0 %"
    if 1000 * part >= whole:
        return f"{_decimal(_nearest(1000 * part, whole), 1)} %"
    return f"{_decimal(_nearest(10_000 * part, whole), 2)} %" if 20_000 * part >= whole else "< 0.01 %"


def relative(before: int, after: int) -> str:
    """Format a change in percent of the value before: ``+13.3 %``, ``−0.04 %``; empty if that is not positive."""
    if before <= 0:
        return ""
    sign = "−" if after < before else "+"
    return f"{sign}{share(abs(after - before), before)}".replace("+< ", "< +").replace("−< ", "> −")


def ratio(numerator: int, denominator: int) -> str:
    """Divide, to one decimal: ``20.0``; from 1,000 on to an integer: ``2,411``."""
    if numerator >= 1000 * denominator:
        return exact(_nearest(numerator, denominator))
    return _decimal(_nearest(10 * numerator, denominator), 1)


def along(part: int, whole: int, length: int) -> int:
    """Scale a part of the whole to a line of the given length, rounded; 0 if the whole is 0."""
    return _nearest(part * length, whole) if whole else 0


def along_log(value: int, low: int, high: int, length: int) -> int:
    """Return the position of a value between two others on a line with a log scale; 0 if they are equal."""
    return round(length * log(Fraction(value, low)) / log(Fraction(high, low))) if high > low else 0


def loss(value: float) -> str:
    """Nats to three decimals: ``10.825``."""
    return f"{value:.3f}"


def number(value: float) -> float:
    """Round to six decimals, so that the number is the same on every machine."""
    return round(value, 6)


def decimal(value: Fraction) -> str:
    """Format the exact decimal, ``0.1``; if there is none, the quotient: ``1/3``."""
    text = format(Decimal(value.numerator) / Decimal(value.denominator), "f")
    return text if Fraction(text) == value else str(value)


def _scaled(value: int, base: int, units: tuple[str, ...]) -> str:
    if value < 0:
        return f"−{_scaled(-value, base, units)}"
    power = 0
    while power < len(units) - 1 and value >= base ** (power + 1):
        power += 1
    if power == 0:
        return f"{value:,} {units[0]}".rstrip()
    decimals = max(0, DIGITS - len(str(value // base**power)))
    digits = _nearest(value * 10**decimals, base**power)
    if decimals and digits >= 10**DIGITS:  # 99.996 rounds to 100.0, which needs a decimal less
        decimals -= 1
        digits = _nearest(value * 10**decimals, base**power)
    if not decimals and digits >= base and power < len(units) - 1:  # 999.96 M is 1.000 B
        return f"{_decimal(10 ** (DIGITS - 1), DIGITS - 1)} {units[power + 1]}"
    return f"{_decimal(digits, decimals)} {units[power]}"


def _decimal(digits: int, decimals: int) -> str:
    whole, rest = divmod(digits, 10**decimals)
    return f"{whole:,}.{rest:0{decimals}d}" if decimals else f"{whole:,}"


def _nearest(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
