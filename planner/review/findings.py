"""Findings: exceeded budgets, failed expect values, wrong sizes in names; each with its location and a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from fractions import Fraction

from planner.capacity.figures import Plan
from planner.report import claims, quantity, time, units
from planner.report.columns import CLAIMABLE, RATES, SERVING_FIGURES, TIME
from planner.report.planned import Planned
from planner.report.remedies import find_remedies
from planner.review.policy import POLICY_CHANGE, SIZE_LABEL, Budget, Limit, Policy
from planner.review.review import BudgetStatus, Figures, Finding, Severity
from planner.spec.problems import Problem
from planner.spec.records import Place, Spec

REMEDIES = 25  # exceeded budgets of a review for which remedies are computed; each needs up to some dozens of plans
NAMED = 5  # scenarios with the same finding that its message names

_LABEL = re.compile(r"(?:^|[-_ /:])(a?)(\d{1,6}(?:[._]\d{1,3})?)([mb])(?=$|[-_ /:])", re.IGNORECASE)
_SIZES = {"m": 10**6, "b": 10**9}


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model to check against a policy: its plans, and its metrics at the base by scenario."""

    planned: Planned
    before: dict[str, Figures]
    places: dict[str, Place]  # of findings by metric, "" for all others; files are relative to the root
    base: Spec | None = None  # the spec at the base; the budgets of its name and tags apply under the policy of the base
    renamed: Mapping[str, str] = field(default_factory=dict)  # the old names of renamed scenarios by the new ones
    removed: Mapping[str, Plan | None] = field(default_factory=dict)  # scenarios only in the base, and what they would be; None: the same


def this_day() -> date:
    """Return the date in UTC, against which waivers are evaluated."""
    return datetime.now(UTC).date()


def findings(
    checked: Iterable[CheckedModel], policy: Policy, today: date, from_root: Callable[[str], str], base_policy: Policy | None = None
) -> tuple[tuple[Finding, ...], tuple[BudgetStatus, ...]]:
    """Return the findings about models, most severe first, and the status of each budget that applies to them."""
    found: list[Finding] = []
    statuses: dict[tuple[str, str, str], BudgetStatus] = {}
    for model in checked:
        remedies = sum(one.rule.startswith("budget:") for one in found) < REMEDIES
        these, states = _under(replace(model, base=None), policy, today, remedies=remedies)
        if base_policy is not None and base_policy.written is not None:
            hidden, own = _hidden(model, base_policy, today, these, remedies=remedies)
            these, states = [*these, *hidden], [*states, *own]
        statuses |= {(one.model, one.scenario, one.budget): one for one in states}
        found += [*_once(these), *_claims(model, from_root), *_unknown_waivers(model, policy, from_root)]
    return tuple(sorted(found, key=lambda one: _SEVERITIES.index(one.severity))), tuple(statuses.values())


