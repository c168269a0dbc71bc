"""How far passes of inference of a model's class were measured: one line per result.

``measured_serving.csv`` has the differences between results and measured passes of a small model of each class of transformers, written by
``tools/measure_serving.py``: the largest of each group of figures in percent of what transformers allocated and computed, or the reason why
they were not measured.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from planner.report.accuracy import in_words
from planner.spec.records import Model, Serving
from planner.trace.classes import modeled_class

TABLE = Path(__file__).parent / "measured_serving.csv"
GROUPS = ("weights", "cache", "flops", "peak")
COLUMNS = ("model_type", "attention", "cache_type", *GROUPS, "reason")
LABELS = {"weights": "weights", "cache": "cache", "flops": "FLOPs", "peak": "peaks"}
OF_ENGINES = "the cache's rules were read from the engine's source; 35 lines of logs of engines agree within 1.1 % (docs/serving.md)"


def accuracy(model: Model, serving: Serving) -> str:
    """Return what was measured of the model's class with the serving's attention and cache, or of its engine."""
    if serving.engine != "transformers":
        return OF_ENGINES
    kind = model.model_type or modeled_class(model)
    named = f"class {kind}" if model.model_type else f"class {kind}, which represents a model without model.model_type,"
    setting = f"{serving.attention} attention, {serving.cache.type} cache"
    row = _row(kind, serving)
    if row is None:
        return f"{named} was not measured with {setting}"
    if row["reason"]:
        return f"{named} was not measured with {setting}; {row['reason']}"
    beyond = "" if serving.weights == "bf16" else f"; not measured with weights {serving.weights}"
    return f"a small model of {named} was measured on a simulated A100 ({setting}, bf16): {in_words(row, LABELS)}{beyond}"


def _row(kind: str, serving: Serving) -> Mapping[str, str] | None:
    with TABLE.open(encoding="utf-8", newline="") as lines:
        key = (kind, serving.attention, serving.cache.type)
        return next((row for row in csv.DictReader(lines) if tuple(row[name] for name in COLUMNS[:3]) == key), None)
