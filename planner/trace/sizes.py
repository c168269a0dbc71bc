"""Sizes that add, multiply and floor-divide: Python integers for values, expressions for formulas and sweeps.

The trace never branches on the value of a size, except for choices of structure, which are noted: comparisons are such choices. From
integers it computes a count; from symbols such as ``symbol("B")``, the formula of the same count: a polynomial with integer coefficients
over symbols and the helpers below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import lcm, prod
from operator import lt
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

Made = TypeVar("Made")
Size: TypeAlias = "int | Expression"
"""An integer, or an expression in place of one. Sizes only add, multiply and floor-divide."""


class Expression:
    """A polynomial: a sum of integer multiples of products of factors. Immutable."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[Monomial, int]) -> None:
        """Take the terms, none of them zero."""
        self.terms = terms
        self._hash: int | None = None

    def __add__(self, other: Expression | int) -> Expression:
        added = terms_of(other)
        return Expression(_add(self.terms.copy(), added)) if added else self

    __radd__ = __add__

    def __neg__(self) -> Expression:
        return self * -1

    def __sub__(self, other: Expression | int) -> Expression:
        return Expression(_add(self.terms.copy(), terms_of(other), -1))

    def __rsub__(self, other: int) -> Expression:
        return -self + other

    def __mul__(self, other: Expression | int) -> Expression:
        if isinstance(other, int):
            if other == 1:
                return self
            return Expression({monomial: factor * other for monomial, factor in self.terms.items()} if other else {})
        terms: dict[Monomial, int] = {}
        for left, left_factor in self.terms.items():
            products = {_multiply(left, right): left_factor * right_factor for right, right_factor in other.terms.items()}
            terms = _add(terms, products) if terms else products
        return Expression(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Expression | int) -> Expression | int:
        quotient = _divide_exactly(self, other)
        return _call("floor_divide", self, other) if quotient is None else _whole(quotient)

    def __rfloordiv__(self, other: int) -> Expression:
        return _call("floor_divide", other, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression | int) and self.terms == terms_of(other)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError(f"an operator must not branch on a size: {self}")

    def __lt__(self, other: Expression | int) -> bool:
        difference = _whole(self - other)
        return difference < 0 if isinstance(difference, int) else choose(lt, self, other)

    def __gt__(self, other: Expression | int) -> bool:
        return (-self) < -other

    def __ge__(self, other: Expression | int) -> bool:
        return not self < other

    def __le__(self, other: Expression | int) -> bool:
        return not self > other

    def __repr__(self) -> str:
        return text(self)


Factor: TypeAlias = "str | tuple[str, tuple[Expression | int, ...]]"
"""A symbol's name, or a helper's name with its arguments."""
Monomial: TypeAlias = "tuple[tuple[Factor, int], ...]"
"""Factors with their powers, in a fixed order."""


class Symbol(str):
    """A symbol's name, its value as a hint for choices of structure, and where such choices are noted."""

    __slots__ = ("choices", "hint")
    hint: int | None
    choices: list[Choice]


def symbol(name: str, hint: int | None = None, choices: list[Choice] | None = None) -> Size:
    """Return an unknown size called ``name``. ``choose`` adds to ``choices`` those that depend on it."""
    named = Symbol(name)
    named.hint, named.choices = hint, [] if choices is None else choices
    return Expression({((named, 1),): 1})


class Choice(NamedTuple):
    """A choice of the structure of a trace: a function of sizes, and what it returned."""

    function: Callable[..., object]
    sizes: tuple[Size, ...]
    made: object

    def same_for(self, values: Mapping[str, int]) -> bool:
        """Return whether other values of the symbols lead to the same choice."""
        return self.function(*(evaluate(size, values) for size in self.sizes)) == self.made


def choose(function: Callable[..., Made], *sizes: Size) -> Made:
    """Return a function of the values of sizes on which the structure of the trace depends, e.g. of head_dim, the attention kernel.

    Raises TypeError for a symbol without a hint.
    """
    made = function(*map(hinted, sizes))
    noted: list[list[Choice]] = []
    for name in {name for size in sizes for name in symbols(size)}:
        if isinstance(name, Symbol) and all(name.choices is not known for known in noted):
            noted.append(name.choices)
            name.choices.append(Choice(function, sizes, made))
    return made


def structure(size: Size) -> int:
    """Return the value of a size on which the structure of the trace depends. Raises TypeError for a symbol without a hint."""
    return choose(itself, size)


def itself(value: int) -> int:
    """Return the value: the choice of a structure for each one."""
    return value


