"""Specs as written: the settings in which two differ, and the spec that some of these edits alone make of the first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from planner.spec.checks import check
from planner.spec.nodes import Node
from planner.spec.override import overridden, parse_overrides
from planner.spec.problems import Problem, SpecError
from planner.spec.records import Spec
from planner.spec.resolve import resolve
from planner.spec.settings import Document
from planner.spec.validate import validate

MODEL = ("model", "training", "cluster", "layout", "scenarios", "serving")  # what moves figures; the rest of a spec is words about it
REQUIREMENTS = ("tags", "waivers", "expect", "omits")  # what is checked, by which budgets, and what is not counted
_NAMED = (("scenarios",), ("budgets",))  # lists whose elements have names


@dataclass(frozen=True, slots=True)
class ByName:
    """A step into a list of mappings: the one with this name."""

    name: str


Step: TypeAlias = "str | int | ByName"
Path: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A location in the tree where two specs differ, and the values there; None: no value."""

    path: Path
    before: Node | None
    after: Node | None

    @property
    def setting(self) -> str:
        """The setting as the spec language names it: ``model.layers[0].count``, ``scenarios.long.batch_size``."""
        return "".join(f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in self.path).removeprefix(".")


def differences(before: Node, after: Node, sections: Iterable[str] = MODEL) -> tuple[Difference, ...]:
    """Return where sections of two documents differ as written, in the order of the later one; what is gone comes last."""
    found: list[Difference] = []
    for section in sections:
        found += _differences((section,), before.items().get(section), after.items().get(section))
    return tuple(found)


def _differences(path: Path, before: Node | None, after: Node | None) -> Iterator[Difference]:
    if path in _NAMED:
        yield from _entries(path, _by_name(before), _by_name(after))
    elif _is_mapping(before, after):
        yield from _entries(path, before.items() if before else {}, after.items() if after else {})
    elif before and after and isinstance(before.value, list) and isinstance(after.value, list) and len(before.value) == len(after.value):
        for index, (one, other) in enumerate(zip(before.value, after.value, strict=True)):
            yield from _differences((*path, index), one, other)
    elif _plain(before) != _plain(after):
        yield Difference(path, before, after)


def _entries(path: Path, before: dict[str, Node], after: dict[str, Node]) -> Iterator[Difference]:
    for key in (*after, *(key for key in before if key not in after)):
        step = ByName(key) if path in _NAMED else key
        inner = (*path, step)
        if isinstance(step, ByName) and (key not in before or key not in after):
            yield Difference(inner, before.get(key), after.get(key))
        else:
            yield from _differences(inner, before.get(key), after.get(key))


def _is_mapping(*nodes: Node | None) -> bool:
    """Whether the nodes that are there are mappings without a shorthand behind them."""
    return all(node is None or (isinstance(node.value, dict) and node.rest is None) for node in nodes)


def _by_name(named: Node | None) -> dict[str, Node]:
    elements = named.elements() if named else []
    return {str(node.items()["name"].value): node for node in elements}


def _plain(node: Node | None) -> object:
    return None if node is None else (node.plain(), node.rest and node.rest.plain())


def edited(base: Spec, chosen: Iterable[Difference]) -> Spec | None:
    """Return the spec that the base becomes by the chosen differences alone; None where that is no valid spec."""
    if base.written is None:
        return None
    document, problems = _checked(base.written, chosen)
    return None if problems else resolve(document, base.path)


def changed(spec: Spec, chosen: Iterable[Difference] = (), overrides: Iterable[str] = ()) -> Spec:
    """Return the spec with overrides, such as ``training.batch_size=16``, and differences. Raises SpecError and ValueError."""
    if spec.written is None:
        raise ValueError(f"{spec.name} was not read from a spec, so its settings cannot change")
    document, problems = _checked(overridden(spec.written, parse_overrides(overrides)), chosen)
    if problems:
        raise SpecError(problems)
    return resolve(document, spec.path)


def problems_of(base: Spec, chosen: Iterable[Difference]) -> tuple[Problem, ...]:
    """Return what is wrong with the spec that the base would become."""
    return _checked(base.written, chosen)[1] if base.written else ()


def _checked(root: Node, chosen: Iterable[Difference]) -> tuple[Document, tuple[Problem, ...]]:
    for difference in chosen:
        root = _laid(root, difference.path, difference.after)
    tree, problems = validate(root)
    document = Document(tree)
    return document, tuple(problems) or check(document)


def _laid(node: Node, path: Path, after: Node | None) -> Node:
    """Return a tree with something else at a path; mappings on the way are made where they are missing."""
    step, *rest = path
    inner = tuple(rest)
    if isinstance(step, str):
        items, keys = dict(node.items()), dict(node.keys)
        laid = after if not inner else _laid(items.get(step) or Node(node.mark, [] if isinstance(inner[0], ByName) else {}), inner, after)
        if laid is None:
            items.pop(step, None)
        else:
            items[step] = laid
            keys.setdefault(step, laid.mark)
        return replace(node, value=items, keys=keys)
    elements = list(node.elements())
    at = next((number for number, element in enumerate(elements) if _is_at(step, number, element)), len(elements))
    old = elements[at] if at < len(elements) else None
    new = after if not inner else _laid(old or Node(node.mark, {}), inner, after)
    elements[at : at + 1] = [] if new is None else [new]
    return replace(node, value=elements)


def _is_at(step: Step, number: int, element: Node) -> bool:
    if isinstance(step, ByName):
        name = element.items().get("name")
        return name is not None and name.value == step.name
    return step == number


def _name(step: Step) -> str:
    return step.name if isinstance(step, ByName) else str(step)
