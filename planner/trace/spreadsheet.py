"""Sizes as formulas of a spreadsheet, exact in its floating-point numbers."""

from __future__ import annotations

from collections.abc import Mapping

from planner.trace.sizes import Expression, Factor, Monomial, Size, polynomial_text

MOST_BITS = 32  # of a power of two in a spreadsheet
_FUNCTIONS = {
    "ceil_div": "(INT({0}/{1})+1-GESTEP(INT({0}/{1})*{1},{0}))",
    "floor_divide": "(INT({0}/{1})-1+GESTEP({0},INT({0}/{1})*{1}))",
    "minimum": "MIN({all})",
    "maximum": "MAX({all})",
    "power_of_two": f"(1{''.join(f'+{2**power}*GESTEP({{0}},{2**power + 1})' for power in range(MOST_BITS))})",
}
"""The helpers as spreadsheet functions.

LibreOffice's INT rounds almost whole quotients up, and its < and - treat almost equal numbers as equal. GESTEP(a, b), 1 for a >= b and 0
otherwise, does neither.
"""


def spreadsheet(size: Size, cells: Mapping[Factor | Expression | int, str], products: dict[Monomial, str] | None = None) -> str:
    """Return the size as a spreadsheet's formula: ``2*B5*C5*F5*F5 + 4``; ``products`` keeps the text of products for other sizes.

    ``cells`` gives the cell of each symbol, and of some helpers and their arguments; all cells hold whole numbers. The result is exact if
    no step exceeds 2⁵³: powers are products, and quotients that INT rounds up are corrected.
    """
    known: dict[Monomial, str] = {} if products is None else products

    def product_text(product: Monomial) -> str:
        if product not in known:
            known[product] = "*".join("*".join([_cell_text(factor, cells)] * power) for factor, power in product)
        return known[product]

    return polynomial_text(size, product_text, "*")


def _cell_text(factor: Factor, cells: Mapping[Factor | Expression | int, str]) -> str:
    if factor in cells:
        return cells[factor]
    if isinstance(factor, str):
        raise KeyError(f"no cell holds {factor}")
    helper, arguments = factor
    inner = [cells.get(argument) or f"({spreadsheet(argument, cells)})" for argument in arguments]
    return _FUNCTIONS[helper].format(*inner, all=",".join(inner))
