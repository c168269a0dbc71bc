"""The texts of a review that its formats share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TypeAlias

from planner.report import quantity, units
from planner.report.columns import FIGURES, OVERVIEW
from planner.report.overview import label
from planner.report.remedies import describe
from planner.report.terminal import PLAIN, Color, Style
from planner.review.policy import POLICY
from planner.review.review import Change, Edit, Finding, FormulaChange, Review, ReviewedModel, ReviewedScenario, Severity, Trend
from planner.spec.printable import printable
from planner.spec.records import Place, Waiver


@dataclass(frozen=True, slots=True)
class Cells:
    """A metric of a row: its values, empty where there is none and ``=`` after an equal one, and the change."""

    before: str
    after: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Some edits and their effects; ``edits`` is empty for the interaction of all edits."""

    edits: tuple[Edit, ...]
    moves: tuple[tuple[str, str], ...]  # metrics with their changes


_COLORS: Mapping[Severity, Color] = {"error": "red", "warning": "yellow", "waived": "green"}
_DONE = ("changed", "new", "removed", "renamed", "unreadable")


def summary(review: Review) -> str:
    """Count the models by status and the changes of the policy, in a sentence or two."""
    edits = f" {len(review.policy_edits)} {'change' if len(review.policy_edits) == 1 else 'changes'} of {POLICY}."
    return models(review) + (edits if review.policy_edits else "")


def models(review: Review) -> str:
    """Count the models by status, in a sentence."""
    counts = {done: sum(model.status == done for model in review.models) for done in _DONE}
    counted = [f"{number} {done}" for done, number in counts.items() if number]
    same = [model for model in review.models if model.status == "unchanged"]
    moved = sum(bool(model.moved_from) for model in same)
    if counted:
        return f"{', '.join(counted)} {'model' if len(review.changed) == 1 else 'models'}; {len(same)} unchanged."
    of_them = f" ({moved} moved to another file)" if moved else ""
    none = "No changes of models" if review.policy_edits else "No changes"
    models = "the only model matches" if len(same) == 1 else f"all {len(same)} models match"
    return f"{none}: {models} the base{of_them}." if same else "No changes: no models found."


def verdict(review: Review) -> str:
    """Count the findings by severity, in a sentence; empty if there are none."""
    counts = {kind: sum(finding.severity == kind for finding in review.findings) for kind in ("error", "warning", "waived")}
    names = {"error": ("finding", "findings"), "warning": ("warning", "warnings"), "waived": ("waived finding", "waived findings")}
    counted = [f"{number} {names[kind][number > 1]}" for kind, number in counts.items() if number]
    return f"{', '.join(counted)}." if counted else ""


def unchanged(review: Review) -> list[str]:
    """List the unchanged models, with their old path if they moved."""
    same = (model for model in review.models if model.status == "unchanged")
    return [f"{model.name} (moved from {model.moved_from})" if model.moved_from else model.name for model in same]


def status(model: ReviewedModel) -> str:
    """Describe the status of a model and its file."""
    name = {"unreadable": "cannot be read"}.get(model.status, str(model.status))
    if model.renamed_from:
        name = f"renamed{' and changed' if model.status == 'changed' else ''}, was {model.renamed_from}"
    moved = f", moved from {model.moved_from}" if model.moved_from else ""
    return f"{name}{moved}{f' ({model.note})' if model.note else ''}"


def headlines(review: Review) -> tuple[str, ...]:
    """Return the metrics of the overview: the parameters, and the others that changed in any row.

    Total training FLOPs are those per token times the tokens, and shown if the tokens changed.
    """
    rows = [row for model in review.changed for row in model.rows]
    changed = {change.figure for row in rows for change in row.changes}
    if any(row.status in ("new", "removed") for row in rows):
        changed |= set(OVERVIEW) - {"train_flops"}
    changed -= {"train_flops"} if "train_tokens" not in changed else set()
    return tuple(figure for figure in OVERVIEW if figure in changed or figure == "params_total")


def repeats(model: ReviewedModel, row: ReviewedScenario, figure: str) -> bool:
    """Whether a metric counts parameters and is that of the model's first row, before and after, so that a table can omit it."""
    first = model.rows[0] if model.rows else row
    sides = ((first.before, row.before), (first.after, row.after))
    same = all(one is other or (one and other and one.get(figure) == other.get(figure)) for one, other in sides)
    return row is not first and FIGURES[figure].unit == "parameters" and same


def own_changes(model: ReviewedModel, row: ReviewedScenario) -> list[Change]:
    """Return the changes of a row that its model's first row does not have already."""
    return [change for change in row.changes if not repeats(model, row, change.figure)]


def cells(row: ReviewedScenario, figure: str) -> Cells:
    """Format a metric of a row: before, after and the change."""
    column = FIGURES[figure]
    changed = next((one for one in row.changes if one.figure == figure), None)
    if changed is not None:
        return Cells(*quantity.pair(column, changed.before, changed.after), change(changed))
    before, after = (None if side is None else side.get(figure) for side in (row.before, row.after))
    if before == after:
        return Cells("", "") if before is None else Cells(quantity.rounded(column, before), "=")
    return Cells(*("" if value is None else quantity.rounded(column, value) for value in (before, after)))


