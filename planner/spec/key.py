"""How a field of a record states a key of the spec language: its meaning, unit, range, default, and what others call it."""

# ruff: noqa: ANN401 - a field specifier accepts and returns values of any type
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform

Kind = TypeVar("Kind")
Form = Literal["value", "mapping", "none", "type", "boolean"]


class Key(NamedTuple):
    """What a field states of a key. Its type and its values are those of the annotation."""

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
    values: Mapping[str, str] = {}  # our values, or keys in a group, and what other programs call them
    only: str = ""  # the values of other keys with which it can be written: "norm.type: rmsnorm; norm.weight: true"
    divides: str = ""  # keys of its group that are multiples of it
    needed: bool = False  # whether it must be written though its field has a default
    quiet: bool = False  # whether it is shown only where it differs from its default
    form: Form = "value"  # else a group: a mapping, which none, the value of its type, or true and false can replace
    kind: type[Any] | None = None  # the record of a group


def key(
    meaning: str, unit: str = "", *, default: Any = MISSING, usual: Any = None, path: str = "", kw_only: Any = MISSING, **more: Any
) -> Any:
    """State a key. ``default`` is the record's default too; ``usual`` is the language's alone."""
    constant = usual if default in (MISSING, None, ()) or more.get("derived") else default
    stated = Key(meaning, unit, path, "none" if more.get("none") else constant, **more)
    return field(default=default, kw_only=kw_only, metadata={"key": stated})


def group(meaning: str = "", *, default: Any = MISSING, path: str = "", form: Form = "mapping", **more: Any) -> Any:
    """State a group of keys: those of the record ``kind``, whose docstring can be its description, or those whose paths lead into it."""
    constant = default if form == "boolean" else default.type if form == "type" else None
    return field(default=default, metadata={"key": Key(meaning, "", path, constant, form=form, **more)})


def of_layer() -> Any:
    """Take the value of the layer's key of this name."""
    return field(metadata={"of_layer": True})


@dataclass_transform(frozen_default=True, field_specifiers=(key, group, of_layer, field))
def record(cls: type[Kind]) -> type[Kind]:
    """Make a class a frozen record. Its class variables state keys that other fields hold, and have no value."""
    made = dataclass(frozen=True, slots=True)(cls)
    for one, _ in keys(made):
        if one.name in vars(made) and not held(made, one):
            delattr(made, one.name)
    return made


def needed(kind: type[Any], group: str = "") -> tuple[str, ...]:
    """Return the keys of a record, or of a group in it, that must be written: they have no default, constant or derived."""
    paths = (
        stated.path or one.name
        for one, stated in keys(kind)
        if stated.needed or (one.default is MISSING and held(kind, one) and stated.default is None and not stated.derived)
    )
    return tuple(path.rpartition(".")[2] for path in paths if path.rpartition(".")[0] == group)


def held(kind: type[Any], field: Field[Any]) -> bool:
    """Return whether a record holds the value of a key itself."""
    return field.name in kind.__slots__


def of_the_layer(kind: type[Any]) -> Iterator[str]:
    """Yield the keys of the layer that fields of the record take the values of."""
    return (one.name for one in kind.__dataclass_fields__.values() if "of_layer" in one.metadata)


def keys(kind: type[Any]) -> Iterator[tuple[Field[Any], Key]]:
    """Yield the keys that a record states, in the language's order."""
    for one in getattr(kind, "__dataclass_fields__", {}).values():
        if "key" in one.metadata:
            yield one, one.metadata["key"]
