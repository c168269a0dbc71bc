"""Sizes that add, multiply and floor-divide: Python integers for values, expressions for formulas and sweeps.

The trace never asks what a size is worth. Fed integers it counts; fed ``symbol("B")`` and its like it writes the formula of the same count,
as a polynomial with integer coefficients over symbols and the few helpers below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, overload

Size: TypeAlias = "int | Expression"
"""An integer, or an expression that stands for one: both add, multiply and floor-divide, and nothing else is asked of a size."""


class Expression:
    """A polynomial: a sum of integer multiples of products of factors. Immutable."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {monomial: factor for monomial, factor in terms.items() if factor}
        self._hash: int | None = None

    def __add__(self, other: Expression | int) -> Expression:
        terms = dict(self.terms)
        for monomial, factor in terms_of(other).items():
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
        quotient = _divide_exactly(self, other)
        return _call("floor_divide", self, other) if quotient is None else quotient

    def __rfloordiv__(self, other: int) -> Expression:
        return _call("floor_divide", other, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression | int) and self.terms == terms_of(other)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError(f"an operator asked whether a size holds: {self}")

    def __repr__(self) -> str:
        return text(self)


Factor: TypeAlias = "str | tuple[str, tuple[Expression | int, ...]]"
"""A symbol's name, or a helper's name with its arguments."""
Monomial: TypeAlias = "tuple[tuple[Factor, int], ...]"
"""Factors with their powers, in a fixed order."""


class Symbol(str):
    """A symbol's name, and the size that it stands for where structure hangs on it."""

    __slots__ = ("worth",)
    worth: int | None


def symbol(name: str, worth: int | None = None) -> Size:
    """Return an unknown size called ``name``. ``worth`` answers questions of structure, and nothing else."""
    named = Symbol(name)
    named.worth = worth
    return Expression({((named, 1),): 1})


def structure(size: Size) -> int:
    """Return what the size is worth, for a choice of structure that hangs on it, as a kernel's on the width of heads.

    Raises TypeError for a symbol that stands for any size.
    """
    values: dict[str, int] = {}
    for name in symbols(size):
        if not isinstance(name, Symbol) or name.worth is None:
            raise TypeError(f"structure hangs on {name}, which may be any size")
        values[name] = name.worth
    return evaluate(size, values)


def divide_up(a: Size, b: Size) -> Size:
    """Return a / b rounded up."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return _call("divide_up", a, b)


def minimum(a: Size, b: Size) -> Size:
    """Return the smaller size."""
    return _extreme("minimum", min, [a, b])


def maximum(*sizes: Size) -> Size:
    """Return the largest size."""
    return _extreme("maximum", max, sizes)


def exceeds_one(size: Size) -> Size:
    """Return 1 for a size of two or more and 0 for a size of one: whether a dimension can stop two others from being merged."""
    return minimum(size - 1, 1)


@overload
def product(sizes: Iterable[int]) -> int: ...
@overload
def product(sizes: Iterable[Size]) -> Size: ...
def product(sizes: Iterable[Size]) -> Size:
    """Return the product of the sizes; 1 for none."""
    made: Size = 1
    for size in sizes:
        made = made * size
    return made


def never_exceeds(a: Size, b: Size) -> bool:
    """Return whether a <= b whatever the symbols are worth, as far as comparing the terms one by one can tell."""
    left, right = terms_of(a), terms_of(b)
    return all(right.get(monomial, 0) >= left.get(monomial, 0) for monomial in {**left, **right})


def undominated(sizes: Iterable[Size]) -> list[Size]:
    """Return the sizes of which none is below another everywhere."""
    top: list[Size] = []
    for size in dict.fromkeys(sizes):
        if not any(never_exceeds(size, other) for other in top):
            top = [other for other in top if not never_exceeds(other, size)] + [size]
    return top


def common_part(sizes: Sequence[Size]) -> Size:
    """Return what all the sizes hold: of each product of factors the smallest multiple."""
    first, *others = [terms_of(size) for size in sizes]
    return Expression({m: min([factor, *(other.get(m, 0) for other in others)]) for m, factor in first.items()})


def text(size: Size, values: Mapping[str, int] | None = None) -> str:
    """Return the size as a formula: ``2·B·n·d_model² + 4``; with values, each symbol's value in its place: ``2·8·1024·768² + 4``."""
    return _polynomial(size, lambda factor, power: _factor_text(factor, power, values), "·")


def spreadsheet(size: Size, cells: Mapping[Factor | Expression | int, str]) -> str:
    """Return the size as a spreadsheet's formula: ``2*B5*C5*F5*F5 + 4``.

    ``cells`` names the cell of each symbol, and of such helpers and arguments of helpers as have one; all cells hold whole numbers.
    It is exact where no step of it passes 2⁵³: a power is a product, and a quotient that INT took for the next integer is mended.
    """
    return _polynomial(size, lambda factor, power: "*".join([_cell_text(factor, cells)] * power), "*")


