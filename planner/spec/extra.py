"""Extra tensors: what the user declares of parts that the language has no setting for. Shapes are products of the spec's own sizes."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, TypeAlias, cast

from planner.spec.records import Component, Extra
from planner.spec.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.spec.nodes import Node

Sizes: TypeAlias = "Mapping[str, Callable[[], int]]"  # each raises Unresolved where there is no such size

_PRODUCT = re.compile(r" *\w+ *(\* *\w+ *)*", re.ASCII)


def factors(text: str) -> tuple[str, ...]:
    """Return the factors of a product such as ``2*d_model``, () where the text is none."""
    return tuple(factor.strip() for factor in text.split("*")) if _PRODUCT.fullmatch(text) else ()


def extra(settings: Settings, sizes: Sizes) -> tuple[Extra, ...]:
    """Return the extra tensors of a layer, or the model's."""
    written = settings.written("extra")
    return tuple(_tensor(node, sizes) for node in written.elements()) if written else ()


def _tensor(node: Node, sizes: Sizes) -> Extra:
    entries = node.items()
    shape = tuple(_size(each.value, sizes) for each in entries["shape"].elements())
    component, uses = (entries[key].value if key in entries else default for key, default in (("component", "other"), ("uses", 0)))
    return Extra(str(entries["name"].value), shape, cast("Component", component), cast("int", uses))


def _size(value: object, sizes: Sizes) -> int:
    if isinstance(value, int):
        return value
    return prod(int(factor) if factor.isdecimal() else sizes[factor]() for factor in factors(str(value)))
