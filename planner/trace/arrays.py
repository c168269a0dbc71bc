"""Exact evaluation of an expression at many points at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.trace.dominance import undominated
from planner.trace.sizes import HELPERS, Expression, Factor, Monomial, Size, common_part, next_power_of_two, product, terms_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

INT64_MAX = 2**63 - 1
ON_ARRAYS: dict[str, Callable[..., Any]] = {
    **HELPERS,
    "minimum": np.minimum,
    "common_multiple": np.lcm,
    "power_of_two": np.vectorize(next_power_of_two, otypes=[object]),
}


class Points:
    """Values of the symbols at many points: int64 arrays of one shape, at least 1. Products that expressions share are computed once."""

    def __init__(self, values: Mapping[str, NDArray[np.int64]]) -> None:
        self.values = values
        self.shape = next(iter(values.values())).shape
        self.largest = {name: int(array.max(initial=0)) for name, array in values.items()}
        self.products: dict[Monomial, NDArray[Any]] = {}
        self.results: dict[Factor, NDArray[Any]] = {}  # of helpers
        self.bounds: dict[Factor, int] = {}

    def some(self, places: NDArray[np.int64]) -> Points:
        """Return some of the points."""
        return Points({name: array[places] for name, array in self.values.items()})

    def evaluate(self, size: Size | Expression) -> NDArray[Any]:
        """Return the size's exact values, never wrapped or rounded.

        The result is int64 if a bound shows that neither it nor any step can exceed 2⁶³ - 1, else an object array of Python integers.
        """
        fits = self.bound(size) <= INT64_MAX
        total = np.zeros(self.shape, dtype=np.int64 if fits else object)
        for monomial, multiple in terms_of(size).items():
            if monomial:
                factors = self.product(monomial)
                total += (factors if fits else factors.astype(object)) * multiple
            else:
                total += multiple
        return total

    def product(self, monomial: Monomial) -> NDArray[Any]:
        """Return the product of a term's factors."""
        if monomial not in self.products:
            made: NDArray[Any] | None = None
            bound = 1
            for factor, power in monomial:
                array = self.factor(factor)
                for _ in range(power):
                    bound *= self.bound_of(factor)
                    made = array if made is None else (made if bound <= INT64_MAX else made.astype(object)) * array
            assert made is not None, "the caller handles the empty product"  # noqa: S101 - for the type checker
            self.products[monomial] = made
        return self.products[monomial]

    def factor(self, factor: Factor) -> NDArray[Any]:
        """Return the values of a symbol, or of a helper's result."""
        if isinstance(factor, str):
            return self.values[factor]
        if factor not in self.results:
            helper, arguments = factor
            made = self.maximum(arguments) if helper == "maximum" else ON_ARRAYS[helper](*map(self.evaluate, arguments))
            fits = helper == "power_of_two" and self.bound_of(factor) <= INT64_MAX
            self.results[factor] = made.astype(np.int64) if fits else made
        return self.results[factor]

    def maximum(self, sizes: Sequence[Size]) -> NDArray[Any]:
        """Return the largest of the sizes at each point; their common terms are evaluated once."""
        candidates = undominated(sizes)
        common = common_part(candidates)
        fits = max(map(self.bound, candidates)) <= INT64_MAX
        shared = self.evaluate(common)
        largest: NDArray[Any] = reduce(np.maximum, [self.evaluate(size - common) for size in candidates])
        total: NDArray[Any] = (shared if fits else shared.astype(object)) + largest
        return total.astype(np.int64 if fits else object)

    def bound(self, size: Size | Expression) -> int:
        """Return a bound on the absolute value of the size and of each of its partial sums."""
        return sum(
            abs(multiple) * product(self.bound_of(factor) ** power for factor, power in monomial)
            for monomial, multiple in terms_of(size).items()
        )

    def bound_of(self, factor: Factor) -> int:
        """Return a bound on the absolute value of a factor."""
        if isinstance(factor, str):
            return self.largest[factor]
        if factor not in self.bounds:
            helper, arguments = factor
            bounds = [self.bound(argument) for argument in arguments]
            self.bounds[factor] = (
                prod(bounds) if helper == "common_multiple" else (max(bounds) + 1) * (2 if helper == "power_of_two" else 1)
            )
        return self.bounds[factor]