def symbols(size: Size) -> tuple[str, ...]:
    """Return the names of the symbols in a size, sorted."""
    found: set[str] = set()
    _collect(size, found)
    return tuple(sorted(found))


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Return the size's exact value where each symbol has the given one."""
    if isinstance(size, int):
        return size
    return sum(
        factor * product(_factor_value(name, values) ** power for name, power in monomial) for monomial, factor in size.terms.items()
    )


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
HELPERS: dict[str, Callable[..., int]] = {
    "divide_up": lambda a, b: -(-a // b),
    "floor_divide": lambda a, b: a // b,
    "minimum": min,
    "maximum": max,
}
_FUNCTIONS = {
    "divide_up": "(INT({0}/{1})+1-GESTEP(INT({0}/{1})*{1},{0}))",
    "floor_divide": "(INT({0}/{1})-1+GESTEP({0},INT({0}/{1})*{1}))",
    "minimum": "MIN({all})",
    "maximum": "MAX({all})",
}
"""The helpers as spreadsheets have them.

LibreOffice's INT takes a quotient for whole that nearly is, and its < and - take numbers for equal that nearly are. GESTEP(a, b), 1 for
a >= b and 0 elsewhere, does not.
"""


def terms_of(value: Expression | int) -> Mapping[Monomial, int]:
    """Return the products of factors in a size, each with its multiple."""
    return value.terms if isinstance(value, Expression) else {(): value} if value else {}


def _call(helper: str, *arguments: Expression | int) -> Expression:
    return Expression({(((helper, arguments), 1),): 1})


def _extreme(helper: str, of_integers: Callable[[Iterable[int]], int], sizes: Iterable[Size]) -> Size:
    distinct = list(dict.fromkeys(sizes))
    integers = [size for size in distinct if isinstance(size, int)]
    expressions = [size for size in distinct if not isinstance(size, int)]
    arguments: list[Size] = [*expressions, *([of_integers(integers)] if integers else [])]
    return arguments[0] if len(arguments) == 1 else _call(helper, *arguments)


def _divide_exactly(dividend: Expression, divisor: Expression | int) -> Expression | None:
    """Return the quotient where the divisor is one product of factors that each term of the dividend holds, else None."""
    terms = terms_of(divisor)
    if len(terms) != 1:
        return None
    ((monomial, divided_by),) = terms.items()
    quotient: dict[Monomial, int] = {}
    for other, factor in dividend.terms.items():
        powers = dict(other)
        for name, power in monomial:
            powers[name] = powers.get(name, 0) - power
        if factor % divided_by or any(power < 0 for power in powers.values()):
            return None
        quotient[tuple((name, power) for name, power in powers.items() if power)] = factor // divided_by
    return Expression(quotient)


def _polynomial(size: Size, factor_text: Callable[[Factor, int], str], times: str) -> str:
    if isinstance(size, int):
        return str(size)
    parts: list[str] = []
    for monomial, multiple in sorted(size.terms.items(), key=lambda item: (-sum(power for _, power in item[0]), _order(item[0]))):
        factors = [factor_text(factor, power) for factor, power in monomial]
        if abs(multiple) != 1 or not factors:
            factors.insert(0, str(abs(multiple)))
        parts.append(("-" if multiple < 0 else "+") + " " + times.join(factors))
    return " ".join(parts).removeprefix("+ ") or "0"


@lru_cache(maxsize=65_536)  # the same products stand in many sums
def _order(monomial: Monomial) -> tuple[str, ...]:
    return tuple(_factor_text(name, power) for name, power in monomial)


def _multiply(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for factor, power in right:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: (isinstance(item[0], tuple), str(item[0]))))


def _factor_text(factor: Factor, power: int, values: Mapping[str, int] | None = None) -> str:
    if isinstance(factor, str):
        name = factor if values is None else str(values[factor])
    else:
        helper, arguments = factor
        inner = [text(argument, values) for argument in arguments]
        name = {"divide_up": "⌈{} / {}⌉", "floor_divide": "⌊{} / {}⌋"}.get(helper, "").format(*inner) or f"{helper}({', '.join(inner)})"
    return name if power == 1 else name + str(power).translate(_SUPERSCRIPTS)


def _cell_text(factor: Factor, cells: Mapping[Factor | Expression | int, str]) -> str:
    if factor in cells:
        return cells[factor]
    if isinstance(factor, str):
        raise KeyError(f"no cell holds {factor}")
    helper, arguments = factor
    inner = [cells.get(argument) or f"({spreadsheet(argument, cells)})" for argument in arguments]
    return _FUNCTIONS[helper].format(*inner, all=",".join(inner))


def _collect(size: Expression | int, found: set[str]) -> None:
    for monomial in terms_of(size):
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
    return HELPERS[helper](*(evaluate(argument, values) for argument in arguments))
