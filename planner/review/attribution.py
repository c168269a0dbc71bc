"""Why metrics changed: the effect of each edit alone on the base; the rest of the change is their interaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from planner import capacity
from planner.capacity.figures import Plan
from planner.report import settings
from planner.report.columns import CLAIMABLE, FIGURES
from planner.review.review import Change, Edit, Figures, Move
from planner.spec.edits import REQUIREMENTS, Difference, differences, edited
from planner.spec.nodes import Node
from planner.spec.records import Place, Scenario, Spec


@dataclass(frozen=True, slots=True)
class Attribution:
    """The edits that have an effect, and the metrics of the base with each group of them alone."""

    edits: tuple[Edit, ...]
    alone: tuple[tuple[tuple[int, ...], Mapping[str, Figures]], ...]  # indices of edits, figures by scenario


@lru_cache(maxsize=64)  # the comparison and the budgets of a model share its plans
def plan(spec: Spec, scenario: Scenario) -> Plan:
    """Plan a scenario of a spec."""
    return capacity.plan(spec, scenario)


def figures(spec: Spec, scenarios: Iterable[str] | None = None) -> dict[str, Figures]:
    """Return the metrics of a spec's scenarios by name."""
    wanted = None if scenarios is None else set(scenarios)
    plans = (plan(spec, scenario) for scenario in spec.scenarios if wanted is None or scenario.name in wanted)
    return {one.scenario: {name: column.value(one) for name, column in CLAIMABLE.items()} for one in plans}


def same(one: Spec, other: Spec) -> bool:
    """Whether two specs have the same model, scenarios and serving, in any order and notation."""
    return one.model == other.model and set(one.scenarios) == set(other.scenarios) and one.serving == other.serving


def attribute(base: Spec, head: Spec, scenarios: Iterable[str], from_root: Callable[[str], str]) -> Attribution:
    """Return the edits from the base to the head, with their effects in the given scenarios."""
    if base.written is None or head.written is None:
        return Attribution((), ())
    trials = _Ablations(base, differences(base.written, head.written))
    relevant = [index for index in trials.all if len(trials.all) == 1 or trials.matters(index, head)]
    number = {index: place for place, index in enumerate(relevant)}
    edits = tuple(_edit(trials.every[index], base, head, from_root) for index in relevant)
    groups = [(tuple(number[index] for index in sorted(group)), spec) for group, spec in trials.groups(frozenset(relevant))]
    if len(groups) == 1:
        return Attribution(edits, ((groups[0][0], {}),))  # it has the whole effect: nothing to compute
    wanted = tuple(scenarios)
    return Attribution(edits, tuple((group, figures(spec, wanted)) for group, spec in sorted(groups, key=lambda one: one[0])))


def requirements(base: Spec, head: Spec, from_root: Callable[[str], str]) -> tuple[Edit, ...]:
    """Return the edits of tags, waivers and expect values, which change no metric."""
    if base.written is None or head.written is None:
        return ()
    return tuple(_edit(one, base, head, from_root) for one in differences(base.written, head.written, REQUIREMENTS))


Group = frozenset[int]  # indices of edits


class _Ablations:
    """Combinations of edits on the base, each read once."""

    def __init__(self, base: Spec, every: Sequence[Difference]) -> None:
        self.base = base
        self.every = every
        self.all = range(len(every))
        self.known: dict[Group, Spec | None] = {}

    def spec(self, group: Group) -> Spec | None:
        """Return the base with some edits; None if that is no valid spec."""
        if group not in self.known:
            self.known[group] = edited(self.base, [self.every[index] for index in sorted(group)])
        return self.known[group]

    def matters(self, index: int, head: Spec) -> bool:
        """Whether an edit has an effect: alone on the base, or missing from the head."""
        alone = self.spec(frozenset({index}))
        if alone is None or not same(alone, self.base):
            return True
        without = self.spec(frozenset(self.all) - {index})
        return without is None or not same(without, head)

    def groups(self, relevant: Group) -> list[tuple[Group, Spec]]:
        """Return small groups of edits, each edit in one of them, with the valid spec of the base and the group alone.

        An edit that is invalid alone joins another such edit, or a group, with which it is valid; otherwise all others like it. If that is
        invalid too, all edits are one group.
        """
        groups: dict[Group, Spec] = {}
        waiting: list[Group] = []
        for index in sorted(relevant):
            single = frozenset({index})
            if (alone := self.spec(single)) is None:
                waiting.append(single)
            else:
                groups[single] = alone
        while waiting:
            first, *waiting = waiting
            partner = next((other for other in (*waiting, *groups) if self.spec(first | other)), None)
            joined = first | partner if partner else first.union(*waiting)
            made = self.spec(joined)
            if made is None:
                whole = self.spec(relevant)
                return [] if whole is None else [(relevant, whole)]
            waiting = [other for other in waiting if not other <= joined]
            groups = {group: spec for group, spec in groups.items() if group != partner} | {joined: made}
        return list(groups.items())


def _edit(difference: Difference, before: Spec, after: Spec, from_root: Callable[[str], str]) -> Edit:
    """Return the edit to show: values as written, else the default, and the location."""
    values = _value(difference.before, before, difference), _value(difference.after, after, difference)
    return Edit(difference.setting, *values, _place(difference, from_root))


def _place(difference: Difference, from_root: Callable[[str], str]) -> Place | None:
    if difference.after is not None:
        place = difference.after.mark.place
        return replace(place, file=from_root(place.file))
    return None if difference.before is None else difference.before.mark.place


def _value(node: Node | None, spec: Spec, difference: Difference) -> str:
    if node is not None:
        return node.shown()
    section, _, key = difference.setting.partition(".")
    if difference.setting not in spec.defaulted or section not in ("model", "training", "cluster", "layout"):
        return ""
    known = settings.model(spec.model) if section == "model" else settings.training(spec.scenarios[0].training)
    if section in ("cluster", "layout"):
        known = settings.layout(spec.scenarios[0].training)[section]
    return f"{known[key]} (default)" if key in known else ""


def changes(before: Figures, after: Figures, scenario: str, moved: Attribution) -> tuple[Change, ...]:
    """Return the metrics that differ, with the contributions of edits."""
    return tuple(_change(name, before, after.get(name), scenario, moved) for name in FIGURES if before.get(name) != after.get(name))


def _change(name: str, base: Figures, after: int | None, scenario: str, moved: Attribution) -> Change:
    before = base.get(name)
    if before is None or after is None:
        return Change(name, before, after)
    if len(moved.alone) == 1:
        return Change(name, before, after, (Move(moved.alone[0][0], after - before),))
    alone = ((group, by_scenario.get(scenario, base).get(name)) for group, by_scenario in moved.alone)
    moves = tuple(Move(group, value - before) for group, value in alone if value is not None and value != before)
    return Change(name, before, after, moves, after - before - sum(move.by for move in moves))