def hinted(size: Size) -> int:
    """Return the value of a size by its hints. Raises TypeError for a symbol without a hint."""
    values: dict[str, int] = {}
    for name in symbols(size):
        if not isinstance(name, Symbol) or name.hint is None:
            raise TypeError(f"structure must not depend on {name}, which may be any size")
        values[name] = name.hint
    return evaluate(size, values)


def ceil_div(a: Size, b: Size) -> Size:
    """Return a / b rounded up."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return _call("ceil_div", a, b)


def minimum(a: Size, b: Size) -> Size:
    """Return the smaller size."""
    return _extreme("minimum", min, [a, b])


def maximum(*sizes: Size) -> Size:
    """Return the largest size."""
    return _extreme("maximum", max, sizes)


def power_of_two(size: Size) -> Size:
    """Return the smallest power of two that is not less than the size."""
    return next_power_of_two(size) if isinstance(size, int) else _call("power_of_two", size)


def common_multiple(a: Size, b: Size) -> Size:
    """Return the least common multiple."""
    return lcm(a, b) if isinstance(a, int) and isinstance(b, int) else _call("common_multiple", a, b)


def next_power_of_two(size: int) -> int:
    """Return the same for an integer."""
    return 1 << (int(size) - 1).bit_length()


def exceeds_one(size: Size) -> Size:
    """Return 1 for a size of two or more and 0 for one: whether a dimension can prevent merging two others."""
    return minimum(size - 1, 1)


@overload
def product(sizes: Iterable[int]) -> int: ...
@overload
def product(sizes: Iterable[Size]) -> Size: ...
def product(sizes: Iterable[Size]) -> Size:
    """Return the product of the sizes; 1 for none."""
    factors = list(sizes)
    whole, powers, helpers = 1, dict[Factor, int](), False
    for size in factors:  # products of products without those between
        if isinstance(size, int):
            whole *= size
        elif len(size.terms) != 1:
            return prod(factors)
        else:
            ((monomial, multiple),) = size.terms.items()
            whole *= multiple
            for factor, power in monomial:
                powers[factor] = powers.get(factor, 0) + power
                helpers = helpers or not isinstance(factor, str)
    return Expression({_in_order(powers, helpers=helpers): whole} if whole else {}) if powers else whole


def total(sizes: Iterable[Size]) -> Size:
    """Return the sum of the sizes; unlike ``sum``, it does not copy the terms at each step."""
    whole, terms = 0, None
    for size in sizes:
        if terms is not None:
            _add(terms, terms_of(size))
        elif isinstance(size, int):
            whole += size
        else:
            terms = _add(size.terms.copy(), terms_of(whole))
    return whole if terms is None else Expression(terms)


def common_part(sizes: Sequence[Size]) -> Size:
    """Return the terms common to all sizes, each with its smallest multiple."""
    first, *others = [terms_of(size) for size in sizes]
    smallest = {monomial: min([factor, *(other.get(monomial, 0) for other in others)]) for monomial, factor in first.items()}
    return Expression({monomial: factor for monomial, factor in smallest.items() if factor})


def text(size: Size, values: Mapping[str, int] | None = None) -> str:
    """Return the size as a formula: ``2·B·n·d_model² + 4``; with values, each symbol's value in its place: ``2·8·1024·768² + 4``."""
    if values is None:
        return polynomial_text(size, lambda product: "·".join(_order(product)), "·")
    return polynomial_text(size, lambda product: "·".join(_factor_text(factor, power, values) for factor, power in product), "·")


def symbols(size: Size) -> tuple[str, ...]:
    """Return the names of the symbols in a size, sorted."""
    return tuple(sorted({name for monomial in terms_of(size) for factor, _ in monomial for name in _symbols_of(factor)}))


