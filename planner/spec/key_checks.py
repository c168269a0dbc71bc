"""Checks that the fields of records state: keys that belong to a value of another one, and sizes that divide others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from planner.spec.key import Key
from planner.spec.mixers import names
from planner.spec.problems import Problem
from planner.spec.settings import Settings
from planner.spec.suggest import stated

Check: TypeAlias = Callable[..., Iterator[Problem]]

_CODES = {"norm.bias": "norm-bias", "positions.offset": "positions", "positions.rotary_dim": "positions"}


def key_checks(kind: type[Any], above: str = "") -> tuple[Check, ...]:
    """Return the checks of the keys that a record states, each a function of the section's settings."""
    found = list(stated(kind, above))
    belonging = (partial(_belongs, path, key) for path, key in found if key.only)
    return (*belonging, *(partial(_divides, path, other) for path, key in found for other in key.divides.split()))


def _belongs(path: str, key: Key, settings: Settings, *__: object) -> Iterator[Problem]:
    """Find a setting that is on beside settings that leave it no meaning."""
    if not settings.written(path) or settings.get(path) in (key.default, False):
        return
    for condition in key.only.split("; "):
        other, _, values = condition.partition(": ")
        actual, allowed = settings.get(other), values.split(" or ")
        text = str(actual).lower() if isinstance(actual, bool) else actual
        if text not in allowed:
            message, hint = f"{path} requires {condition}, not {text}", f"remove it, or write {other}: {allowed[0]}"
            yield settings.problem(path, _CODES.get(path, path.rpartition(".")[2].replace("_", "-")), message, hint)
            return


def _divides(path: str, other: str, settings: Settings) -> Iterator[Problem]:
    """Find a size that is no multiple of another one of its group."""
    group, _, name = path.rpartition(".")
    divisor, size = settings.get(path), settings.get(f"{group}.{other}")
    if group in names(settings) and size % divisor:
        message = f"{path} {divisor} does not divide {group}.{other} {size}"
        yield settings.problem(path, "divides", message, f"make {other} a multiple of {name}")
