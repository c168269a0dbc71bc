"""The columns of serving.csv, one row per spec with a section ``serving``. Cells of figures that an engine's result lacks are empty."""

from __future__ import annotations

from collections.abc import Callable

from planner.report.columns import COLUMNS as OF_CAPACITY
from planner.report.columns import SERVED, Cell, Column
from planner.spec.records import Serving


def _text(name: str, description: str, read: Callable[[Serving], Cell]) -> Column:
    return Column(name, "", "", description, lambda plan: read(plan.served.serving) if plan.served else None, "file", kind="text")


def _setting(name: str, unit: str, description: str, read: Callable[[Serving], Cell], *, may_be_empty: bool = False) -> Column:
    """Return the column of an integer that the section states."""
    return Column(
        name, unit, "", description, lambda plan: read(plan.served.serving) if plan.served else None, "file", may_be_empty=may_be_empty
    )


COLUMNS = (
    *(column for column in OF_CAPACITY if column.name in ("model", "spec", "params_total")),
    _text("engine", "program that runs the model", lambda one: one.engine),
    _text("weights", "type of the weights", lambda one: one.weights),
    _text("attention", "attention of transformers", lambda one: one.attention),
    _text("cache_type", "type of the cache of transformers", lambda one: one.cache.type),
    _setting("batch_size", "sequences", "sequences at once", lambda one: one.batch_size),
    _setting("prompt", "tokens", "tokens of each prompt", lambda one: one.prompt),
    _setting("output", "tokens", "tokens that each sequence decodes", lambda one: one.output),
    _setting("tensor_parallel", "devices", "devices that share every layer", lambda one: one.tensor_parallel),
    _setting("memory_bytes", "bytes", "memory of a device, if it is known", lambda one: one.memory_bytes, may_be_empty=True),
    *SERVED,
)
