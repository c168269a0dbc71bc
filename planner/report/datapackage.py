"""datapackage.json: what the CSV files hold, column by column, as a Frictionless Data Package (specs.frictionlessdata.io, version 1).

Generated from the tables of columns that write the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal, TypeAlias

from planner.capacity.figures import Plan
from planner.report import serving_table
from planner.report.columns import COMPONENT_COLUMNS, GROUPS, columns_of

Descriptor: TypeAlias = "dict[str, str | bool | list[str] | Descriptor | list[Descriptor]]"

_COMPONENT_MEANINGS = {
    "model": "the spec's name",
    "scenario": "one of the spec's scenarios; base is the spec's own training",
    "group": "; ".join(f"{group.name}: {group.description}" for group in GROUPS),
    "component": "the part of the group",
    "quantity": "value",
    "unit": "unit of the quantity",
}
_KEY = ["model", "scenario"]


def datapackage(plans: Iterable[Plan] = (), *, serves: bool = False) -> str:
    """Return the descriptor, which is the same for all models without a cluster. ``serves``: with that of serving.csv."""
    capacity = [_field(one.name, one.kind, one.unit, one.description, required=not one.may_be_empty) for one in columns_of(plans)]
    components = [
        _field(name, "integer" if name == "quantity" else "text", "", _COMPONENT_MEANINGS[name], required=True)
        for name in COMPONENT_COLUMNS
    ]
    resources = [
        _resource("capacity", "one row per model and scenario", capacity, _KEY),
        _resource("components", "one row per model, scenario, group and component", components, [*_KEY, "group", "component"]),
    ]
    if serves:
        fields = [_field(one.name, one.kind, one.unit, one.description, required=not one.may_be_empty) for one in serving_table.COLUMNS]
        resources.append(_resource("serving", "one row per model with a section serving", fields, ["model"]))
    package: Descriptor = {
        "profile": "tabular-data-package",
        "name": "capacity",
        "title": "Parameters, memory and FLOPs of transformer language models",
        "resources": resources,
    }
    return json.dumps(package, ensure_ascii=False, indent=2) + "\n"


def _resource(name: str, description: str, fields: list[Descriptor], primary_key: list[str]) -> Descriptor:
    return {
        "profile": "tabular-data-resource",
        "name": name,
        "path": f"{name}.csv",
        "description": description,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "dialect": {"delimiter": ",", "lineTerminator": "\n", "quoteChar": '"', "doubleQuote": True, "header": True},
        "schema": {"fields": fields, "primaryKey": primary_key, "missingValues": [""]},
    }


def _field(name: str, kind: Literal["text", "integer"], unit: str, description: str, *, required: bool) -> Descriptor:
    field: Descriptor = {"name": name, "type": "string" if kind == "text" else "integer"}
    field |= {"unit": unit} if unit else {}
    return field | {"description": description} | ({"constraints": {"required": True}} if required else {})
