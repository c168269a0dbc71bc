"""The files of a report: which formats there are, and what each writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from planner.capacity.records import Plan
from planner.report import csv, json, markdown
from planner.report.records import Planned

FORMATS: Mapping[str, Mapping[str, Callable[[Sequence[Planned]], str]]] = {
    "csv": {
        "capacity.csv": lambda models: csv.capacity(_plans(models)),
        "components.csv": lambda models: csv.components(_plans(models)),
    },
    "md": {"capacity.md": markdown.report},
    "json": {"capacity.json": lambda models: json.report(_plans(models), [model.spec for model in models])},
}


def files(models: Sequence[Planned], formats: Iterable[str]) -> dict[str, bytes]:
    """Make the files of the formats, by name, as UTF-8."""
    return {name: write(models).encode() for form in formats for name, write in FORMATS[form].items()}


def _plans(models: Sequence[Planned]) -> list[Plan]:
    return [plan for model in models for plan in model.plans]
