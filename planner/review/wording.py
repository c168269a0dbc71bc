"""What a review says, in pieces that the text, the Markdown and the other formats put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from planner.report import quantity
from planner.report.columns import FIGURES, OVERVIEW
from planner.report.overview import label
from planner.review.review import Change, Edit, Finding, FormulaChange, Review, ReviewedModel, ReviewedScenario
from planner.spec.records import Place, Waiver


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of a row: what it is, or was and is, and what that comes to."""

    figure: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Some edits and what they move: ``edits`` is empty for what all edits do only together."""

    edits: tuple[Edit, ...]
    moves: tuple[tuple[str, str], ...]  # figures with what they move by


_DONE = ("changed", "new", "removed", "renamed", "unreadable")


def summary(review: Review) -> str:
    """Say in a sentence how many models did what."""
    counts = {done: sum(model.status == done for model in review.models) for done in _DONE}
    said = [f"{number} {done}" for done, number in counts.items() if number]
    same = [model for model in review.models if model.status == "unchanged"]
    moved = sum(bool(model.moved_from) for model in same)
    if said:
        return f"{', '.join(said)} {'model' if len(review.changed) == 1 else 'models'}; {len(same)} unchanged."
    of_them = f" ({moved} moved to another file)" if moved else ""
    models = "the only model matches" if len(same) == 1 else f"all {len(same)} models match"
    return f"No changes: {models} the base{of_them}." if same else "No changes: no models found."


def verdict(review: Review) -> str:
    """Say in a sentence what was found, or nothing where nothing was."""
    counts = {kind: sum(finding.severity == kind for finding in review.findings) for kind in ("error", "warning", "waived")}
    names = {"error": ("finding", "findings"), "warning": ("warning", "warnings"), "waived": ("waived finding", "waived findings")}
    said = [f"{number} {names[kind][number > 1]}" for kind, number in counts.items() if number]
    return f"{', '.join(said)}." if said else ""


def unchanged(review: Review) -> list[str]:
    """Name the models that are as they were, with where they moved from."""
    same = (model for model in review.models if model.status == "unchanged")
    return [f"{model.name} (moved from {model.moved_from})" if model.moved_from else model.name for model in same]


def status(model: ReviewedModel) -> str:
    """Say what became of a model and its file."""
    said = {"renamed": f"renamed, was {model.renamed_from}", "unreadable": "cannot be read"}.get(model.status, model.status)
    moved = f", moved from {model.moved_from}" if model.moved_from else ""
    return f"{said}{moved}{f' ({model.note})' if model.note else ''}"


def headlines(review: Review) -> tuple[str, ...]:
    """Return the figures that the overview shows: the parameters, and whatever of the others changed in any row.

    FLOPs of the whole training are those of a token times the tokens, and shown where the tokens changed.
    """
    rows = [row for model in review.changed for row in model.rows]
    changed = {change.figure for row in rows for change in row.changes}
    if any(row.status in ("new", "removed") for row in rows):
        changed |= set(OVERVIEW) - {"train_flops"}
    changed -= {"train_flops"} if "train_tokens" not in changed else set()
    return tuple(figure for figure in OVERVIEW if figure in changed or figure == "params_total")


def cell(row: ReviewedScenario, figure: str) -> Cell:
    """Tell a figure of a row: before → after and the change; ``new`` and ``removed`` instead of a change."""
    column = FIGURES[figure]
    if row.before is None or row.after is None:
        values = row.after or row.before or {}
        value = values.get(figure)
        return Cell("" if value is None else quantity.rounded(column, value), row.status if value is not None else "")
    change = next((one for one in row.changes if one.figure == figure), None)
    if change is None:
        value = row.after.get(figure)
        return Cell("" if value is None else quantity.rounded(column, value))
    before, after = quantity.pair(column, change.before, change.after)
    return Cell(f"{before} → {after}", said(change))


def said(change: Change) -> str:
    """Say a change, absolute and in percent."""
    return quantity.change(FIGURES[change.figure], change.before, change.after)


Standings: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[str, str]]]


def standings(review: Review) -> Standings:
    """Return for each model and scenario the budgets that are for it, each with how it stands to it."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for standing in review.standings:
        found.setdefault((standing.model, standing.scenario), []).append((standing.budget, standing.state))
    return found


def edit(one: Edit) -> tuple[str, str, str]:
    """Tell an edit: the setting, its values, and where it stands."""
    before, after = one.before or "unset", one.after or "removed"
    return one.setting, f"{before} → {after}", where(one.place) if one.place else ""


def where(place: Place) -> str:
    """Name a place."""
    return f"{place.file}:{place.line}" if place.line else place.file


def reasons(model: ReviewedModel, row: ReviewedScenario, figures: Mapping[str, str]) -> tuple[Reason, ...]:
    """Return what moved the given figures of a row, by the edits that moved them; figures have the names to be told by."""
    by_edits: dict[tuple[int, ...], list[tuple[str, str]]] = {}
    together: list[tuple[str, str]] = []
    for change in row.changes:
        if change.figure in figures:
            column, name = FIGURES[change.figure], figures[change.figure]
            for move in change.moves:
                by_edits.setdefault(move.edits, []).append((name, quantity.difference(column, move.by)))
            if change.together:
                together.append((name, quantity.difference(column, change.together)))
    alone = [Reason(tuple(model.edits[index] for index in edits), tuple(moves)) for edits, moves in sorted(by_edits.items())]
    return (*alone, Reason((), tuple(together))) if together else tuple(alone)


def moved_by(change: Change) -> str:
    """Say which edits moved a figure, by their numbers, and by how much each where there are several."""
    column = FIGURES[change.figure]
    if len(change.moves) == 1 and not change.together:
        return numbers(change.moves[0].edits)
    parts = [f"{numbers(move.edits)} {quantity.difference(column, move.by)}" for move in change.moves]
    return "; ".join([*parts, *([f"interaction {quantity.difference(column, change.together)}"] if change.together else [])])


def numbers(edits: tuple[int, ...]) -> str:
    """Return the numbers of edits as people count: ``1 and 2``."""
    return " and ".join(str(index + 1) for index in edits)


def finding(one: Finding) -> str:
    """Say a finding, whose model it is, its way out, and why it is waived if it is."""
    whose = f"{label(one.model, one.scenario or 'base')}: " if one.model else ""
    waived = f"; waived until {one.waiver.until}: {one.waiver.reason}" if one.waiver else ""
    return f"{whose}{one.message}{f'; {one.hint}' if one.hint else ''}{waived}"


def line(one: Finding) -> str:
    """Say a finding on a line of its own, as compilers do."""
    return f"{where(one.place)}: {one.severity}[{one.rule}]: {finding(one)}"


def waiver(model: str, one: Waiver) -> str:
    """Say a waiver."""
    return f"{model} may exceed {one.budget} until {one.until}: {one.reason}"


def formula(one: FormulaChange) -> str:
    """Say how a formula changed a figure of the same spec."""
    column = FIGURES[one.figure]
    before, after = quantity.pair(column, one.saved, one.recomputed)
    methods = f" ({one.saved_method or 'no method'} → {one.method})" if one.saved_method != one.method else f" ({one.method})"
    return f"{one.model} · {one.scenario}: {one.figure} {before} → {after}{methods}"
