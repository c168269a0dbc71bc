"""Which sizes can be the largest of several, for some values of their symbols.

Each symbol is at least 1, and each helper at least 0. So a size is never below another one if their difference, as a polynomial in B - 1,
n - 1, …, has no negative multiple: B·n - n is (B - 1)·(n - 1) + (B - 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import comb

from planner.trace.sizes import Monomial, Size, common_part, maximum, terms_of


class Comparison:
    """Compares sizes of at most a weight.

    A size is one integer, in which each multiple of its polynomial has its own field of bits. So sizes add and compare as integers.
    """

    def __init__(self, weight: int) -> None:
        self._width = weight.bit_length() + 2  # two multiples differ by at most twice the weight, and one bit is for the sign
        self._places: dict[Monomial, int] = {}
        self._packed: dict[Monomial, int] = {}

    def packed(self, size: Size) -> int:
        """Return the size as an integer."""
        return sum([multiple * self._product(monomial) for monomial, multiple in terms_of(size).items()])

    def _product(self, monomial: Monomial) -> int:
        if monomial not in self._packed:
            fields = _in_excess_of_one(monomial).items()
            places = self._places
            self._packed[monomial] = sum(
                [multiple << self._width * places.setdefault(product, len(places)) for product, multiple in fields]
            )
        return self._packed[monomial]

    def undominated(self, packed: Sequence[int]) -> list[int]:
        """Return the indices of the sizes that no other one is shown to reach for all values of the symbols; the first of equal ones."""
        signs = sum([1 << self._width * (place + 1) - 1 for place in range(len(self._places))])
        first = {one: number for number, one in reversed(list(enumerate(packed)))}
        top: list[int] = []
        for one in sorted(first, reverse=True):  # a size that reaches another one is the larger integer
            if not any((other - one + signs) & signs == signs for other in top):
                top.append(one)
        return sorted(first[one] for one in top)


def weight(size: Size) -> int:
    """Return a bound on the multiples of a size in excess of one; the weight of a sum is at most the sum of the weights."""
    return sum([abs(multiple) << _degree(monomial) for monomial, multiple in terms_of(size).items()])


def undominated(sizes: Iterable[Size]) -> list[Size]:
    """Return the sizes that no other one is shown to reach for all values of the symbols; each once."""
    given = list(sizes)
    comparison = Comparison(max(map(weight, given)))
    return [given[number] for number in comparison.undominated([comparison.packed(size) for size in given])]


def largest(candidates: Sequence[Size]) -> Size:
    """Return the largest size as a short formula: the terms that all candidates have, and the maximum of the rests."""
    common = common_part(candidates)
    return common + maximum(*(size - common for size in candidates))


def highest(sizes: Sequence[Size]) -> Size:
    """Return the largest size."""
    return maximum(*sizes) if all(isinstance(size, int) for size in sizes) else largest(undominated(sizes))


def _degree(monomial: Monomial) -> int:
    return sum(power for factor, power in monomial if isinstance(factor, str))


@lru_cache(maxsize=65_536)  # many sizes have the same products
def _in_excess_of_one(monomial: Monomial) -> Mapping[Monomial, int]:
    """Return a product as a polynomial in x - 1 for each symbol x: the multiples of products of these."""
    made: dict[Monomial, int] = {(): 1}
    for factor, power in monomial:
        powers = {lower: comb(power, lower) for lower in range(power + 1)} if isinstance(factor, str) else {power: 1}
        made = {
            (*product, (factor, lower)) if lower else product: multiple * times
            for product, multiple in made.items()
            for lower, times in powers.items()
        }
    return made
