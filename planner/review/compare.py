"""Compare two snapshots: match models by name, find what changed and why, and check the budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date

from planner.report import omitted
from planner.report.columns import FIGURES, METHODS
from planner.report.planned import Planned
from planner.review import findings as rules
from planner.review import policy, scenarios
from planner.review.attribution import Attribution, attribute, changes, figures, plan, requirements, same
from planner.review.findings import CheckedModel
from planner.review.policy import Policy
from planner.review.review import Figures, FormulaChange, Review, ReviewedModel, ReviewedScenario, Status
from planner.review.snapshot import Snapshot
from planner.spec.edits import MODEL
from planner.spec.problems import Problem
from planner.spec.records import Place, Spec

_SECTIONS = tuple((section,) for section in MODEL if section != "scenarios")
LIKE = 0.5  # least share of equal settings in the shorter of two specs that are nearly equal


@dataclass(frozen=True, slots=True)
class Terms:
    """What a comparison needs besides the two snapshots."""

    policy: Policy
    today: date
    base: str  # what the base is, for people
    from_root: Callable[[str], str]  # the path of a file of the working tree
    notes: tuple[str, ...] = ()
    base_policy: Policy | None = None  # None: unknown or with errors
    unmatched: tuple[Problem, ...] = ()  # patterns of the policy


def compare(base: Snapshot, head: Snapshot, terms: Terms) -> Review:
    """Compare the head with the base."""
    unreadable = {problem.place.file for problem in head.problems}
    renamed = _renamed(base, head)
    broken = policy.POLICY in unreadable
    policy_edits = policy.edits(terms.base_policy, terms.policy) if terms.base_policy and not broken else ()
    policy_changed = terms.base_policy is None or broken or bool(policy_edits)
    models, checked = [], []
    for name in sorted({*base.specs, *head.specs, *(model for model, _ in base.saved)} - set(renamed.values())):
        old = base.specs.get(renamed.get(name, name))
        model = _model(name, old, head.specs.get(name), base, terms)
        if model.status == "removed" and model.path in unreadable:
            model = replace(model, status="unreadable", rows=(), note="the spec has errors on this branch")
        elif model.status == "new" and model.path in {problem.place.file for problem in base.problems}:
            model = replace(model, note="no comparison: the spec has errors at the base")
        models.append(replace(model, renamed_from=renamed.get(name, "")) if name in renamed else model)
        if name in head.specs and (model.status != "unchanged" or policy_changed or name not in base.specs):
            checked.append(_checked(head.specs[name], model, terms, old))
    findings, statuses = rules.findings(checked, terms.policy, terms.today, terms.from_root, terms.base_policy)
    warnings = (replace(rules.of_problem(problem), severity="warning") for problem in terms.unmatched)
    found = (*map(rules.of_problem, head.problems), *findings, *warnings)
    with_findings = {finding.model for finding in found}
    return Review(
        base=terms.base,
        models=tuple(sorted(models, key=lambda model: (model.name not in with_findings, model.status == "unchanged", model.name))),
        findings=found,
        budget_statuses=statuses,
        waivers=tuple((name, waiver) for name in sorted(head.specs) for waiver in head.specs[name].waivers),
        notes=(
            *terms.notes,
            *_left_out(models, head),
            *(f"{problem.place.file} has errors at the base: {problem.message}" for problem in base.problems),
        ),
        formulas=_formulas(base),
        policy_edits=policy_edits,
    )


def _left_out(models: Iterable[ReviewedModel], head: Snapshot) -> Iterator[str]:
    """Yield what the figures of the models that a review shows leave out."""
    shown = [model.name for model in models if model.status != "unchanged" and model.name in head.specs]
    yield from omitted.of_specs([head.specs[name] for name in shown])
    if shown:
        yield omitted.UNPADDED


def _renamed(base: Snapshot, head: Snapshot) -> dict[str, str]:
    """Return the old names of renamed models by the new ones.

    Models are matched if they are otherwise unchanged and the match is unambiguous, or else if they are in the same file or nearly equal.
    A model whose file has errors on the other side is not matched.
    """
    unread, unread_before = ({problem.place.file for problem in side.problems} for side in (head, base))
    gone = [spec for name, spec in base.specs.items() if name not in head.specs and spec.path not in unread]
    come = [spec for name, spec in head.specs.items() if name not in base.specs and spec.path not in unread_before]
    every = [(new, old) for new in come for old in gone] if len(come) * len(gone) <= scenarios.PAIRS else []
    pairs = [(new.name, old.name) for new, old in every if same(new, old)]
    news, olds = Counter(new for new, _ in pairs), Counter(old for _, old in pairs)
    matched = {new: old for new, old in pairs if news[new] == olds[old] == 1}
    written = {spec.name: _written(spec) for spec in (*come, *gone)}
    ranked = sorted((new.path != old.path, -len(written[new.name] & written[old.name]), new.name, old.name) for new, old in every)
    for elsewhere, shared, name, was in ranked:
        like = -shared >= LIKE * min(len(written[name]), len(written[was]))
        if (like or not elsewhere) and name not in news and was not in olds:
            news[name], olds[was], matched[name] = 1, 1, was
    return matched


def _written(spec: Spec) -> set[tuple[object, object]]:
    """Return the settings of the model, its training and serving, with their values as written."""
    nodes = spec.written.walk() if spec.written else ()
    return {(path, node.text) for path, node in nodes if path[:1] in _SECTIONS and node.text}


def _model(name: str, old: Spec | None, new: Spec | None, base: Snapshot, terms: Terms) -> ReviewedModel:
    if old is not None and new is not None:
        moved = old.path if old.path != new.path and not base.saved else ""  # a saved report has other paths
        if same(old, new):
            edits = requirements(old, new, terms.from_root)
            status: Status = "renamed" if old.name != new.name else "changed" if edits else "unchanged"
            return ReviewedModel(name, status, new.path, edits=edits, moved_from=moved)
        return _changed(name, old, new, moved, terms)
    saved = {scenario: values for (model, scenario), values in base.saved.items() if model == name}
    before = figures(old) if old else saved
    after = figures(new) if new else {}
    rows = tuple(_row(scenario, before.get(scenario), after.get(scenario), Attribution((), ())) for scenario in {**after, **before})
    if old is None and new is not None and saved:
        status = "changed" if any(row.status != "unchanged" for row in rows) else "unchanged"
        note = "the saved report contains its metrics but not its spec, so they were not recomputed"
        return ReviewedModel(name, status, new.path, rows, note=note)
    return ReviewedModel(name, "new" if new else "removed", new.path if new else old.path if old else "", rows)


def _changed(name: str, old: Spec, new: Spec, moved: str, terms: Terms) -> ReviewedModel:
    was = {one.name: one.training for one in old.scenarios}
    touched = {one.name for one in new.scenarios if new.model != old.model or was.get(one.name) != one.training}
    touched |= {new.scenarios[0].name} if new.serving != old.serving else set()
    gone = [one.name for one in old.scenarios if one.name not in {other.name for other in new.scenarios}]
    before, after = figures(old, {*touched, *gone}), figures(new, touched)
    shared = [scenario for scenario in after if scenario in before]
    moved_by = attribute(old, new, shared, terms.from_root)
    rows = tuple(_row(scenario, before.get(scenario), after.get(scenario), moved_by) for scenario in [*after, *gone])
    return ReviewedModel(name, "changed", new.path, rows, (*moved_by.edits, *requirements(old, new, terms.from_root)), moved)


def _row(scenario: str, before: Figures | None, after: Figures | None, moved: Attribution) -> ReviewedScenario:
    if before is None or after is None:
        return ReviewedScenario(scenario, "new" if before is None else "removed", before, after)
    found = changes(before, after, scenario, moved)
    return ReviewedScenario(scenario, "changed" if found else "unchanged", before, after, found)


def _checked(spec: Spec, model: ReviewedModel, terms: Terms, base: Spec | None) -> CheckedModel:
    before = {row.scenario: row.before for row in model.rows if row.before is not None}
    planned = Planned(spec, tuple(plan(spec, scenario) for scenario in spec.scenarios))
    if model.status in ("unchanged", "renamed"):
        before = figures(spec)
    for scenario in spec.scenarios:  # a scenario without a row is unchanged
        if model.status == "changed" and scenario.name not in {row.scenario for row in model.rows}:
            before |= figures(spec, {scenario.name})
    renamed = scenarios.renamed(base, spec) if base else {}
    before |= {name: before[was] for name, was in renamed.items()}
    removed = scenarios.removed(base, spec, renamed) if base else {}
    return CheckedModel(planned, before, _places(spec, model, terms), base, renamed, removed)


def _places(spec: Spec, model: ReviewedModel, terms: Terms) -> dict[str, Place]:
    """Return the location of a finding about a metric: the edit that changed it most, else the model."""
    name = spec.places["name",]
    places = dict.fromkeys(("", "name"), replace(name, file=terms.from_root(name.file)))
    for row in reversed(model.rows):
        for change in row.changes:
            moves = sorted(change.moves, key=lambda move: -move.by)
            place = model.edits[moves[0].edits[0]].place if moves else None
            if place is not None and model.edits[moves[0].edits[0]].after:
                places[change.figure] = place
    return places


def _formulas(base: Snapshot) -> tuple[FormulaChange, ...]:
    """Return the metrics of a saved report that differ when its specs are recomputed with this version."""
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
