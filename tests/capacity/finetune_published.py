"""Published figures of fine-tunings beside plans.

``tests/data/finetune_published.csv``: memory within 1 % or 10 %, by how well its settings are known, and trainable parameters, which are
exact; ``reason`` states why a figure is not planned, or differs by more. ``tests/data/finetune_counts.csv``: trainable parameters of peft;
``wrong`` states why a published number is wrong.
"""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path

import planner

DATA = Path(__file__).parent.parent / "data"
FIGURES = list(csv.DictReader((DATA / "finetune_published.csv").read_text(encoding="utf-8").splitlines()))
COUNTS = list(csv.DictReader((DATA / "finetune_counts.csv").read_text(encoding="utf-8").splitlines()))


@cache
def planned(model: str, training: str) -> tuple[int, int]:
    """Return the trainable parameters and the peak of a step."""
    spec = planner.load({"name": "tuned", "extends": f"catalog/{model}", "training": json.loads(training)})
    plan = planner.plan(spec)
    return plan.parameters.trained, plan.memory.peak_bytes


def difference(row: dict[str, str]) -> float | None:
    """Return the difference of a plan from a published figure, as a share of it; None if it is not planned."""
    if not row["training"]:
        return None
    trained, peak = planned(row["model"], row["training"])
    return (trained if row["figure"] == "trainable_params" else peak) / int(row["published"]) - 1


def holds(row: dict[str, str]) -> bool:
    """Return whether a plan is as near to a published figure as its settings are known."""
    off = difference(row)
    return off is not None and abs(off) <= float(row["within"])


def trained(row: dict[str, str]) -> int | None:
    """Return the trainable parameters of a row of counts, or None if it is not planned."""
    if not row["spec"]:
        return None
    return planner.plan(planner.load({"name": "tuned", **json.loads(row["spec"])})).parameters.trained
