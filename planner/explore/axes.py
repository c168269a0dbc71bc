"""The axes of a sweep: ``training.batch_size=1..64``, ``model.n_layers=12,24..48..12``, ``training.precision=bf16,fp32``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 10**7  # values of an axis, and points of a sweep
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})(?:\.\.(\d{1,18}))?")


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting by its dotted key, and its values: integers, or text as in YAML."""

    key: str
    values: tuple[int | str, ...]

    @property
    def name(self) -> str:
        """The key without its section, the name of its column."""
        return self.key.partition(".")[2] or self.key

    @property
    def is_numeric(self) -> bool:
        """Whether all values are integers, of Python's own type."""
        return all(type(value) is int for value in self.values)


def parse(argument: str) -> Axis:
    """Parse a ``--set``: comma-separated values, ``a..b`` for a range, ``a..b..c`` for a range with step c. Raises ValueError."""
    key, equals, text = argument.partition("=")
    if not equals or not key.strip() or not text.strip():
        raise ValueError(f"{argument!r} is not key=values; write for example training.batch_size=1..64")
    pieces = [text] if text.lstrip().startswith(("[", "{")) else text.split(",")
    values = tuple(chain.from_iterable(_values(piece.strip(), argument) for piece in pieces))
    return of(key.strip(), values)


def of(key: str, values: Iterable[int | str]) -> Axis:
    """Return the axis with these values, each once. Raises ValueError if there are none or too many."""
    distinct = tuple(dict.fromkeys(islice(values, MOST + 1)))
    if not 0 < len(distinct) <= MOST:
        raise ValueError(f"{key} has {f'more than {MOST:,}' if distinct else 'no'} values")
    return Axis(key, distinct)


def _values(piece: str, argument: str) -> tuple[int | str, ...]:
    found = _RANGE.fullmatch(piece)
    if not found:
        return (int(piece),) if re.fullmatch(r"\d{1,18}", piece) else (piece,)
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if first > last or step == 0:
        raise ValueError(f"{argument!r}: the range {piece} is empty; write the smaller end first, and a step of 1 or more")
    if (last - first) // step >= MOST:
        raise ValueError(f"{argument!r}: the range {piece} has more than {MOST:,} values")
    return tuple(range(first, last + 1, step))
