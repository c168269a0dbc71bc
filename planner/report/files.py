"""The formats of a report, and the files of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from planner.capacity.figures import Plan
from planner.report import csv, datapackage, json, markdown
from planner.report.planned import Planned


def _workbook(models: Sequence[Planned]) -> bytes:
    from planner.report.workbook import workbook

    return workbook(models)


def _page(models: Sequence[Planned]) -> str:
    from planner.report.page import report

    return report(models)


FORMATS: Mapping[str, Mapping[str, Callable[[Sequence[Planned]], str | bytes]]] = {
    "csv": {
        "capacity.csv": lambda models: csv.capacity(_plans(models)),
        "components.csv": lambda models: csv.components(_plans(models)),
        "serving.csv": lambda models: csv.serving(_served(models)),
        "datapackage.json": lambda models: datapackage.datapackage(_plans(models), serves=bool(_served(models))),
    },
    "md": {"capacity.md": markdown.report},
    "json": {"capacity.json": lambda models: json.report(_plans(models), [model.spec for model in models])},
    "xlsx": {"capacity.xlsx": _workbook},
    "html": {"capacity.html": _page},
}


FORMAT_OF: Mapping[str, str] = {name: form for form, names in FORMATS.items() for name in names}


def present(directory: Path) -> dict[str, str]:
    """Return our reports that are in a directory, and the format of each; the description of data is one only beside its data."""
    found = {name: form for name, form in FORMAT_OF.items() if (directory / name).exists()}
    return (
        found if found.keys() & {"capacity.csv", "components.csv"} else {name: found[name] for name in found if name != "datapackage.json"}
    )


def files(models: Sequence[Planned], formats: Iterable[str], announce: Callable[[str], None] = lambda _: None) -> dict[str, bytes]:
    """Return the files of the formats, by name; text as UTF-8. Each name is announced before its file is made."""
    made: dict[str, bytes] = {}
    for name, write in (item for form in formats for item in FORMATS[form].items()):
        if name == "serving.csv" and not _served(models):
            continue
        announce(name)
        content = write(models)
        made[name] = content.encode() if isinstance(content, str) else content
    return made


def _served(models: Sequence[Planned]) -> list[Plan]:
    return [plan for plan in _plans(models) if plan.served]


def _plans(models: Sequence[Planned]) -> list[Plan]:
    return [plan for model in models for plan in model.plans]
