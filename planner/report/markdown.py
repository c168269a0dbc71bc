"""capacity.md, for GitHub: a table of models, then a folded breakdown per model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from planner.capacity.figures import Plan
from planner.report import breakdown, devices, omitted, overview, served, time, units
from planner.report.breakdown import Section
from planner.report.columns import GROUPS, OVERVIEW, columns_of
from planner.report.paths import display_path
from planner.report.planned import Planned
from planner.spec.printable import visible

_ACTIVE = re.compile(r"[&<>|`*~\\\[\]$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|^[-+=#]|^\d+[.)](?= |$)")
# GitHub and GitLab make links of these in any text, and notify people, unless zero-width spaces part them: URLs, www., :emoji:, GH-1,
# @name and addresses, #1, !1, %1, ~1, &1, $1, and the names of commits, of which seven digits are enough.
_LINKED = re.compile(r":(?=//|[\w+-]+:)|www(?=\.)|\bGH-(?=\d)|[@#!%~&$](?=\w)|[0-9a-f]{40,}", re.IGNORECASE)
_PIECE = re.compile(".{1,6}")
_APART = "\N{ZERO WIDTH SPACE}"
_URL = re.compile(r"https?://[!-;=?-\[\]^_a-z~]+")  # printable ASCII without < > \\ ` { | }


def report(models: Sequence[Planned]) -> str:
    """Return the whole report, which ends with a line feed."""
    return "\n".join(_lines(models)) + "\n"


def plans(plans: Sequence[Plan]) -> str:
    """Return the metrics of plans, under a table of all if there are several."""
    return "\n".join(_plans(plans)) + "\n"


def _plans(plans: Sequence[Plan]) -> Iterator[str]:
    if len(plans) > 1:
        yield from table(_HEADINGS, _ALIGN, map(_overview, plans))
        yield ""
    for plan in plans:
        yield f"## {escape(plan.name)}, scenario {escape(plan.scenario)}"
        for make in (breakdown.parameters, *breakdown.TRAINING, breakdown.accuracy, breakdown.not_counted):
            yield from _section(make(plan), "###")
        yield ""


@lru_cache(maxsize=1024)  # the same few words fill most cells
def escape(text: str) -> str:
    """Escape text so that it is printed literally on one line: no markup, HTML, formula, mention or reference.

    Character references work in tables, HTML and text; backslashes do not.
    """
    shown = _LINKED.sub(lambda match: _PIECE.sub(rf"\g<0>{_APART}", match[0]), visible(" ".join(text.split())))
    return _ACTIVE.sub(lambda match: "".join(f"&#{ord(char)};" for char in match[0]), shown).replace(_APART, "&#8203;")


def table(headings: Sequence[str], align: str, rows: Iterable[Sequence[str]], total: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of a table of raw text, unpadded, so that a diff shows only the rows that changed."""
    yield line_of(map(escape, headings))
    yield line_of("--:" if side == "r" else "---" for side in align)
    for row in rows:
        yield line_of(map(escape, row))
    if total:
        yield line_of(f"**{escape(cell)}**" if cell else "" for cell in total)


def line_of(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def _lines(models: Sequence[Planned]) -> Iterator[str]:
    yield from ("# Capacity report", "")
    yield "Written by `planner run`. Values are rounded; `capacity.csv` has exact values. B is 10⁹ parameters, GiB is 2³⁰ bytes,"
    several = "; of a cluster, for the device with the largest peak" if any(plan.fleet for model in models for plan in model.plans) else ""
    yield f"1 multiply-add is 2 FLOPs. Memory is for one device holding the whole model{several}, with batch size B and sequence length n."
    yield ""
    yield from table(_HEADINGS, _ALIGN, [_overview(plan) for model in models for plan in model.plans])
    yield ""
    left_out = omitted.of_plans([plan for model in models for plan in model.plans])
    verdicts = overview.verdicts([plan for model in models for plan in model.plans])
    yield from (f"{escape(note)}  " for note in (*verdicts, *left_out, omitted.UNPADDED))
    for model in models:
        yield ""
        parameters = units.count(model.plans[0].parameters.total)
        yield from _folded(f"<b>{escape(model.spec.name)}</b>: {parameters} parameters", _details(model))
    for plan in [plan for model in models for plan in model.plans][:1]:
        yield ""
        yield from _folded("What the FLOPs conventions count", _notes(breakdown.conventions(plan).notes))
    yield ""
    yield from _folded("What the columns of the CSV files mean", _reference([plan for model in models for plan in model.plans]))


_FIRST, *_REST = (column.heading for column in OVERVIEW.values())
_HEADINGS = ("model", "scenario", _FIRST, "B × n", *_REST, "precision", "optimizer", "recompute", "implementation", "FLOPs convention")
_ALIGN = "ll" + "r" * (1 + len(OVERVIEW)) + "lllll"


def _overview(plan: Plan) -> tuple[str, ...]:
    training = plan.training
    parameters, *figures = overview.cells(plan)
    sizes = f"{units.exact(training.batch_size)} × {units.exact(training.sequence_length)}"
    settings = (training.precision, training.optimizer, training.recompute, training.implementation, plan.flops.chosen.convention)
    return (plan.name, plan.scenario, parameters, sizes, *figures, *settings)


def _details(model: Planned) -> Iterator[str]:
    spec, base = model.spec, model.plans[0]
    if spec.description:
        yield from (escape(spec.description), "")
    yield f"- Spec: {escape(display_path(spec.path))}"
    for source in spec.sources:
        yield f"- Source: {f'<{source}>' if _URL.fullmatch(source) else escape(source)}"
    for section in (breakdown.parameters(base), breakdown.model_settings(spec), breakdown.waivers(spec)):
        yield from _section(section, "###")
    for plan in model.plans:
        yield from ("", f"### Scenario {escape(plan.scenario)}")
        for section in (breakdown.training_settings(spec, plan), *breakdown.layout_settings(spec, plan)):
            yield from _section(section, "####")
        for make in (*breakdown.TRAINING, *devices.SECTIONS, time.section, served.section, breakdown.accuracy, breakdown.not_counted):
            yield from _section(make(plan), "####")


def _section(section: Section, level: str) -> Iterator[str]:
    if not section.rows and not section.notes:
        return
    yield from ("", f"{level} {escape(section.title)}", "")
    if section.rows:
        yield from table(section.headings, section.align, section.rows, section.total)
    if section.rows and section.notes:
        yield ""
    yield from _notes(section.notes)


def _notes(notes: Iterable[str]) -> Iterator[str]:
    return (f"- {escape(note)}" for note in notes)


def _folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>")


def _reference(plans: Sequence[Plan]) -> Iterator[str]:
    yield from ("`capacity.csv`, one row per model and scenario:", "")
    yield from table(("column", "unit", "meaning"), "lll", [(column.name, column.unit, column.description) for column in columns_of(plans)])
    yield from ("", "`components.csv`, one row per model, scenario, group and component:", "")
    yield from table(("group", "unit", "meaning"), "lll", [(group.name, group.unit, group.description) for group in GROUPS])
    yield from ("", "Text that a spreadsheet would read as a formula is prefixed with an apostrophe.")
