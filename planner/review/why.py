"""Why figures changed: each edit made alone on the base, and what is left of the change is what they do together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner import capacity
from planner.review.edits import Difference, differences, edited, told
from planner.review.records import FIGURES, Change, Edit, Figures, Move
from planner.spec.records import Spec

Differences = Sequence[Difference]


@dataclass(frozen=True, slots=True)
class Movers:
    """The edits that matter, and for groups of them what the base becomes by the group alone."""

    edits: tuple[Edit, ...]
    alone: tuple[tuple[tuple[int, ...], Mapping[str, Figures]], ...]  # indices of edits, figures by scenario


def figures(spec: Spec, scenarios: Iterable[str] | None = None) -> dict[str, Figures]:
    """Return the figures of a spec's scenarios by name."""
    wanted = None if scenarios is None else set(scenarios)
    plans = (capacity.plan(spec, scenario) for scenario in spec.scenarios if wanted is None or scenario.name in wanted)
    return {plan.scenario: {name: _integer(column.read(plan)) for name, column in FIGURES.items()} for plan in plans}


def _integer(cell: str | int | None) -> int | None:
    return cell if isinstance(cell, int) else None


def movers(base: Spec, head: Spec, scenarios: Iterable[str], from_root: Callable[[str], str]) -> Movers:
    """Return what moved the base to the head in the scenarios that both have."""
    if base.written is None or head.written is None:
        return Movers((), ())
    every = differences(base.written, head.written)
    relevant = every if len(every) == 1 else [one for one in every if _matters(one, every, base, head)]
    edits = tuple(told(one, base, head, from_root) for one in relevant)
    groups = _groups(base, relevant)
    if len(groups) == 1:
        return Movers(edits, ((groups[0][0], {}),))  # it did everything: nothing to compute
    wanted = tuple(scenarios)
    return Movers(edits, tuple((group, figures(spec, wanted)) for group, spec in groups))


def _matters(one: Difference, every: Differences, base: Spec, head: Spec) -> bool:
    """Whether an edit does anything: alone on the base, or missing from the head."""
    alone = edited(base, [one])
    if alone is None or not same(alone, base):
        return True
    without = edited(base, [other for other in every if other is not one])
    return without is None or not same(without, head)


def same(one: Spec, other: Spec) -> bool:
    """Whether two specs say the same model and the same training, however they are written."""
    return one.model == other.model and one.scenarios == other.scenarios


def _groups(base: Spec, relevant: Differences) -> list[tuple[tuple[int, ...], Spec]]:
    """Return small groups of edits, each edit in one of them, with the valid spec that a group alone makes of the base.

    An edit that makes an invalid spec alone joins another such edit, or a group, with which it makes a valid one; failing that, all others
    like it. Where that makes none either, all edits are one group.
    """
    groups: dict[tuple[int, ...], Spec] = {}
    waiting: list[int] = []
    for index, difference in enumerate(relevant):
        alone = edited(base, [difference])
        if alone is None:
            waiting.append(index)
        else:
            groups[index,] = alone
    while waiting:
        first = waiting.pop(0)
        for partner in [*((index,) for index in waiting), *groups]:
            joined = tuple(sorted((first, *partner)))
            made = edited(base, [relevant[index] for index in joined])
            if made is not None:
                groups.pop(partner, None)
                waiting = [index for index in waiting if index not in joined]
                groups[joined] = made
                break
        else:
            return _last_resort(base, relevant, groups, (first, *waiting))
    return sorted(groups.items(), key=lambda item: item[0])


def _last_resort(
    base: Spec, relevant: Differences, groups: dict[tuple[int, ...], Spec], rest: tuple[int, ...]
) -> list[tuple[tuple[int, ...], Spec]]:
    joint = edited(base, [relevant[index] for index in rest])
    if joint is not None:
        return [*groups.items(), (rest, joint)]
    whole = edited(base, relevant)
    return [] if whole is None else [(tuple(range(len(relevant))), whole)]


def changes(before: Figures, after: Figures, scenario: str, moved: Movers) -> tuple[Change, ...]:
    """Return the figures that differ, with the moves that explain them."""
    return tuple(_change(name, before, after.get(name), scenario, moved) for name in FIGURES if before.get(name) != after.get(name))


def _change(name: str, base: Figures, after: int | None, scenario: str, moved: Movers) -> Change:
    before = base.get(name)
    if before is None or after is None:
        return Change(name, before, after)
    if len(moved.alone) == 1:
        return Change(name, before, after, (Move(moved.alone[0][0], after - before),))
    moves = []
    for group, by_scenario in moved.alone:
        alone = by_scenario.get(scenario, base).get(name)
        if alone is not None and alone != before:
            moves.append(Move(group, alone - before))
    return Change(name, before, after, tuple(moves), after - before - sum(move.by for move in moves))
