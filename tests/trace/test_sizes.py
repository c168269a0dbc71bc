"""Symbolic sizes: arithmetic, text and values agree with those of integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.trace.arrays import Points
from planner.trace.sizes import (
    Choice,
    Size,
    ceil_div,
    choose,
    common_part,
    evaluate,
    exceeds_one,
    maximum,
    minimum,
    power_of_two,
    symbol,
    symbols,
    text,
)

B, n, d = symbol("B"), symbol("n"), symbol("d_model")

# Each pairs a symbolic size with the same arithmetic on integers.
FORMULAS: list[Callable[[Size, Size, Size], Size]] = [
    lambda B, n, d: 2 * B * n * d * d + 4,
    lambda B, n, d: (B + n) * (d - 3) - n,
    lambda B, n, d: 3 - B * n - d,
    lambda B, n, d: 34 * n * B * d + 5 * 12 * n * n * B,
    lambda B, n, d: ceil_div(n, 32) * 32 * B * d,
    lambda B, n, d: (6 * B * n * d) // (2 * n) + (B * n) // d,
    lambda B, n, d: 7 // B + n * d,
    lambda B, n, d: minimum(n, 512) * maximum(B, d, 4) - minimum(n, n),
    lambda B, n, d: exceeds_one(B) * exceeds_one(n) * d + (1 - exceeds_one(B * n)),
    lambda B, n, d: ceil_div(B * n + 1, d) * (n // B),
    lambda B, n, d: power_of_two(ceil_div(B * n, d)) * d,
]
SIZES = st.integers(min_value=1, max_value=10**12)


@pytest.mark.parametrize("formula", FORMULAS)
@given(b=SIZES, length=SIZES, width=SIZES)
def test_a_formula_has_the_value_of_the_same_arithmetic_on_integers(formula: Callable[..., Size], b: int, length: int, width: int) -> None:
    assert evaluate(formula(B, n, d), {"B": b, "n": length, "d_model": width}) == formula(b, length, width)


@pytest.mark.parametrize("formula", FORMULAS)
@given(points=st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=4))
def test_arrays_are_exact_past_int64(formula: Callable[..., Size], points: list[tuple[int, int, int]]) -> None:
    columns: Mapping[str, list[int]] = dict(zip(("B", "n", "d_model"), map(list, zip(*points, strict=True)), strict=True))
    over = Points({name: np.array(column, dtype=np.int64) for name, column in columns.items()})
    assert [int(value) for value in over.evaluate(formula(B, n, d))] == [formula(*point) for point in points]


def test_arrays_stay_int64_if_nothing_can_exceed_it() -> None:
    over = Points({"B": np.array([1, 8]), "n": np.array([1024, 2**20])})
    assert over.evaluate(B * n * n).dtype == np.int64
    assert over.evaluate(B * n * n * n).dtype == object
    assert list(over.evaluate(B * n * n * n)) == [2**30, 2**63]


def test_equal_sizes_are_equal_in_any_order_of_construction() -> None:
    assert B * n + n * B == 2 * n * B
    assert (B + n) * (B - n) == B * B - n * n
    assert hash(B * n) == hash(n * B)
    assert n != B
    assert B - B == 0


def test_division_is_exact_if_every_term_contains_the_divisor() -> None:
    assert (6 * B * n * d + 4 * B) // (2 * B) == 3 * n * d + 2
    assert text((B * n) // d) == "⌊B·n / d_model⌋"


def test_the_text_of_a_size_is_a_formula() -> None:
    assert text(2 * B * n * d * d + 4) == "2·B·d_model²·n + 4"
    assert text(B - 3 * n) == "B - 3·n"
    assert text(ceil_div(n, 32) * 32) == "32·⌈n / 32⌉"
    assert text(n - n) == "0"
    assert text(12) == "12"
    assert text(2 * B * n, {"B": 8, "n": 1024}) == "2·8·1024"


def test_the_names_in_a_size_are_found_inside_helpers() -> None:
    assert symbols(ceil_div(n, 32) * minimum(B, d)) == ("B", "d_model", "n")
    assert symbols(5) == ()


def test_no_operator_can_branch_on_a_symbol() -> None:
    with pytest.raises(TypeError, match="an operator must not branch on a size: B - 1"):
        bool(B - 1)


def test_structure_depends_only_on_symbols_with_a_fixed_value() -> None:
    head_dim = symbol("head_dim", 20)
    assert choose(lambda size: size, 2 * head_dim + 1) == 41
    assert choose(max, 64, head_dim) == 64
    with pytest.raises(TypeError, match="structure must not depend on n, which may be any size"):
        choose(lambda size: size, head_dim * n)


def test_choices_are_noted_and_can_be_the_same_for_other_values() -> None:
    choices: list[Choice] = []
    head_dim, v_dim = symbol("head_dim", 64, choices), symbol("v_dim", 128, choices)
    assert choose(lambda width: width % 8 == 0, head_dim + v_dim)
    (choice,) = choices
    assert choice.same_for({"head_dim": 96, "v_dim": 96})
    assert not choice.same_for({"head_dim": 100, "v_dim": 96})


def test_the_common_part_has_the_smallest_multiple_of_each_term() -> None:
    assert common_part([3 * B * n + d, 2 * B * n + 4 * d]) == 2 * B * n + d


def test_a_power_of_two_is_not_less_than_the_size() -> None:
    assert [power_of_two(size) for size in (1, 2, 3, 4, 5, 2**31, 2**31 + 1)] == [1, 2, 4, 4, 8, 2**31, 2**32]
