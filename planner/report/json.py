"""capacity.json: every figure, exact, for programs. Integers are JSON numbers of any size; 64-bit readers must mind train_flops."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import TypeAlias

from planner.capacity.records import Plan
from planner.report import units
from planner.report.columns import COLUMNS, GROUPS

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def report(plans: Iterable[Plan]) -> str:
    """Write a list with one object per plan: the figures of capacity.csv by column, then what is behind them."""
    return json.dumps([_plan(plan) for plan in plans], ensure_ascii=False, indent=2) + "\n"


def _plan(plan: Plan) -> Json:
    tokens = plan.train_tokens
    return {
        "figures": {column.name: column.read(plan) for column in COLUMNS},
        "initial_loss": units.number(plan.initial_loss),
        "tokens_per_parameter": None if tokens is None else units.number(tokens / plan.parameters.total),
        "components": {group.name: dict(group.read(plan)) for group in GROUPS},
        "model": _plain(plan.model),
        "training": _plain(plan.training),
        "weights": _plain(plan.parameters.weights),
        "model_states": _plain(plan.memory.states),
        "kept": _plain(plan.memory.kept),
        "phases": _plain(plan.memory.phases),
        "flops": _plain(plan.flops.by_convention),
        "shapes": _plain(plan.shapes),
        "not_counted": _plain(plan.not_counted),
    }


def _plain(value: object) -> Json:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    if isinstance(value, Fraction):
        return units.decimal(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"a report has no JSON for {type(value).__name__}")
