from __future__ import annotations

from fractions import Fraction

import pytest

from planner.report import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.000 k"),
        (114_944, "114.9 k"),
        (124_439_808, "124.4 M"),
        (999_949_999, "999.9 M"),  # just below half way to 1.000 B
        (999_950_000, "1.000 B"),
        (8_030_261_248, "8.030 B"),
        (405_853_388_800, "405.9 B"),
        (10**16, "10,000 T"),
    ],
)
def test_counts_have_four_digits_and_b_for_a_billion(value: int, text: str) -> None:
    assert units.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1023, "1,023 B"),
        (1024, "1.000 KiB"),
        (1_646_821_376, "1.534 GiB"),  # 411,705,344 · 4 / 2³⁰ = 1.53372
        (2**30 - 1, "1.000 GiB"),
        (10 * 2**30 - 1, "10.00 GiB"),  # 9.99999… needs a decimal less
        (6_493_654_220_800, "6,048 GiB"),  # 405,853,388,800 · 16 / 2³⁰ = 6047.7
        (2**80, "1,125,899,906,842,624 GiB"),  # 2⁵⁰, without floats
    ],
)
def test_memory_is_in_powers_of_1024_up_to_gib(value: int, text: str) -> None:
    assert units.memory(value) == text


@pytest.mark.parametrize(("value", "text"), [(291_648_307_200, "291.6 GFLOP"), (315 * 10**21, "315.0 ZFLOP"), (10**34, "10,000 QFLOP")])
def test_flops_have_si_prefixes(value: int, text: str) -> None:
    assert units.flops(value) == text


def test_giga_rounds_to_the_nearest_beyond_any_float() -> None:
    assert units.giga(499_999_999) == 0
    assert units.giga(500_000_000) == 1
    assert units.giga(10**30 + 499_999_999) == 10**21


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (38_597_376, 124_412_160, "31.0 %"),  # GPT-2 small's token embedding
        (38_400, 124_412_160, "0.03 %"),  # its norms
        (1, 1000, "0.1 %"),
        (1, 20_000, "0.01 %"),
        (1, 20_001, "< 0.01 %"),
        (0, 5, "0 %"),
        (5, 5, "100.0 %"),
        (0, 0, "0 %"),
    ],
)
def test_shares_of_small_parts_are_never_shown_as_zero(part: int, whole: int, text: str) -> None:
    assert units.share(part, whole) == text


def test_other_numbers() -> None:
    assert units.exact(10**20) == "100,000,000,000,000,000,000"
    assert units.ratio(20, 1) == "20.0"
    assert units.ratio(300 * 10**9, 124_439_808) == "2,411"  # 2410.80
    assert units.ratio(1, 3) == "0.3"
    assert units.loss(10.824905) == "10.825"
    assert units.number(0.1 + 0.2) == 0.3
    assert units.decimal(Fraction(1, 10)) == "0.1"
    assert units.decimal(Fraction(0)) == "0"
    assert units.decimal(Fraction(1, 3)) == "1/3"
