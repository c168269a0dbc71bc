"""The languages as their JSON Schemas state them: the schemas themselves, the spec's constant defaults, and where each key belongs.

There are two: ``spec``, and ``policy`` for ``planner.yaml``.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path(__file__).parent / "schema"

Schema = dict[str, Any]


def schema(language: str = "spec") -> Schema:
    """Return the draft-07 JSON Schema of a language, as shipped."""
    read: Schema = json.loads((_FOLDER / f"{language}.schema.json").read_text(encoding="utf-8"))
    return read


@cache
def inlined(language: str = "spec") -> Schema:
    """Return the schema with every reference replaced by what it refers to. Shared: do not change it."""
    root = schema(language)
    referred: dict[str, Any] = {}  # what many layers and scenarios refer to, once

    def resolve(part: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(part, list):
            return [resolve(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            reference = part["$ref"]
            if reference not in referred:
                target = root
                for step in reference.removeprefix("#/").split("/"):
                    target = target[step]
                referred[reference] = resolve(target)
            return referred[reference]
        return {key: resolve(item) for key, item in part.items()}

    inline: Schema = resolve({key: item for key, item in root.items() if key != "definitions"})
    return inline


def properties(part: Schema) -> dict[str, Schema]:
    """Return the properties of a schema, those of its object form where it also has a shorthand."""
    found: dict[str, Schema] = part.get("properties", {})
    for branch in part.get("anyOf", ()):
        found = found or properties(branch)
    return found


@cache
def leaves() -> dict[str, Schema]:
    """Return the dotted keys of single settings outside lists with their schemas, in the schema's order."""

    def walk(part: Schema, prefix: str) -> Iterator[tuple[str, Schema]]:
        for key, inner in properties(part).items():
            if properties(inner):
                yield from walk(inner, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", inner

    return dict(walk(inlined(), ""))