def _once(found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings that differ only by scenario once, of the first scenario, with the names of the others."""
    alike: dict[Finding, list[Finding]] = {}
    for one in found:
        alike.setdefault(replace(one, scenario="", remedies=()), []).append(one)
    for first, *others in alike.values():
        same = [one for one in others if one.remedies in ((), first.remedies)]
        yield replace(first, message=f"{first.message}; the same in {_scenarios(same)}") if same else first
        yield from (one for one in others if one not in same)


def _scenarios(found: Sequence[Finding]) -> str:
    """Name the scenarios of findings: ``scenario long``, ``scenarios a, b``, or their number if there are many."""
    if len(found) > NAMED:
        return f"{len(found)} other scenarios"
    return f"scenario{'s' * (len(found) > 1)} {', '.join(one.scenario for one in found)}"


def _under(model: CheckedModel, policy: Policy, today: date, *, remedies: bool) -> tuple[list[Finding], list[BudgetStatus]]:
    """Return the findings of a model under a policy, and the status of each of its budgets."""
    spec = model.planned.spec
    found: list[Finding] = []
    statuses: list[BudgetStatus] = []
    for budget, plan, exceeded in _budgets(model, policy, remedies=remedies):
        these = [_waived(finding, spec, today) for finding in exceeded]
        worst = min((finding.severity for finding in these), key=_SEVERITIES.index, default=None)
        compared = any(_worth(limit, _before(model, plan, budget)) is not None for limit in budget.limits)
        statuses.append(BudgetStatus(spec.name, plan.scenario, budget.name, worst or ("kept" if compared else "unchecked")))
        found += these
    return [*found, *(_waived(finding, spec, today) for finding in _labels(model, policy))], statuses


def _hidden(
    model: CheckedModel, base_policy: Policy, today: date, reported: Iterable[Finding], *, remedies: bool
) -> tuple[list[Finding], list[BudgetStatus]]:
    """Return the findings under the policy of the base that are missing or less severe under the policy of the head."""
    known = {(one.rule, one.scenario, one.severity) for one in reported}
    whole = replace(model, planned=replace(model.planned, plans=(*model.planned.plans, *filter(None, model.removed.values()))))
    hidden = [one for one in _under(whole, base_policy, today, remedies=False)[0] if not _is_known(one, known)]
    if hidden and remedies:
        broken = tuple(budget for budget in base_policy.budgets if f"budget:{budget.name}" in {one.rule for one in hidden})
        ways = _under(whole, replace(base_policy, budgets=broken), today, remedies=True)[0]
        hidden = [one for one in ways if not _is_known(one, known)]
    found, states = [], []
    for one in hidden:
        severity = base_policy.change_severity if one.severity == "error" else one.severity
        message = f"{one.message}; allowed only {_because(one, model, base_policy)}"
        found.append(replace(one, rule=POLICY_CHANGE, severity=severity, message=message, hint=_SEPARATELY))
        if one.rule.startswith("budget:") and one.scenario not in model.removed:
            states.append(BudgetStatus(one.model, one.scenario, one.rule.removeprefix("budget:"), severity))
    return [*found, *_dropped(model, base_policy, {one.scenario for one in found})], states


def _is_known(one: Finding, known: Collection[tuple[str, str, Severity]]) -> bool:
    return any((one.rule, one.scenario, severity) in known for severity in _SEVERITIES[: _SEVERITIES.index(one.severity) + 1])


def _because(finding: Finding, model: CheckedModel, base_policy: Policy) -> str:
    """Return why a finding under the policy of the base is none under that of the head."""
    if finding.scenario in model.removed:
        return "because this scenario is removed"
    covering = [one for one in base_policy.budgets if finding.rule == f"budget:{one.name}"]
    was = model.renamed.get(finding.scenario)
    if was and not any(one.covers(spec, finding.scenario) for one in covering for spec in (model.planned.spec, model.base) if spec):
        return f"because the scenario {was} is renamed"
    return "by this change's own policy"


def _dropped(model: CheckedModel, base_policy: Policy, reported: Collection[str]) -> Iterator[Finding]:
    """Yield a warning for each removed scenario to which budgets of the base applied, unless it is reported already."""
    for scenario in model.removed:
        values = model.before.get(scenario)
        applied = (one for one in base_policy.budgets if values is None or values.get(one.figure) is not None)
        covering = [one.name for one in applied if model.base and one.covers(model.base, scenario)]
        if covering and scenario not in reported:
            message = f"scenario {scenario} is removed, to which budgets of the base applied: {', '.join(covering)}"
            yield Finding(POLICY_CHANGE, "warning", message, model.places[""], model.planned.spec.name, hint=_SEPARATELY)


_SEPARATELY = "change budgets, tags and scenarios in a separate pull request, or add a waiver"


_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "waived")


def of_problem(problem: Problem) -> Finding:
    """Return the finding for an error in a spec."""
    return Finding(problem.code, "error", problem.message, problem.place, hint=problem.hint)


def _budgets(model: CheckedModel, policy: Policy, *, remedies: bool) -> Iterator[tuple[Budget, Plan, list[Finding]]]:
    """Yield each budget that applies to a scenario, and whose metric has a value or had one, with the findings of its limits."""
    for plan in model.planned.plans:
        cases = [(model.planned.spec, plan.scenario)]
        cases += [(model.base, model.renamed.get(plan.scenario, plan.scenario))] if model.base else []
        for budget in policy.budgets:
            known = CLAIMABLE[budget.figure].read(plan) is not None or _before(model, plan, budget) is not None
            if known and any(budget.covers(*case) for case in cases):
                yield budget, plan, list(_exceeded(model, plan, budget, remedies=remedies))


def _exceeded(model: CheckedModel, plan: Plan, budget: Budget, *, remedies: bool) -> Iterator[Finding]:
    value = CLAIMABLE[budget.figure].read(plan)
    was = _before(model, plan, budget)
    if value is None:
        message = f"{budget.figure} has no value any more, so budget {budget.name} is not checked"
        yield Finding(f"budget:{budget.name}", "warning", message, model.places[""], plan.name, plan.scenario, budget.message)
    for limit in budget.limits:
        worth = _worth(limit, was)
        if worth is None or not isinstance(value, int) or (value >= worth if limit.kind == "min" else value <= worth):
            continue
        reduced = _reduced(budget.figure, limit, worth, plan) if remedies and plan.scenario not in model.removed else None
        ways = find_remedies(model.planned.spec, plan.scenario, *reduced, device=limit.kind == "max") if reduced else ()
        none = "no change of the training settings fits" if reduced and not ways and CLAIMABLE[budget.figure].unit == "bytes" else ""
        yield Finding(
            rule=f"budget:{budget.name}",
            severity=budget.severity,
            message=_message(budget, limit, value, worth, model.renamed.get(plan.scenario, "")) + _range(budget.figure, plan, value),
            place=model.places.get(budget.figure, model.places[""]),
            model=plan.name,
            scenario=plan.scenario,
            hint="; ".join(filter(None, (none, budget.message))),
            remedies=ways,
        )


def _reduced(figure: str, limit: Limit, worth: Fraction, plan: Plan) -> tuple[str, Fraction] | None:
    """Return the metric that remedies reduce, and its largest value; None for a least value, except of what a peak leaves free.

    Settings of training, which remedies change, do not change metrics of serving.
    """
    if figure in SERVING_FIGURES:
        return None
    if limit.kind != "min":
        return figure, worth
    return ("peak_bytes", plan.fleet.free_bytes + plan.memory.peak_bytes - worth) if figure == "free_bytes" and plan.fleet else None


def _before(model: CheckedModel, plan: Plan, budget: Budget) -> int | None:
    return model.before.get(plan.scenario, {}).get(budget.figure)


def _worth(limit: Limit, before: int | None) -> Fraction | None:
    """Return the limit of the metric; None if it is relative to a base that has no value."""
    if limit.kind != "max_increase":
        return limit.amount.value
    return None if before is None else before + limit.amount.of(before)


def _message(budget: Budget, limit: Limit, value: int, worth: Fraction, was: str) -> str:
    """Describe by how much a metric exceeds its limit, in a unit that shows it."""
    column = CLAIMABLE[budget.figure]
    whole = -(-worth.numerator // worth.denominator) if limit.kind == "min" else worth.numerator // worth.denominator
    actual, allowed = quantity.pair(column, value, whole)
    beyond = quantity.rounded(column, abs(value - whole))
    decimal = column.unit == "bytes" and not limit.amount.text.endswith(("iB", "bytes"))
    written = f"{limit.amount.text} = {allowed}" if decimal else limit.amount.text  # not powers of 1,000 beside GiB
    since = f" since scenario {was}" if was else ""
    what = {
        "max": f"exceeds budget {budget.name} ({written}) by {beyond}",
        "min": f"is below budget {budget.name} ({written}) by {beyond}",
        "max_increase": f"exceeds budget {budget.name} (an increase of {limit.amount.text}{since}, to {allowed}) by {beyond}",
    }[limit.kind]
    return f"{budget.figure} {actual} {what} ({limit.place.file}:{limit.place.line})"


def _range(figure: str, plan: Plan, value: int) -> str:
    """Return the range of an estimate, whose central value is checked, for the end of a message."""
    column = CLAIMABLE[figure]
    found = time.spread(plan, value, is_rate=figure in RATES) if column.method == TIME else None
    return f"; estimated, 80 % range {' to '.join(quantity.rounded(column, one) for one in found)}" if found else ""


def _claims(model: CheckedModel, from_root: Callable[[str], str]) -> Iterator[Finding]:
    for problem in claims.failed(model.planned):
        place = replace(problem.place, file=from_root(problem.place.file))
        yield replace(of_problem(problem), model=model.planned.spec.name, scenario="base", place=place)


def _labels(model: CheckedModel, policy: Policy) -> Iterator[Finding]:
    """Yield a finding if the size in a model's name (``7b``, ``124m``, ``a3b`` for active parameters) is not that of its parameters.

    It may differ by the tolerance, and by what rounding to its digits hides: ``1b`` is the name of 1.236 B.
    """
    if policy.label_severity == "off":
        return
    spec, base = model.planned.spec, model.planned.plans[0]
    seen = set()
    for active, number, unit in _LABEL.findall(spec.name):
        if active.lower() in seen:
            continue  # only the first size is the model's
        seen.add(active.lower())
        label = Fraction(number.replace("_", ".")) * _SIZES[unit.lower()]
        column = CLAIMABLE["params_active" if active else "params_total"]
        counted = column.read(base)
        rounding = Fraction(_SIZES[unit.lower()], 2 * 10 ** len(number.replace("_", ".").partition(".")[2]))
        if isinstance(counted, int) and abs(counted - label) > max(policy.label_tolerance * label, rounding):
            difference = f"{units.share(abs(counted - int(label)), int(label))} {'more' if counted > label else 'less'}"
            actual = f"{column.name} is {quantity.rounded(column, counted)} ({difference})"
            yield Finding(
                rule=SIZE_LABEL,
                severity=policy.label_severity,
                message=f"name suggests {active}{number}{unit}, but {actual}",
                place=model.places["name"],
                model=spec.name,
                scenario="base",
                hint="rename the model, or change its size",
            )


def _waived(finding: Finding, spec: Spec, today: date) -> Finding:
    """Return the finding, waived if a waiver of the spec applies; after its last day, with a hint that it expired."""
    waiver = next((one for one in spec.waivers if finding.rule in (f"budget:{one.budget}", one.budget)), None)
    if waiver is None:
        return finding
    if today > waiver.until:
        return replace(finding, hint="; ".join(filter(None, (f"its waiver expired on {waiver.until}", finding.hint))))
    return replace(finding, severity="waived", waiver=waiver)


def _unknown_waivers(model: CheckedModel, policy: Policy, from_root: Callable[[str], str]) -> Iterator[Finding]:
    spec, known = model.planned.spec, {budget.name for budget in policy.budgets}
    applying = {one.name for one in policy.budgets if any(one.covers(spec, scenario.name) for scenario in spec.scenarios)}
    for waiver in spec.waivers:
        if waiver.budget not in {SIZE_LABEL, *applying}:
            place = replace(waiver.place, file=from_root(waiver.place.file))
            what = "budget {!r}, which does not apply to this model" if waiver.budget in known else "unknown budget {!r}"
            message = f"waiver for {what.format(waiver.budget)}"
            hint = "remove it, or use a budget name from planner.yaml"
            yield Finding("waiver", "warning", message, place, spec.name, hint=hint)