def change(one: Change) -> str:
    """Format a change, absolute and in percent."""
    return quantity.change(FIGURES[one.figure], one.before, one.after)


BudgetStatuses: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[str, str]]]


def budget_statuses(review: Review) -> BudgetStatuses:
    """Return the budgets that apply to each model and scenario, each with its state."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for one in review.budget_statuses:
        found.setdefault((one.model, one.scenario), []).append((one.budget, one.state))
    return found


def edit(one: Edit) -> tuple[str, str, str]:
    """Describe an edit: the setting, its values, and its location."""
    before, after = one.before or "unset", one.after or "removed"
    return one.setting, f"{before} → {after}", where(one.place) if one.place else ""


def numbered(edits: Sequence[Edit]) -> list[str]:
    """Describe edits, with their numbers."""
    lines = ((number, *edit(one)) for number, one in enumerate(edits, 1))
    return [f"{number}. {setting} {values}{f', {place}' if place else ''}" for number, setting, values, place in lines]


def where(place: Place) -> str:
    """Format a location."""
    return f"{place.file}:{place.line}" if place.line else place.file


def reasons(model: ReviewedModel, row: ReviewedScenario, figures: Mapping[str, str]) -> tuple[Reason, ...]:
    """Return the causes of changes of the given metrics of a row; ``figures`` maps columns to the names to show."""
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
    """Name the edits that changed a metric by number, each with its contribution if there are several."""
    column = FIGURES[change.figure]
    if len(change.moves) == 1 and not change.together:
        return numbers(change.moves[0].edits)
    parts = [f"{numbers(move.edits)} {quantity.difference(column, move.by)}" for move in change.moves]
    return "; ".join([*parts, *([f"interaction {quantity.difference(column, change.together)}"] if change.together else [])])


def numbers(edits: tuple[int, ...]) -> str:
    """Format the numbers of edits, from 1: ``1 and 2``."""
    return " and ".join(str(index + 1) for index in edits)


def finding(one: Finding) -> str:
    """Describe a finding: its model, message, remedies, hint and waiver."""
    message, *rest = _parts(one)
    return "; ".join([message, *filter(None, [", ".join(remedies(one)), *rest])])


def sentences(one: Finding) -> list[str]:
    """Describe a finding in lines: its model and message, then a line per remedy, its hint and waiver."""
    message, *rest = _parts(one)
    return [message, *remedies(one), *rest]


def _parts(one: Finding) -> list[str]:
    model = f"{label(one.model, one.scenario or 'base')}: " if one.model else ""
    waived = f"waived until {one.waiver.until}: {one.waiver.reason}" if one.waiver else ""
    return [f"{model}{one.message}", *filter(None, (one.hint, waived))]


def remedies(one: Finding) -> list[str]:
    """Describe the remedies of a finding: ``to fit: recompute: full → 7.122 GiB``, ``or batch_size: 5 → 9.870 GiB``."""
    return [f"{'or' if number else 'to fit:'} {describe(remedy)}" for number, remedy in enumerate(one.remedies)]


def line(one: Finding, style: Style = PLAIN) -> str:
    """Format a finding as one line for a terminal or a log, as compilers do."""
    return f"{origin(one, style)}: {printable(finding(one))}"


def origin(one: Finding, style: Style) -> str:
    """Format the location, severity and rule of a finding for a terminal or a log."""
    rule = style.paint(printable(f"{one.severity}[{one.rule}]"), _COLORS[one.severity])
    return f"{style.bold(printable(where(one.place)))}: {rule}"


def trends(review: Review) -> list[str]:
    """Describe the trends, in a line per model and scenario."""
    lines = groupby(review.trends, lambda one: label(one.model, one.scenario))
    return [f"{name}: {'; '.join(map(_trend, those))}" for name, those in lines]


def _trend(one: Trend) -> str:
    column = FIGURES[one.figure]
    texts = [quantity.rounded(column, value) for value in one.values]
    hidden = any(before == after for before, after in pairwise(texts))
    return f"{column.heading} {' → '.join(map(units.exact, one.values) if hidden else texts)}"


def waiver(model: str, one: Waiver) -> str:
    """Describe a waiver."""
    return f"{model} may exceed {one.budget} until {one.until}: {one.reason}"


def formula(one: FormulaChange) -> str:
    """Describe how a formula update changed a metric of the same spec."""
    column = FIGURES[one.figure]
    before, after = quantity.pair(column, one.saved, one.recomputed)
    methods = f" ({one.saved_method or 'no method'} → {one.method})" if one.saved_method != one.method else f" ({one.method})"
    return f"{one.model} · {one.scenario}: {one.figure} {before} → {after}{methods}"
