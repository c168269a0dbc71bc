"""Sizes that add, multiply and floor-divide: Python integers for values, expressions for formulas and sweeps.

The trace never asks what a size is worth. Fed integers it counts; fed ``symbol("B")`` and its like it writes the formula of the same count,
as a polynomial with integer coefficients over symbols and the few helpers below. An expression is evaluated with integers, or with NumPy
arrays, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from numpy.typing import NDArray

Size: TypeAlias = int
"""An integer, or an expression that stands for one: whatever adds, multiplies and floor-divides."""


class Expression:
    """A polynomial: a sum of integer multiples of products of factors. Immutable."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {monomial: factor for monomial, factor in terms.items() if factor}
        self._hash: int | None = None

    def __add__(self, other: Expression | int) -> Expression:
        terms = dict(self.terms)
        for monomial, factor in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return Expression(terms)

    __radd__ = __add__

    def __neg__(self) -> Expression:
        return self * -1

    def __sub__(self, other: Expression | int) -> Expression:
        return self + -other

    def __rsub__(self, other: int) -> Expression:
        return -self + other

    def __mul__(self, other: Expression | int) -> Expression:
        if isinstance(other, int):
            return Expression({monomial: factor * other for monomial, factor in self.terms.items()})
        terms: dict[Monomial, int] = {}
        for left, left_factor in self.terms.items():
            for right, right_factor in other.terms.items():
                monomial = _multiply(left, right)
                terms[monomial] = terms.get(monomial, 0) + left_factor * right_factor
        return Expression(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Expression | int) -> Expression:
        if isinstance(other, int) and all(factor % other == 0 for factor in self.terms.values()):
            return Expression({monomial: factor // other for monomial, factor in self.terms.items()})
        return _call("floor_divide", self, other)

    def __rfloordiv__(self, other: int) -> Expression:
        return _call("floor_divide", other, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression | int) and self.terms == _terms(other)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError(f"an operator asked whether a size holds: {self}")

    def __repr__(self) -> str:
        return text(cast("Size", self))


Factor: TypeAlias = "str | tuple[str, tuple[Expression | int, ...]]"
"""A symbol's name, or a helper's name with its arguments."""
Monomial: TypeAlias = "tuple[tuple[Factor, int], ...]"
"""Factors with their powers, in a fixed order."""


def symbol(name: str) -> Size:
    """Return an unknown size called ``name``."""
    return cast("Size", Expression({((name, 1),): 1}))


def is_integer(size: object) -> bool:
    """Return whether a size is a value, not an expression."""
    return isinstance(size, int)


def divide_up(a: Size, b: Size) -> Size:
    """Return a / b rounded up."""
    if is_integer(a) and is_integer(b):
        return -(-a // b)
    return cast("Size", _call("divide_up", a, b))


def minimum(a: Size, b: Size) -> Size:
    """Return the smaller size."""
    return _extreme("minimum", min, [a, b])


def maximum(*sizes: Size) -> Size:
    """Return the largest size."""
    return _extreme("maximum", max, sizes)


def exceeds_one(size: Size) -> Size:
    """Return 1 for a size of two or more and 0 for a size of one: whether a dimension can stop two others from being merged."""
    return minimum(size - 1, 1)


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of the sizes; 1 for none."""
    return reduce(lambda a, b: a * b, sizes, 1)


def text(size: Size) -> str:
    """Return the size as a formula: ``2·B·n·d_model² + 4``."""
    if is_integer(size):
        return str(size)
    terms: dict[Monomial, int] = cast("Any", size).terms
    parts: list[str] = []
    for monomial, factor in sorted(terms.items(), key=lambda item: (-sum(power for _, power in item[0]), _order(item[0]))):
        factors = [_factor_text(name, power) for name, power in monomial]
        if abs(factor) != 1 or not factors:
            factors.insert(0, str(abs(factor)))
        parts.append(("-" if factor < 0 else "+") + " " + "·".join(factors))
    return " ".join(parts).removeprefix("+ ") or "0"


def symbols(size: Size) -> tuple[str, ...]:
    """Return the names of the symbols in a size, sorted."""
    found: set[str] = set()
    _collect(size, found)
    return tuple(sorted(found))


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Return the size's exact value where each symbol has the given one."""
    if is_integer(size):
        return size
    terms: dict[Monomial, int] = cast("Any", size).terms
    return sum(factor * product(_factor_value(name, values) ** power for name, power in monomial) for monomial, factor in terms.items())


def evaluate_on_arrays(size: Size, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the size's exact values over arrays of int64 symbols, all of one shape and none negative.

    The result is int64 where a bound shows that neither it nor any step to it can pass 2⁶³ - 1, and an object array of Python integers
    elsewhere: never a wrapped integer, never a rounded one.
    """
    import numpy as np

    shape = next(iter(values.values())).shape
    if is_integer(size):
        return np.full(shape, size, dtype=np.int64 if -_INT64_MAX <= size <= _INT64_MAX else object)
    terms: dict[Monomial, int] = cast("Any", size).terms
    largest = {name: int(array.max(initial=0)) for name, array in values.items()}
    fits = _bound(size, largest) <= _INT64_MAX
    dtype = np.dtype(np.int64 if fits else object)
    total = np.zeros(shape, dtype=dtype)
    for monomial, factor in terms.items():
        bound, value = 1, None
        for name, power in monomial:
            array = _factor_array(name, values)
            for _ in range(power):
                bound *= _factor_bound(name, largest)
                value = array if value is None else (value if bound <= _INT64_MAX else value.astype(object)) * array
        total += factor if value is None else (value if fits else value.astype(object)) * factor
    return total


_INT64_MAX = 2**63 - 1
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_HELPERS: dict[str, Callable[..., int]] = {
    "divide_up": lambda a, b: -(-a // b),
    "floor_divide": lambda a, b: a // b,
    "minimum": min,
    "maximum": max,
}


def _terms(value: Expression | int) -> Mapping[Monomial, int]:
    return value.terms if isinstance(value, Expression) else {(): value} if value else {}


def _call(helper: str, *arguments: Expression | int) -> Expression:
    return Expression({(((helper, arguments), 1),): 1})


def _extreme(helper: str, of_integers: Callable[[Iterable[int]], int], sizes: Iterable[Size]) -> Size:
    distinct = list(dict.fromkeys(sizes))
    integers = [size for size in distinct if is_integer(size)]
    expressions = [size for size in distinct if not is_integer(size)]
    arguments = [*expressions, *([of_integers(integers)] if integers else [])]
    return arguments[0] if len(arguments) == 1 else cast("Size", _call(helper, *arguments))


def _order(monomial: Monomial) -> tuple[str, ...]:
    return tuple(_factor_text(name, power) for name, power in monomial)


def _multiply(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for factor, power in right:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: (isinstance(item[0], tuple), str(item[0]))))


def _factor_text(factor: Factor, power: int) -> str:
    if isinstance(factor, str):
        name = factor
    else:
        helper, arguments = factor
        inner = [text(cast("Size", argument)) for argument in arguments]
        name = {"divide_up": "⌈{} / {}⌉", "floor_divide": "⌊{} / {}⌋"}.get(helper, "").format(*inner) or f"{helper}({', '.join(inner)})"
    return name if power == 1 else name + str(power).translate(_SUPERSCRIPTS)


def _collect(size: Expression | int, found: set[str]) -> None:
    for monomial in _terms(size):
        for factor, _ in monomial:
            if isinstance(factor, str):
                found.add(factor)
            else:
                for argument in factor[1]:
                    _collect(argument, found)


def _factor_value(factor: Factor, values: Mapping[str, int]) -> int:
    if isinstance(factor, str):
        return values[factor]
    helper, arguments = factor
    return _HELPERS[helper](*(evaluate(cast("Size", argument), values) for argument in arguments))


def _factor_bound(factor: Factor, largest: Mapping[str, int]) -> int:
    """Return a bound on the factor's absolute value, every symbol lying between 0 and its largest value."""
    if isinstance(factor, str):
        return largest[factor]
    return max(_bound(argument, largest) for argument in factor[1]) + 1


def _bound(size: Expression | int, largest: Mapping[str, int]) -> int:
    return sum(
        abs(factor) * product(_factor_bound(name, largest) ** power for name, power in monomial)
        for monomial, factor in _terms(size).items()
    )


def _factor_array(factor: Factor, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    import numpy as np

    if isinstance(factor, str):
        return values[factor]
    helper, arguments = factor
    arrays = [evaluate_on_arrays(cast("Size", argument), values) for argument in arguments]
    if helper == "divide_up":
        return cast("NDArray[Any]", -(-arrays[0] // arrays[1]))
    if helper == "floor_divide":
        return cast("NDArray[Any]", arrays[0] // arrays[1])
    return reduce(np.minimum if helper == "minimum" else np.maximum, arrays)
