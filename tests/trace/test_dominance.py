"""Sizes that can be the largest for some values of their symbols, each at least 1."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.trace.dominance import largest, undominated
from planner.trace.sizes import Size, ceil_div, evaluate, minimum, symbol, text, total

B, n, d = symbol("B"), symbol("n"), symbol("d_model")


def test_a_size_with_larger_multiples_dominates() -> None:
    assert undominated([2 * B * n, 3 * B * n + d]) == [3 * B * n + d]
    assert undominated([3 * B * n, 2 * B * n + d]) == [3 * B * n, 2 * B * n + d]  # at B = n = 1 and d_model = 2, the second


def test_a_product_is_at_least_each_of_its_factors_since_all_are_at_least_one() -> None:
    assert undominated([n, B * n]) == [B * n]
    assert undominated([B * n * d, B * n + d, n * n]) == [B * n * d, B * n + d, n * n]  # at 1, 1, 1 the second; at n > d_model the third
    assert undominated([2 * B * n * d, B * n + d, 7 * n - 6]) == [2 * B * n * d, 7 * n - 6]  # at 1, 5, 1: 10 and 29


def test_a_helper_can_be_zero() -> None:
    some = minimum(n - 1, 1)
    assert undominated([B, B * some, B + B * some]) == [B + B * some]
    assert undominated([B * some, n]) == [B * some, n]
    assert undominated([1, ceil_div(B, n)]) == [1, ceil_div(B, n)]


def test_only_the_first_of_equal_sizes_remains() -> None:
    assert undominated([B * n, 4, n * B]) == [B * n, 4]


def test_the_largest_size_is_the_common_terms_and_the_maximum_of_the_rests() -> None:
    assert text(largest([3 * B * n + d, 2 * B * n + 4 * d])) == "2·B·n + d_model + maximum(B·n, 3·d_model)"
    assert largest([B * n]) == B * n
    assert largest([4, 4]) == 4


SIZES = st.lists(st.tuples(*[st.integers(-3, 3)] * 6), min_size=1, max_size=8)
VALUES = st.integers(min_value=1, max_value=5)


@given(multiples=SIZES, b=VALUES, length=VALUES, width=VALUES)
def test_the_undominated_sizes_have_the_largest_value_of_all(multiples: list[tuple[int, ...]], b: int, length: int, width: int) -> None:
    products: list[Size] = [B * n * d, B * n, n * d, B, d * d, 1]
    sizes: list[Size] = [total(multiple * product for multiple, product in zip(row, products, strict=True)) for row in multiples]
    values = {"B": b, "n": length, "d_model": width}
    expected = max(evaluate(size, values) for size in sizes)
    remaining = undominated(sizes)
    assert max(evaluate(size, values) for size in remaining) == expected
    assert evaluate(largest(remaining), values) == expected
