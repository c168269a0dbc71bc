"""Two sides against each other: models matched by name, what changed in each, why, and whether it is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date

from planner.report.columns import FIGURES, METHODS
from planner.report.planned import Planned
from planner.review import findings as rules
from planner.review.attribution import Attribution, attribute, changes, figures, plan, same
from planner.review.findings import CheckedModel
from planner.review.policy import Policy
from planner.review.review import Figures, Finding, FormulaChange, Review, ReviewedModel, ReviewedScenario, Status
from planner.review.snapshot import Snapshot
from planner.spec.records import Place, Spec


@dataclass(frozen=True, slots=True)
class Terms:
    """What a comparison goes by besides the two sides."""

    policy: Policy
    policy_changed: bool
    today: date
    base: str  # what the base is, for people
    from_root: Callable[[str], str]  # how a file of the work tree is named
    notes: tuple[str, ...] = ()


def compare(base: Snapshot, head: Snapshot, terms: Terms) -> Review:
    """Return the review of the head against the base."""
    unreadable = {problem.place.file for problem in head.problems}
    renamed = _renamed(base, head)
    models, held = [], []
    for name in sorted({*base.specs, *head.specs, *(model for model, _ in base.saved)} - set(renamed.values())):
        old = base.specs.get(renamed.get(name, name))
        model = _model(name, old, head.specs.get(name), base, terms)
        if model.status == "removed" and model.path in unreadable:
            model = replace(model, status="unreadable", rows=(), note="the spec has errors on this branch")
        elif model.status == "new" and model.path in {problem.place.file for problem in base.problems}:
            model = replace(model, note="no comparison: the spec has errors at the base")
        models.append(replace(model, renamed_from=renamed.get(name, "")) if name in renamed else model)
        if name in head.specs and _is_held(model, base, head, terms):
            held.append(_held(head.specs[name], model, terms))
    broken, standings = rules.findings(held, terms.policy, terms.today, terms.from_root)
    found = (*map(rules.of_problem, head.problems), *broken)
    return Review(
        base=terms.base,
        models=tuple(sorted(models, key=lambda model: _rank(model, found))),
        findings=found,
        standings=standings,
        waivers=rules.waivers(head.specs[name] for name in sorted(head.specs)),
        notes=(*terms.notes, *_base_notes(base)),
        formulas=_formulas(base),
    )


def _renamed(base: Snapshot, head: Snapshot) -> dict[str, str]:
    """Return new names with the old ones of models that are otherwise as they were, where there is no doubt which is which."""
    unreadable = {problem.place.file for problem in head.problems}
    gone = [spec for name, spec in base.specs.items() if name not in head.specs and spec.path not in unreadable]
    come = [spec for name, spec in head.specs.items() if name not in base.specs]
    pairs = [(new, old) for new in come for old in gone if same(new, old)] if len(come) * len(gone) <= 10**6 else []
    return {
        new.name: old.name for new, old in pairs if sum(one is new for one, _ in pairs) == 1 and sum(one is old for _, one in pairs) == 1
    }


def _model(name: str, old: Spec | None, new: Spec | None, base: Snapshot, terms: Terms) -> ReviewedModel:
    if old is not None and new is not None:
        moved = old.path if old.path != new.path else ""
        if same(old, new):
            status: Status = "unchanged" if old.name == new.name else "renamed"
            return ReviewedModel(name, status, new.path, moved_from="" if _is_saved(base) else moved)
        return _changed(name, old, new, moved="" if _is_saved(base) else moved, terms=terms)
    saved = {scenario: values for (model, scenario), values in base.saved.items() if model == name}
    before = figures(old) if old else saved
    after = figures(new) if new else {}
    rows = tuple(_row(scenario, before.get(scenario), after.get(scenario), Attribution((), ())) for scenario in {**after, **before})
    if old is None and new is not None and saved:
        status = "changed" if any(row.status != "unchanged" for row in rows) else "unchanged"
        return ReviewedModel(
            name, status, new.path, rows, note="the saved report contains its metrics but not its spec, so they were not recomputed"
        )
    return ReviewedModel(name, "new" if new else "removed", new.path if new else old.path if old else "", rows)


def _is_saved(base: Snapshot) -> bool:
    return bool(base.saved)


def _changed(name: str, old: Spec, new: Spec, moved: str, terms: Terms) -> ReviewedModel:
    was = {one.name: one.training for one in old.scenarios}
    touched = {one.name for one in new.scenarios if new.model != old.model or was.get(one.name) != one.training}
    gone = [one.name for one in old.scenarios if one.name not in {other.name for other in new.scenarios}]
    before, after = figures(old, {*touched, *gone}), figures(new, touched)
    shared = [scenario for scenario in after if scenario in before]
    moved_by = attribute(old, new, shared, terms.from_root)
    rows = tuple(_row(scenario, before.get(scenario), after.get(scenario), moved_by) for scenario in [*after, *gone])
    return ReviewedModel(name, "changed", new.path, rows, moved_by.edits, moved)


def _row(scenario: str, before: Figures | None, after: Figures | None, moved: Attribution) -> ReviewedScenario:
    if before is None or after is None:
        return ReviewedScenario(scenario, "new" if before is None else "removed", before, after)
    found = changes(before, after, scenario, moved)
    return ReviewedScenario(scenario, "changed" if found else "unchanged", before, after, found)


def _is_held(model: ReviewedModel, base: Snapshot, head: Snapshot, terms: Terms) -> bool:
    """Whether a model is held against the policy: it changed, or what is claimed, waived or demanded of it did."""
    if model.status != "unchanged" or terms.policy_changed:
        return True
    old = base.specs.get(model.name)
    return old is None or _demands(old) != _demands(head.specs[model.name])


def _demands(spec: Spec) -> tuple[object, ...]:
    claims = [(claim.figure, claim.value) for claim in spec.claims]
    return claims, [(waiver.budget, waiver.until) for waiver in spec.waivers], spec.tags


def _held(spec: Spec, model: ReviewedModel, terms: Terms) -> CheckedModel:
    before = {row.scenario: row.before for row in model.rows if row.before is not None}
    planned = Planned(spec, tuple(plan(spec, scenario) for scenario in spec.scenarios))
    if model.status in ("unchanged", "renamed"):
        before = figures(spec)
    for scenario in spec.scenarios:  # a scenario without a row is as it was
        if model.status == "changed" and scenario.name not in {row.scenario for row in model.rows}:
            before |= figures(spec, {scenario.name})
    return CheckedModel(planned, before, _places(spec, model, terms))


def _places(spec: Spec, model: ReviewedModel, terms: Terms) -> dict[str, Place]:
    """Return where a finding about a figure is shown: at the edit that moved it most, else at the model."""

    def named(place: Place) -> Place:
        return replace(place, file=terms.from_root(place.file))

    places = {"": named(spec.places["name",]), "name": named(spec.places["name",])}
    for row in reversed(model.rows):
        for change in row.changes:
            moves = sorted(change.moves, key=lambda move: -move.by)
            place = model.edits[moves[0].edits[0]].place if moves else None
            if place is not None and model.edits[moves[0].edits[0]].after:
                places[change.figure] = place
    return places


def _rank(model: ReviewedModel, found: tuple[Finding, ...]) -> tuple[bool, bool, str]:
    return model.name not in {finding.model for finding in found}, model.status == "unchanged", model.name


def _base_notes(base: Snapshot) -> list[str]:
    return [f"{problem.place.file} has errors at the base: {problem.message}" for problem in base.problems]


def _formulas(base: Snapshot) -> tuple[FormulaChange, ...]:
    """Return the figures of a saved report that come out otherwise when its specs are computed with today's code."""
    found = []
    for spec in base.specs.values():
        saved = {scenario: values for (model, scenario), values in base.saved.items() if model == spec.name}
        for scenario, now in (figures(spec, saved) if saved else {}).items():
            for name in FIGURES:
                was = saved[scenario].get(name)
                if name in saved[scenario] and was != now[name]:
                    old = base.methods.get((spec.name, scenario), {}).get(name, "")
                    found.append(FormulaChange(spec.name, scenario, name, was, now[name], old, METHODS.get(name, "")))
    return tuple(found)
