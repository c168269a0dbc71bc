"""``planner.yaml``: the specs to review and their budgets, with errors reported as for specs."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Literal

from planner.report import quantity
from planner.report.columns import CLAIMABLE
from planner.report.quantity import Amount
from planner.review.review import Edit
from planner.spec.edits import Difference, differences
from planner.spec.nodes import UNREADABLE, Mark, Node, Source
from planner.spec.problems import Problem, SpecError
from planner.spec.records import Place, Spec
from planner.spec.source import decode, read_source, whole_file
from planner.spec.suggest import value_hint
from planner.spec.validate import validate
from planner.spec.yaml12 import parse

POLICY = "planner.yaml"  # at the root; no spec
SIZE_LABEL = "size_label"  # the name of the check of size labels, for waivers
POLICY_CHANGE = "policy_change"  # the rule of findings that a change of the policy itself would hide
SECTIONS = ("specs", "budgets", SIZE_LABEL, POLICY_CHANGE)
_LIMITS = ("max", "min", "max_increase")


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a budget, and its location."""

    kind: Literal["max", "min", "max_increase"]
    amount: Amount
    place: Place


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on a metric of some models; empty patterns match all."""

    name: str
    figure: str
    limits: tuple[Limit, ...]
    models: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    severity: Literal["error", "warning"] = "error"
    message: str = ""

    def covers(self, spec: Spec, scenario: str) -> bool:
        """Whether it applies to a scenario of a spec: the model's name, one of its tags and the scenario's name must all match."""
        named = not self.models or any(fnmatchcase(spec.name, pattern) for pattern in self.models)
        tagged = not self.tags or bool(set(self.tags) & set(spec.tags))
        return named and tagged and (not self.scenarios or any(fnmatchcase(scenario, pattern) for pattern in self.scenarios))


@dataclass(frozen=True, slots=True)
class Policy:
    """The contents of ``planner.yaml``; by default specs are in ``specs`` and the size in a name may be off by 10 %."""

    specs: tuple[str, ...] = ("specs",)
    budgets: tuple[Budget, ...] = ()
    label_tolerance: Fraction = Fraction(1, 10)
    label_severity: Literal["error", "warning", "off"] = "warning"
    change_severity: Literal["error", "warning"] = "error"  # of what only a change of the policy itself allows
    written: Node | None = field(default=None, compare=False)  # None: no file


def read(path: Path, name: str) -> tuple[Policy, tuple[Problem, ...]]:
    """Read a policy, with locations in a file of the given name, and its errors; without a file, the defaults.

    A link that leads out of the file's folder is an error and is not read.
    """
    if not path.is_file():
        return Policy(), ()
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(path.parent)):
        return Policy(), (whole_file(name, "outside", "leads outside the repository", "write the file itself"),)
    return parsed(name, path)


def parsed(name: str, content: Path | bytes) -> tuple[Policy, tuple[Problem, ...]]:
    """Return the policy in a file or in the bytes of one, and its errors; with errors, the defaults."""
    try:
        source = decode(name, content) if isinstance(content, bytes) else Source(name, read_source(str(content)).text)
        root, unread = parse(source)
    except SpecError as error:
        return Policy(), tuple(replace(one, place=replace(one.place, file=name)) for one in error.problems)
    tree, problems = validate(root, "policy")
    wrong = (*unread, *problems, *_problems(tree))
    return (Policy(), wrong) if wrong else (_policy(tree), ())


def edits(before: Policy, after: Policy) -> tuple[Edit, ...]:
    """Return the edits from one policy to another; a file that is missing has no settings."""
    old, new = (one.written or Node(Mark(Source("", ""), 0, 0), {}) for one in (before, after))
    return tuple(_edit(one) for one in differences(old, new, SECTIONS))


def _edit(one: Difference) -> Edit:
    before, after = (node.shown() if node else "" for node in (one.before, one.after))
    return Edit(one.setting, before, after, one.after.mark.place if one.after else None)


def unmatched(policy: Policy, specs: Collection[Spec], lost: Collection[str]) -> Iterator[Problem]:
    """Yield the lost paths, the patterns of budgets that match nothing, and the budgets that apply to none of the specs."""
    items = policy.written.items() if policy.written else {}
    paths = items["specs"].elements() if "specs" in items else []
    yield from (_unmatched("specs", one) for one in paths if os.path.normpath(str(one.value)) in lost)
    scenarios = [(spec, scenario.name) for spec in specs for scenario in spec.scenarios]
    for budget, node in zip(policy.budgets, items["budgets"].elements() if "budgets" in items else [], strict=True):
        patterns = [(key, one) for key in ("models", "tags", "scenarios") if key in node.items() for one in node.items()[key].elements()]
        terms = [(key, one, Budget("", "", (), **{key: (str(one.value),)})) for key, one in patterns]  # type: ignore[arg-type]  # of patterns
        unused = [_unmatched(key, one) for key, one, alone in terms if not any(alone.covers(*each) for each in scenarios)]
        yield from unused
        if not unused and not any(budget.covers(*each) for each in scenarios):
            name = node.items()["name"]
            yield name.mark.problem("unmatched", f"budget {budget.name} applies to no model", "correct its models, tags and scenarios")


def _unmatched(key: str, pattern: Node) -> Problem:
    return pattern.mark.problem("unmatched", f"'{pattern.value}' matches no {key[:-1]}", "correct or remove it")


def _problems(tree: Node) -> list[Problem]:
    """Check what the schema cannot: known metrics, valid amounts, unique names."""
    found: list[Problem] = []
    names: dict[str, int] = {SIZE_LABEL: 0}
    for budget in _budgets(tree):
        items = budget.items()
        found += _name_problem(items.get("name"), names)
        figure = items.get("figure")
        if figure is None or not isinstance(figure.value, str):
            continue
        if figure.value not in CLAIMABLE:
            hint = value_hint("figure", figure.value, figure.text, CLAIMABLE)
            found.append(figure.mark.problem("value", f"unknown metric '{figure.value}'", hint))
            continue
        for kind in _LIMITS:
            node = items.get(kind)
            if node is not None and node.value is not UNREADABLE:
                found += _amount_problem(kind, node, figure.value)
    label = tree.items().get(SIZE_LABEL)
    tolerance = label.items().get("tolerance") if label else None
    if tolerance is None or not isinstance(tolerance.value, str):
        return found
    if tolerance.value.endswith("%"):
        return [*found, *_amount_problem("max_increase", tolerance, "params_total")]
    message = f"invalid value '{tolerance.value}' for size_label.tolerance"
    return [*found, tolerance.mark.problem("amount", message, "use a percentage, e.g. 10%")]


def _name_problem(name: Node | None, names: dict[str, int]) -> list[Problem]:
    if name is None or not isinstance(name.value, str):
        return []
    line = names.setdefault(name.value, name.mark.line + 1)
    if line == name.mark.line + 1:
        return []
    whose = f"is also the name of the budget on line {line}" if line else "is reserved for the size-label check"
    return [name.mark.problem("duplicate-name", f"'{name.value}' {whose}", "budget names must be unique")]


def _amount_problem(kind: str, node: Node, figure: str) -> list[Problem]:
    unit = CLAIMABLE[figure].unit
    try:
        quantity.parse(node.text, unit, share=kind == "max_increase", bare=unit != "bytes" or node.value == 0)
    except ValueError as error:
        return [node.mark.problem("amount", f"invalid value '{node.text}' for {kind}", str(error))]
    return []


def _policy(tree: Node) -> Policy:
    items, default = tree.items(), Policy()
    label = items[SIZE_LABEL].items() if SIZE_LABEL in items else {}
    severity: Literal["error", "warning", "off"] = _text(label.get("severity")) or default.label_severity  # type: ignore[assignment]  # by the schema
    tolerance, change = _text(label.get("tolerance")), items.get(POLICY_CHANGE)
    return Policy(
        specs=_texts(items.get("specs")) or default.specs,
        budgets=tuple(map(_budget, _budgets(tree))),
        label_tolerance=quantity.parse(tolerance, "parameters", share=True).value if tolerance else default.label_tolerance,
        label_severity=severity,
        change_severity=_severity(change),
        written=tree,
    )


def _budget(node: Node) -> Budget:
    items = node.items()
    figure = _text(items["figure"])
    unit = CLAIMABLE[figure].unit
    limits = tuple(
        Limit(kind, quantity.parse(items[kind].text, unit, share=kind == "max_increase"), items[kind].mark.place)  # type: ignore[arg-type]
        for kind in _LIMITS
        if kind in items
    )
    return Budget(
        name=_text(items["name"]),
        figure=figure,
        limits=limits,
        models=_texts(items.get("models")),
        tags=_texts(items.get("tags")),
        scenarios=_texts(items.get("scenarios")),
        severity=_severity(node),
        message=_text(items.get("message")),
    )


def _budgets(tree: Node) -> list[Node]:
    written = tree.items().get("budgets")
    return written.elements() if written else []


def _severity(node: Node | None) -> Literal["error", "warning"]:
    """Return the severity under a mapping, error by default."""
    return "warning" if node and _text(node.items().get("severity")) == "warning" else "error"


def _text(node: Node | None) -> str:
    return str(node.value) if node else ""


def _texts(node: Node | None) -> tuple[str, ...]:
    return tuple(str(element.value) for element in node.elements()) if node else ()
