"""Validation as yes or no. The package jsonschema explains what is invalid; importing it takes longer than validating 100 specs."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.spec.language import Schema

_KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, Fraction),
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def conforms(value: object, schema: Schema) -> bool:
    """Return whether a value is valid under a schema. Raises KeyError for a keyword that neither language uses."""
    return all(keyword in _ANNOTATIONS or _KEYWORDS[keyword](value, wanted, schema) for keyword, wanted in schema.items())


def is_a(value: object, kind: str) -> bool:
    """Return whether a value has a type of JSON, where whole numbers are int and other numbers Fraction."""
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _type(value: object, wanted: str | list[str], _: Schema) -> bool:
    return any(is_a(value, kind) for kind in ([wanted] if isinstance(wanted, str) else wanted))


def _of(kind: str, test: Callable[[Any, Any], bool]) -> Callable[[object, Any, Schema], bool]:
    """Return the test of a keyword that applies to values of one type."""
    return lambda value, wanted, _: not is_a(value, kind) or test(value, wanted)


def _no_other_keys(value: object, _: object, schema: Schema) -> bool:
    return not isinstance(value, dict) or value.keys() <= schema["properties"].keys()


_ANNOTATIONS = frozenset({"$schema", "title", "description", "default", "examples", "then"})  # then: see if
_KEYWORDS: dict[str, Callable[[Any, Any, Schema], bool]] = {
    "type": _type,
    "enum": lambda value, wanted, _: value in wanted,
    "minimum": _of("number", lambda value, wanted: value >= wanted),
    "maximum": _of("number", lambda value, wanted: value <= wanted),
    "exclusiveMinimum": _of("number", lambda value, wanted: value > wanted),
    "exclusiveMaximum": _of("number", lambda value, wanted: value < wanted),
    "minLength": _of("string", lambda value, wanted: len(value) >= wanted),
    "maxLength": _of("string", lambda value, wanted: len(value) <= wanted),
    "pattern": _of("string", lambda value, wanted: re.search(wanted, value) is not None),
    "minItems": _of("array", lambda value, wanted: len(value) >= wanted),
    "maxItems": _of("array", lambda value, wanted: len(value) <= wanted),
    "items": _of("array", lambda value, wanted: all(conforms(each, wanted) for each in value)),
    "required": _of("object", lambda value, wanted: all(key in value for key in wanted)),
    "properties": _of("object", lambda value, wanted: all(conforms(value[key], wanted[key]) for key in value if key in wanted)),
    "additionalProperties": _no_other_keys,
    "anyOf": lambda value, wanted, _: any(conforms(value, each) for each in wanted),
    "allOf": lambda value, wanted, _: all(conforms(value, each) for each in wanted),
    "not": lambda value, wanted, _: not conforms(value, wanted),
    "if": lambda value, wanted, schema: not conforms(value, wanted) or conforms(value, schema["then"]),
}
