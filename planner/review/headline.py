"""The headline of a review, one sentence with totals, and what its author would do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from planner.report import quantity, units
from planner.report.columns import FIGURES, OVERVIEW
from planner.review import wording
from planner.review.policy import POLICY, SIZE_LABEL
from planner.review.review import Review, ReviewedModel, ReviewedScenario

FIRST = ("params_total", "peak_bytes")  # the metrics that matter most
_FILES = 3  # that the next steps name


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do, and the text to add to a file, if any."""

    what: str
    code: str = ""


def headline(review: Review) -> str:
    """Return one sentence: what the changes add and remove over all models, and the budgets that are broken.

    Parameters are counted once per model, other metrics once per scenario that has both sides. Other scenarios are counted.
    """
    figures = _figures(review)
    changed, new, removed = (
        [model for model in review.changed if model.status in these] for these in (("changed", "renamed"), ("new",), ("removed",))
    )
    grown, shrunk = _moved(changed, figures, 1), _moved(changed, figures, -1)
    clauses = [
        *([f"adds {grown[0]} to {grown[1]}"] if grown else []),
        *([f"removes {shrunk[0]} from {shrunk[1]}"] if shrunk else []),
        *_whole(new, "new model", 1, figures),
        *_whole(removed, "removed model", -1, figures),
        *_scenarios(changed),
        *_others(review, [model for model in changed if not any(_differences(model, figure) for figure in figures)]),
        *([f"{_count(len(review.policy_edits), 'change')} of {POLICY}"] if review.policy_edits else []),
        *_budgets(review),
    ]
    sentence = "; ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _figures(review: Review) -> Sequence[str]:
    """Return the most important metrics; if none of them changed, the first one of the overview that did."""
    moved = {figure for figure in OVERVIEW for model in review.changed if _differences(model, figure)}
    return [figure for figure in FIRST if figure in moved] or [figure for figure in OVERVIEW if figure in moved][:1]


def _differences(model: ReviewedModel, figure: str) -> list[int]:
    """Return by how much a metric of a model changed in its scenarios; parameters, which scenarios share, only once."""
    whole = model.status in ("new", "removed")
    found = [by for row in model.rows if (whole or row.status not in ("new", "removed")) and (by := _difference(row, figure))]
    return found[:1] if FIGURES[figure].unit == "parameters" else found


def _difference(row: ReviewedScenario, figure: str) -> int:
    before, after = (0 if side is None else side.get(figure) for side in (row.before, row.after))
    return 0 if before is None or after is None else after - before


def _moved(models: Iterable[ReviewedModel], figures: Sequence[str], sign: int) -> tuple[str, str] | None:
    """Return the sum of each metric over its changes of one sign, and the number of models; None without any."""
    by_model = [[[by for by in _differences(model, figure) if by * sign > 0] for figure in figures] for model in models]
    moved = [of_model for of_model in by_model if any(of_model)]
    amounts = (_amount(figure, changes) for figure, changes in zip(figures, zip(*moved, strict=True), strict=False) if any(changes))
    return (" and ".join(amounts), _count(len(moved), "model")) if moved else None


def _amount(figure: str, of_models: Sequence[Sequence[int]]) -> str:
    """Format the sum of a metric's changes, with the number of scenarios if models have several."""
    column, changes = FIGURES[figure], [by for of_model in of_models for by in of_model]
    amount = quantity.rounded(column, abs(sum(changes)))
    scenarios = f" ({len(changes)} scenarios)" if max(map(len, of_models)) > 1 else ""
    return f"{amount} {column.heading}" if column.unit == "parameters" else f"{amount} of {column.heading}{scenarios}"


def _whole(models: Sequence[ReviewedModel], noun: str, sign: int, figures: Sequence[str]) -> Iterator[str]:
    if models:
        moved = _moved(models, figures, sign)
        yield _count(len(models), noun) + (f" with {moved[0]}" if moved else "")


def _scenarios(models: Iterable[ReviewedModel]) -> Iterator[str]:
    """Yield how many scenarios models gained and lost."""
    for status, verb, where in (("new", "adds", "to"), ("removed", "removes", "from")):
        counts = [number for model in models if (number := sum(row.status == status for row in model.rows))]
        if counts:
            yield f"{verb} {_count(sum(counts), 'scenario')} {where} {_count(len(counts), 'model')}"


def _others(review: Review, models: Sequence[ReviewedModel]) -> Iterator[str]:
    """Yield what happened to the models of which no metric of the headline changed."""
    models = [model for model in models if not any(row.status in ("new", "removed") for row in model.rows)]
    elsewhere = sum(any(row.changes for row in model.rows) for model in models)
    renamed = sum(model.status == "renamed" for model in models)
    unreadable = sum(model.status == "unreadable" for model in review.models)
    if elsewhere:
        yield f"changes other metrics of {_count(elsewhere, 'model')}"
    if renamed:
        yield f"renames {_count(renamed, 'model')}"
    if len(models) > elsewhere + renamed:
        yield f"changes no metric of {_count(len(models) - elsewhere - renamed, 'model')}"
    if unreadable:
        yield f"{_count(unreadable, 'model')} cannot be read"
    if not review.changed:
        yield wording.models(review).removesuffix(".")


def _budgets(review: Review) -> Iterator[str]:
    for state, how in (("error", "broken"), ("warning", "broken (warning)"), ("waived", "waived")):
        if names := {one.budget for one in review.budget_statuses if one.state == state}:
            yield f"{_count(len(names), 'budget')} {how}"


def _count(number: int, noun: str) -> str:
    return f"{units.exact(number)} {noun}{'' if number == 1 else 's'}"


def next_steps(review: Review) -> tuple[Step, ...]:
    """Return what one would do about the findings that fail the review, a step per file; empty if there are none."""
    paths = {model.name: model.path for model in review.models}
    waivable: dict[str, dict[str, None]] = {}
    suggested = set()
    for one in review.findings:
        if one.severity == "error":
            file = paths.get(one.model, one.place.file)
            budgets = waivable.setdefault(file, {})
            suggested |= {file} if one.remedies or one.hint else set()
            if one.rule.startswith("budget:") or one.rule == SIZE_LABEL:
                budgets[one.rule.removeprefix("budget:")] = None
    steps = [_step(f"Fix {file}{' as suggested' if file in suggested else ''}", budgets) for file, budgets in [*waivable.items()][:_FILES]]
    more = [Step(f"Fix {_count(len(waivable) - _FILES, 'more file')}.")] if len(waivable) > _FILES else []
    return (*steps, *more, Step("Check again with", "planner diff")) if steps else ()


def _step(fix: str, budgets: Iterable[str]) -> Step:
    waivers = ", ".join(f"{{budget: {name}, reason: WHY, until: YYYY-MM-DD}}" for name in budgets)
    return Step(f"{fix}, or add to it", f"waivers: [{waivers}]") if waivers else Step(f"{fix}.")
