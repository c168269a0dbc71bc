"""Expressions as text that the script of a page evaluates, each once."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from itertools import pairwise
from zlib import compress

from planner.capacity.choices import Guard
from planner.trace.dominance import undominated
from planner.trace.sizes import Factor, Monomial, Size, polynomial_text


@dataclass(slots=True)
class Expressions:
    """Expressions and the helpers in them, each once, as text that the page parses: ``4*B*n + 2*@7``, @7 being the helper at 7."""

    sizes: dict[str, int] = field(default_factory=dict)
    helpers: dict[Factor, int] = field(default_factory=dict)
    written: list[list[str | int]] = field(default_factory=list)  # of helpers: the name and the arguments
    texts: dict[Size, str] = field(default_factory=dict)

    def number(self, size: Size) -> int:
        """Return the number of an expression."""
        return self.sizes.setdefault(self.text(size), len(self.sizes))

    def text(self, size: Size) -> str:
        """Return an expression as text."""
        if size not in self.texts:
            self.texts[size] = polynomial_text(size, self._product, "*").replace(" ", "")
        return self.texts[size]

    def _product(self, product: Monomial) -> str:
        return "*".join(self._factor(factor) + (f"^{power}" if power > 1 else "") for factor, power in product)

    def _factor(self, factor: Factor) -> str:
        if isinstance(factor, str):
            return factor
        if factor not in self.helpers:
            helper, sizes = factor
            distinct = undominated(sizes) if helper == "maximum" else sizes
            arguments = [self._argument(*pair) for pair in pairwise((0, *distinct))]
            self.helpers[factor] = len(self.written)
            self.written.append([helper, *arguments])
        return f"@{self.helpers[factor]}"

    def _argument(self, before: Size, size: Size) -> str:
        """Return an argument, or what it adds to the one before if that is shorter: ``&8*B-4``, since the largest of many are alike."""
        whole, more = self.text(size), f"&{self.text(size - before)}" if before != 0 else ""
        return more if more and len(more) < len(whole) else whole


def condition(one: Guard, sizes: Expressions) -> list[str]:
    """Return a condition as the script reads it."""
    return [one.relation, sizes.text(one.left), one.right if isinstance(one.right, str) else sizes.text(one.right)]


def packed(data: object) -> str:
    """Return data as text of an attribute, compressed."""
    return b64encode(compress(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(), 9)).decode()
