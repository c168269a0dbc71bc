"""``--set model.n_layers=2``: values from the command line that override those of a spec."""

from __future__ import annotations

import re
from functools import partial, reduce
from itertools import combinations
from typing import TYPE_CHECKING

from planner.spec.nodes import REPLACES, Mark, Node, Source, merge
from planner.spec.problems import SpecError, quote
from planner.spec.yaml12 import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.spec.problems import Problem

_KEYS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def parse_override(argument: str) -> tuple[Node | None, tuple[Problem, ...]]:
    """Return the argument of one ``--set`` as a tree that overrides a spec, and its problems, located in the argument."""
    name = f"--set {argument}"
    keys, equals, value = argument.partition("=")
    start = Mark(Source(name, argument), 0, 0)
    if not equals or not _KEYS.fullmatch(keys):
        return None, (start.problem("override", f"expected KEY=VALUE, got {quote(argument)}", "for example training.batch_size=16"),)
    if len(argument.splitlines()) > 1:
        return None, (start.problem("override", "an override is one line", "put collections in brackets: {a: 1}"),)
    if keys == "extends":
        return None, (start.problem("override", "extends cannot be set here", "write it in a spec file"),)
    if not value.strip():
        return None, (start.problem("override", "missing value after '='", f"for example {keys}=1"),)
    source = Source(name, " " * (len(keys) + 1) + value)  # the value keeps its column in the argument
    source.lines = [argument]
    try:
        node, problems = parse(source)
    except SpecError as error:
        return None, error.problems
    column = len(keys)
    for key in reversed(keys.split(".")):
        column -= len(key)
        mark = Mark(start.source, 0, column)
        node = Node(mark, {key: node}, keys={key: mark})
        column -= 1
    return node, problems


def parse_overrides(arguments: Iterable[str]) -> tuple[Node, ...]:
    """Return the arguments of ``--set`` as trees. Raises SpecError."""
    parsed = [parse_override(argument) for argument in arguments]
    if problems := [problem for _, wrong in parsed for problem in wrong]:
        raise SpecError(problems)
    return tuple(tree for tree, _ in parsed if tree)


def clash(keys: Iterable[str]) -> str:
    """Return how the first two dotted keys clash: they set the same value, or the later one removes the other. Return "" if none do."""
    for key, later in combinations(keys, 2):
        section, _, name = later.rpartition(".")
        removed = {f"{section}.{rival}" for rival in REPLACES.get(name, ())}
        if key == later:
            return f"{key} is set twice"
        if f"{later}.".startswith(f"{key}.") or f"{key}.".startswith(f"{later}.") or key in removed:
            return f"{key} and {later} set the same value"
    return ""


def overridden(root: Node, overrides: tuple[Node, ...]) -> Node:
    """Return the tree with all overrides: they replace keys of the tree, but of each other only the same key, the last one wins."""
    return merge(root, reduce(partial(merge, replaces=False), overrides)) if overrides else root
