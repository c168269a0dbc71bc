"""A spec as written: a tree of values with their locations, and how one tree overrides another."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from planner.spec.problems import Problem
from planner.spec.records import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

_LINE_END = re.compile("\r\n|\n|\r")


class Unreadable(Enum):
    """Replaces a value that was already reported, so that nothing that depends on it is reported again."""

    UNREADABLE = "unreadable"


UNREADABLE = Unreadable.UNREADABLE

Scalar: TypeAlias = "str | int | Fraction | float | bool | Unreadable | None"  # float: only .inf and .nan
Value: TypeAlias = "Scalar | dict[str, Node] | list[Node]"


class Source:
    """A text with a name."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        """Lines as the parser counts them."""
        return _LINE_END.split(self.text)


class Mark(NamedTuple):
    """A place in a source; line and column count from 0."""

    source: Source
    line: int
    column: int

    @property
    def place(self) -> Place:
        """The place as people count."""
        return Place(self.source.file, self.line + 1, self.column + 1)

    def problem(self, code: str, message: str, hint: str = "") -> Problem:
        """Return a problem at this place."""
        lines = self.source.lines
        return Problem(self.place, code, message, lines[self.line] if self.line < len(lines) else "", hint)


@dataclass(slots=True)
class Node:
    """A value, its location, and its text."""

    mark: Mark
    value: Value
    text: str = ""  # a scalar as written
    keys: dict[str, Mark] = field(default_factory=dict)  # locations of the keys of a mapping
    size: int = 1  # values in it, with every alias written out
    rest: Node | None = None  # the shorthand that answers for keys that a mapping leaves out

    def items(self) -> dict[str, Node]:
        """Return the entries of a mapping; anything else has none."""
        return self.value if isinstance(self.value, dict) else {}

    def elements(self) -> list[Node]:
        """Return the elements of a list; anything else has none."""
        return self.value if isinstance(self.value, list) else []

    def get(self, key: str) -> Node | None:
        """Return what is written for a key, be it in a mapping or as a shorthand: ``bias: true``, ``positions: rope``."""
        if isinstance(self.value, dict):
            return self.value.get(key, self.rest)
        if self.value is UNREADABLE or isinstance(self.value, bool) or (isinstance(self.value, str) and key == "type"):
            return self
        return None

    def plain(self) -> object:
        """Return the value as dicts, lists and scalars."""
        value = self.value
        if isinstance(value, dict):
            return {key: node.plain() for key, node in value.items()}
        if isinstance(value, list):
            return [node.plain() for node in value]
        return value

    def shown(self) -> str:
        """Return the value on one line, scalars as written."""
        if isinstance(self.value, dict):
            return "{" + ", ".join(f"{key}: {node.shown()}" for key, node in self.value.items()) + "}"
        if isinstance(self.value, list):
            return "[" + ", ".join(node.shown() for node in self.value) + "]"
        return self.text or str(self.value)

    def walk(self, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Node]]:
        """Yield every value with its path, outer ones first."""
        yield path, self
        if isinstance(self.value, dict):
            for key, node in self.value.items():
                yield from node.walk((*path, key))
        elif isinstance(self.value, list):
            for index, node in enumerate(self.value):
                yield from node.walk((*path, index))

    def mark_invalid(self, path: tuple[str | int, ...]) -> Node:
        """Return a copy of the tree with the value at the path marked as invalid."""
        if not path:
            return replace(self, value=UNREADABLE, keys={}, rest=None)
        step, *deeper = path
        if isinstance(self.value, dict) and isinstance(step, str):
            return replace(self, value={**self.value, step: self.value[step].mark_invalid(tuple(deeper))})
        if isinstance(self.value, list) and isinstance(step, int):
            return replace(self, value=[*self.value[:step], self.value[step].mark_invalid(tuple(deeper)), *self.value[step + 1 :]])
        return self  # an outer value is unreadable already


# A key that overrides these too: they state the same fact, or apply only to the old value.
REPLACES = {
    "tokens": ("steps",),
    "steps": ("tokens",),
    "gradient_accumulation": ("global_batch_size",),
    "global_batch_size": ("gradient_accumulation",),
    "precision": ("gradient_dtype",),
    "optimizer": ("muon_experts", "amsgrad", "first_moment", "paged"),
}


def merge(base: Node, top: Node, *, replaces: bool = True) -> Node:
    """Override one mapping by another: mappings are merged, lists and scalars are replaced.

    ``replaces``: keys of the base that REPLACES lists, or that belong to another type, are removed, too.
    """
    if not isinstance(base.value, dict) or not isinstance(top.value, dict):
        return top
    gone = {rival for key in top.value for rival in REPLACES.get(key, ())} if replaces else set()
    value = {key: node for key, node in base.value.items() if key not in gone}
    for key, node in top.value.items():
        value[key] = merge(_beneath(key, value[key], node, replaces=replaces), node, replaces=replaces) if key in value else node
    return Node(top.mark, value, keys={**base.keys, **top.keys}, size=base.size + top.size, rest=base.rest)


def _beneath(key: str, base: Node, top: Node, *, replaces: bool) -> Node:
    """Return the part of the base that a mapping overrides, its shorthand written out."""
    if key == "bias" and isinstance(base.value, bool):
        return replace(base, value={}, rest=base)
    if replaces and key == "positions" and "type" in top.items():
        return top  # another type: what belonged to the old one goes
    if replaces and key == "feed_forward" and "type" in top.items() and top.items()["type"].value == "rwkv":
        return top  # which has neither activation nor biases to choose
    if key == "positions" and isinstance(base.value, str):
        return replace(base, value={"type": base})
    return base