def evaluate(size: Size, values: Mapping[str, int] | Mapping[Factor, int]) -> int:
    """Return the size's exact value for the given values of its symbols, and of helpers whose value is known."""
    return sum(multiple * product(_factor_value(factor, values) ** power for factor, power in m) for m, multiple in terms_of(size).items())


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
HELPERS: dict[str, Callable[..., int]] = {
    "ceil_div": lambda a, b: -(-a // b),
    "floor_divide": lambda a, b: a // b,
    "minimum": min,
    "maximum": max,
    "power_of_two": next_power_of_two,
    "common_multiple": lcm,
}


def _whole(size: Expression) -> Expression | int:
    """Return a size without symbols as an integer."""
    return size.terms.get((), 0) if not size.terms.keys() - {()} else size


def terms_of(value: Expression | int) -> Mapping[Monomial, int]:
    """Return the products of factors in a size, each with its multiple."""
    return value.terms if isinstance(value, Expression) else {(): value} if value else {}


def _add(terms: dict[Monomial, int], added: Mapping[Monomial, int], times: int = 1) -> dict[Monomial, int]:
    """Add terms to others, in place; none of them is zero."""
    for monomial, factor in added.items():
        if together := terms.get(monomial, 0) + times * factor:
            terms[monomial] = together
        else:
            del terms[monomial]
    return terms


def _call(helper: str, *arguments: Expression | int) -> Expression:
    return Expression({(((helper, arguments), 1),): 1})


def _extreme(helper: str, of_integers: Callable[[Iterable[int]], int], sizes: Iterable[Size]) -> Size:
    distinct = list(dict.fromkeys(sizes))
    integers = [size for size in distinct if isinstance(size, int)]
    expressions = [size for size in distinct if not isinstance(size, int)]
    arguments: list[Size] = [*expressions, *([of_integers(integers)] if integers else [])]
    return arguments[0] if len(arguments) == 1 else _call(helper, *arguments)


def _divide_exactly(dividend: Expression, divisor: Expression | int) -> Expression | None:
    """Return the quotient if the divisor is one product of factors that divides each term of the dividend, else None."""
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


def polynomial_text(size: Size, product_text: Callable[[Monomial], str], times: str) -> str:
    """Return the size as a sum of products, each as a text, whose factors ``times`` separates."""
    if isinstance(size, int):
        return str(size)
    parts: list[str] = []
    for monomial, multiple in _terms_in_order(size):
        product, factor = product_text(monomial), abs(multiple)
        term = product if factor == 1 and product else f"{factor}{times}{product}" if product else str(factor)
        parts.append(f"{'-' if multiple < 0 else '+'} {term}")
    return " ".join(parts).removeprefix("+ ") or "0"


@lru_cache(maxsize=4096)  # the same size is written for many models
def _terms_in_order(size: Expression) -> list[tuple[Monomial, int]]:
    """Return the terms of a size, those with most factors first."""
    return sorted(size.terms.items(), key=lambda item: (-sum(power for _, power in item[0]), _order(item[0])))


@lru_cache(maxsize=65_536)  # many sums have the same products
def _order(monomial: Monomial) -> tuple[str, ...]:
    return tuple(_factor_text(name, power) for name, power in monomial)


def _multiply(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for factor, power in right:
        powers[factor] = power + powers[factor] if factor in powers else power
    return _in_order(powers, helpers=not (isinstance(left[-1][0], str) and isinstance(right[-1][0], str)))


def _in_order(powers: dict[Factor, int], *, helpers: bool) -> Monomial:
    """Return factors with their powers, in order. ``helpers``: whether some are no symbols."""
    return tuple(sorted(powers.items(), key=(lambda item: _place(item[0])) if helpers else None))


@lru_cache(maxsize=65_536)
def _place(factor: Factor) -> tuple[bool, str]:
    """Return where a factor is in a product: symbols by name, then helpers."""
    return isinstance(factor, tuple), str(factor)


def _factor_text(factor: Factor, power: int, values: Mapping[str, int] | None = None) -> str:
    if isinstance(factor, str):
        name = factor if values is None else str(values[factor])
    else:
        name = _helper_formula(factor) if values is None else _helper_text(factor, values)
    return name if power == 1 else name + str(power).translate(_SUPERSCRIPTS)


@lru_cache(maxsize=4096)  # formulas contain each other
def _helper_formula(factor: tuple[str, tuple[Size, ...]]) -> str:
    return _helper_text(factor, None)


def _helper_text(factor: tuple[str, tuple[Size, ...]], values: Mapping[str, int] | None) -> str:
    helper, arguments = factor
    inner = [text(argument, values) for argument in arguments]
    return {"ceil_div": "⌈{} / {}⌉", "floor_divide": "⌊{} / {}⌋"}.get(helper, "").format(*inner) or f"{helper}({', '.join(inner)})"


def _symbols_of(factor: Factor) -> tuple[str, ...]:
    return (factor,) if isinstance(factor, str) else tuple(name for argument in factor[1] for name in symbols(argument))


def _factor_value(factor: Factor, values: Mapping[Any, int]) -> int:
    if isinstance(factor, str) or factor in values:
        return values[factor]
    helper, arguments = factor
    return HELPERS[helper](*(evaluate(argument, values) for argument in arguments))
