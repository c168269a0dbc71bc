"""datapackage.json: what the CSV files hold, column by column, as a Frictionless Data Package (specs.frictionlessdata.io, version 1).

Generated from the tables of columns that write the files.
"""

from __future__ import annotations

import json
from typing import TypeAlias

from planner.report.columns import COLUMNS, COMPONENT_COLUMNS, GROUPS

Descriptor: TypeAlias = "dict[str, str | bool | list[str] | Descriptor | list[Descriptor]]"

_COMPONENT_TYPES = {"quantity": "integer"}  # the others are text
_COMPONENT_MEANINGS = {
    "model": "the spec's name",
    "scenario": "one of the spec's scenarios; base is the spec's own training",
    "group": "; ".join(f"{group.name}: {group.description}" for group in GROUPS),
    "component": "the part of the group",
    "quantity": "value",
    "unit": "unit of the quantity",
}
_KEYS = ("model", "scenario")


def datapackage() -> str:
    """Write the package's descriptor. It is the same for all models, for it tells columns, not cells."""
    package: Descriptor = {
        "profile": "tabular-data-package",
        "name": "capacity",
        "title": "Parameters, memory and FLOPs of transformer language models",
        "resources": [
            _resource("capacity", "one row per model and scenario", _capacity_fields(), list(_KEYS)),
            _resource(
                "components",
                "one row per model, scenario, group and component",
                _component_fields(),
                [*_KEYS, "group", "component"],
            ),
        ],
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


def _capacity_fields() -> list[Descriptor]:
    return [
        _field(
            column.name,
            "string" if column.kind == "text" else "integer",
            column.unit,
            column.description,
            required=not column.may_be_empty,
        )
        for column in COLUMNS
    ]


def _component_fields() -> list[Descriptor]:
    return [_field(name, _COMPONENT_TYPES.get(name, "string"), "", _COMPONENT_MEANINGS[name], required=True) for name in COMPONENT_COLUMNS]


def _field(name: str, type_: str, unit: str, description: str, *, required: bool) -> Descriptor:
    limits: Descriptor = {"required": True} if required else {}
    return {
        "name": name,
        "type": type_,
        **({"unit": unit} if unit else {}),
        "description": description,
        **({"constraints": limits} if limits else {}),
    }
