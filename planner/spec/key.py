"""How a field of a record states a key of the spec language: its meaning, unit, range, default, and what others call it."""

# ruff: noqa: ANN401 - a field specifier takes the value of any field, and returns what stands for it
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform

Kind = TypeVar("Kind")
Form = Literal["value", "mapping", "none", "type", "boolean"]


class Key(NamedTuple):
    """One key. Its type and its values are those of the annotation."""

    meaning: str
    unit: str
    path: str  # within the section, where it is not the name of the field; "": it is
    default: Any  # None: there is none
    derived: str = ""  # the rule by which a default follows from other settings
    none: str = ""  # what the value none means, where it is allowed
    least: int | None = None  # None: 1 for integers
    above: int | None = None
    below: int | None = None
    longest: int = 0  # characters of a text
    example: Any = None
    aliases: str = ""  # names that other programs give the key
    values: Mapping[str, str] = {}  # our values, and what other programs call them
    quiet: bool = False  # whether it is shown only where it differs from its default
    form: Form = "value"  # else a group: a mapping, which none, the value of its type, or true and false can stand for
    kind: type[Any] | None = None  # the record of a group
    title: str = ""


def key(
    meaning: str, unit: str = "", *, default: Any = MISSING, usual: Any = None, path: str = "", kw_only: Any = MISSING, **more: Any
) -> Any:
    """State a key. ``default`` is the record's default too; ``usual`` is the language's alone."""
    constant = usual if default in (MISSING, None, ()) or more.get("derived") else default
    stated = Key(meaning, unit, path, "none" if more.get("none") else constant, **more)
    return field(default=default, kw_only=kw_only, metadata={"key": stated})


def group(meaning: str, *, default: Any = MISSING, path: str = "", form: Form = "mapping", **more: Any) -> Any:
    """State a group of keys, those of the record ``kind`` or those whose paths lead into it."""
    constant = default if form == "boolean" else default.type if form == "type" else None
    return field(default=default, metadata={"key": Key(meaning, "", path, constant, form=form, **more)})


def of_layer(*, default: Any = MISSING) -> Any:
    """Take the value of the layer's key of this name."""
    return field(default=default, metadata={"of_layer": True})


@dataclass_transform(frozen_default=True, field_specifiers=(key, group, of_layer, field))
def record(cls: type[Kind]) -> type[Kind]:
    """Make a class a frozen record. Its class variables state keys that other fields hold, and have no value."""
    made = dataclass(frozen=True, slots=True)(cls)
    for one, _ in keys(made):
        if one.name in vars(made) and one.name not in made.__slots__:  # type: ignore[attr-defined]  # made by dataclass
            delattr(made, one.name)
    return made


def keys(kind: type[Any]) -> Iterator[tuple[Field[Any], Key]]:
    """Yield the keys that a record states, in the language's order."""
    for one in kind.__dataclass_fields__.values():
        if "key" in one.metadata:
            yield one, one.metadata["key"]
