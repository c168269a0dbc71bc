"""Capacity planner for transformer language models: exact parameters, memory and FLOPs from one YAML spec.

>>> import planner
>>> plan = planner.plan("specs/gpt2-small.yaml")
>>> plan.parameters.total
124439808
>>> plan.memory.activations_bytes > plan.memory.logits_bytes
True
>>> plan.to_frame()["params_total"].tolist()
[124439808]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.api import (
        Plan,
        Spec,
        SpecError,
        UnsupportedError,
        compare,
        diff,
        explain,
        fit,
        load,
        plan,
        plans,
        serve,
        size,
        sweep,
    )  # fmt: skip

__all__ = [
    "Plan", "Spec", "SpecError", "UnsupportedError", "__version__", "compare", "diff", "explain", "fit", "load", "plan", "plans", "serve",
    "size", "sweep",
]  # fmt: skip

__version__ = "0.1.0"


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Import the API on first use: the command does not need all of it."""
    if name in __all__:
        from planner import api

        return getattr(api, name)
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, 1)
    raise AttributeError(f"module 'planner' has no attribute {name!r}{f'; did you mean {near[0]!r}?' if near else ''}")
