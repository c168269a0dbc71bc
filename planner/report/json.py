"""capacity.json: every metric, exact. Integers are JSON numbers of any size; train_flops may exceed 64 bits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import date
from fractions import Fraction
from typing import TypeAlias

from planner.capacity.explain import Explanation
from planner.capacity.figures import Plan
from planner.report import units
from planner.report.accuracy import accuracy
from planner.report.columns import GROUPS, SERVED, columns_of
from planner.spec.edits import MODEL
from planner.spec.language import Schema, inlined, properties
from planner.spec.nodes import Node
from planner.spec.records import Spec

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def report(plans: Iterable[Plan], specs: Iterable[Spec] = (), explained: Iterable[Explanation] | None = None) -> str:
    """Return a list with one object per plan: the metrics of capacity.csv by column, then their details.

    A plan of one of ``specs`` contains the whole spec, so that a later version can compute it again. ``explained`` applies to every plan.
    """
    written = {spec.name: _spec(spec) for spec in specs}
    more: dict[str, Json] = {} if explained is None else {"explained": plain(tuple(explained))}
    return json.dumps([{**_plan(plan, written.get(plan.name)), **more} for plan in plans], ensure_ascii=False, indent=2) + "\n"


def _plan(plan: Plan, spec: Json) -> dict[str, Json]:
    tokens = plan.train_tokens
    columns = (*columns_of([plan]), *(SERVED if plan.served else ()))
    return {
        "figures": {column.name: column.read(plan) for column in columns},
        "methods": {column.name: column.method for column in columns if column.method},
        "initial_loss": units.number(plan.initial_loss),
        "tokens_per_parameter": None if tokens is None else units.number(tokens / plan.parameters.total),
        "components": {group.name: dict(group.read(plan)) for group in GROUPS},
        "model": plain(plan.model),
        "training": {key: value for key, value in _fields(plan.training).items() if key != "layout"},
        **({"fleet": plain(plan.fleet)} if plan.fleet else {}),
        "weights": plain(plan.parameters.weights),
        "model_states": plain(plan.memory.states),
        "kept": plain(plan.memory.kept),
        "phases": plain(plan.memory.phases),
        "flops": plain(plan.flops.by_convention),
        "shapes": plain(plan.shapes),
        "not_counted": plain(plan.not_counted),
        "accuracy": accuracy(plan.model, plan.training).text,
        "spec": spec,
    }


def _spec(spec: Spec) -> Json:
    """Return a spec as written, merged with what it extends, as far as metrics depend on it; None if it was not read from a file."""
    if spec.written is None:
        return None
    sections = {key: node for key, node in spec.written.items().items() if key in ("tags", "omits", *MODEL, "waivers")}
    return {"name": spec.name, **{key: _node(node, properties(inlined())[key]) for key, node in sections.items()}}


def _node(node: Node, schema: Schema) -> Json:
    if isinstance(node.value, list):
        return [_node(element, schema.get("items", {})) for element in node.value]
    if isinstance(node.value, dict):
        own = {key: _node(inner, properties(schema).get(key, {})) for key, inner in node.value.items()}
        return own if node.rest is None else {**_rest(node.rest, properties(schema)), **own}
    return float(node.value) if isinstance(node.value, Fraction) else plain(node.value)


def _rest(shorthand: Node, keys: dict[str, Schema]) -> dict[str, Json]:
    """Expand a shorthand for the keys that a mapping over it omits, unless it is their default."""
    return {key: plain(shorthand.value) for key, inner in keys.items() if inner.get("default") != shorthand.value}


def _fields(record: object) -> dict[str, Json]:
    return {field.name: plain(getattr(record, field.name)) for field in fields(record)}  # type: ignore[arg-type]  # a record


def plain(value: object) -> Json:
    """Convert records, tuples, mappings, fractions and dates to JSON values."""
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, Fraction):
        return units.decimal(value)
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"a report has no JSON for {type(value).__name__}")
