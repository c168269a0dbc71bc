"""The conditions that layouts must meet, over symbols: ``planner.spec.possible``, run on sizes whose comparisons are recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from planner.spec.possible import conditions, of_kind
from planner.spec.records import Layout, Model, Training
from planner.trace.sizes import Size, maximum

if TYPE_CHECKING:
    from planner.spec.possible import Sizes

Test: TypeAlias = "bool | tuple[str, Size, Size] | tuple[str, Test, Test]"
"""A comparison of two sizes, e.g. ``("<", left, right)``, or ``("&", one, other)`` or ``("|", one, other)`` of two tests."""
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "==", "&": "|", "|": "&"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a comparison, which combines with others as arrays of truth values do."""

    test: Test

    def __and__(self, other: Outcome | bool) -> Outcome:
        return _combined("&", self.test, _test(other), neutral=True)

    def __or__(self, other: Outcome | bool) -> Outcome:
        return _combined("|", self.test, _test(other), neutral=False)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Outcome:
        return Outcome(opposite(self.test))


def _test(one: Outcome | bool) -> Test:
    return one.test if isinstance(one, Outcome) else bool(one)


def _combined(relation: str, one: Test, other: Test, *, neutral: bool) -> Outcome:
    """Combine two tests. ``neutral``: the truth value that leaves the other test; its opposite decides."""
    for known, rest in ((one, other), (other, one)):
        if isinstance(known, bool):
            return Outcome(rest if known is neutral else known)
    return Outcome((relation, one, other))


def opposite(test: Test) -> Test:
    """Return the test that holds where another one does not."""
    if isinstance(test, bool):
        return not test
    relation, one, other = test
    if relation in ("&", "|"):
        return _OPPOSITE[relation], opposite(cast("Test", one)), opposite(cast("Test", other))
    return cast("Test", (_OPPOSITE[relation], one, other))


def _compared(relation: str, of_integers: Callable[[int, int], bool]) -> Callable[[Recorded, object], Outcome]:
    def compared(self: Recorded, other: object) -> Outcome:
        left, right = self.size, _size(other)
        return Outcome(of_integers(left, right) if isinstance(left, int) and isinstance(right, int) else (relation, left, right))

    return compared


class Recorded:
    """A size whose comparisons are recorded. It stands in for an array of sizes."""

    __slots__ = ("size",)
    __hash__ = None  # type: ignore[assignment]  # its equality is recorded, too

    def __init__(self, size: Size) -> None:
        """Take the size."""
        self.size = size

    def __add__(self, other: object) -> Recorded:
        return Recorded(self.size + _size(other))

    def __sub__(self, other: object) -> Recorded:
        return Recorded(self.size - _size(other))

    def __mul__(self, other: object) -> Recorded:
        return Recorded(self.size * _size(other))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: object) -> Recorded:
        return Recorded(self.size // _size(other))

    def __rfloordiv__(self, other: object) -> Recorded:
        return Recorded(_size(other) // self.size)

    def __mod__(self, other: object) -> Recorded:
        divisor = _size(other)
        return Recorded(self.size - self.size // divisor * divisor)

    def __rmod__(self, other: object) -> Recorded:
        return Recorded(_size(other)) % self

    def clip(self, least: int) -> Recorded:
        """Return the size, at least ``least``."""
        return Recorded(maximum(self.size, least))

    __lt__ = _compared("<", lambda left, right: left < right)
    __le__ = _compared("<=", lambda left, right: left <= right)
    __gt__ = _compared(">", lambda left, right: left > right)
    __ge__ = _compared(">=", lambda left, right: left >= right)
    __eq__ = _compared("==", lambda left, right: left == right)  # type: ignore[assignment]  # recorded, like an array's
    __ne__ = _compared("!=", lambda left, right: left != right)  # type: ignore[assignment]


def _size(one: object) -> Size:
    return one.size if isinstance(one, Recorded) else cast("Size", one)


def required(
    model: Model, training: Training, layout: Layout, sizes: Mapping[str, Size], per_node: int, named: Collection[str]
) -> Iterator[tuple[Test, str]]:
    """Yield each condition on a layout of symbols, and the message if it is not met; sizes ``named`` are in braces in a message."""
    recorded = cast("Mapping[str, Sizes]", {name: Recorded(size) for name, size in sizes.items()})
    for one in (*conditions(model, training, recorded, per_node), *of_kind(model, training, layout, recorded)):
        fails = _test(cast("Outcome | bool", one.fails))
        if fails is not False:
            # A size of the model is a symbol, whose text is its name: "n_heads n_heads" becomes "n_heads {n_heads}".
            yield opposite(fails), re.sub(r"\b(\w+) (\w+)$", lambda two: f"{two[1]} {{{two[2]}}}" if two[2] in named else two[0], one.why)
