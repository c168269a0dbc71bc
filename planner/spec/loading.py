"""From what the user named to specs and problems: every problem of every file, once."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import chain, starmap
from typing import TYPE_CHECKING

from planner.spec.checks import check
from planner.spec.extend import extended
from planner.spec.find import find, find_file
from planner.spec.nodes import Source
from planner.spec.override import overridden, parse_override, parse_overrides
from planner.spec.problems import Problem, SpecError, quote
from planner.spec.resolve import resolve
from planner.spec.settings import Document
from planner.spec.source import identity, read_source, whole_file
from planner.spec.validate import validate
from planner.spec.yaml12 import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from planner.spec.nodes import Node
    from planner.spec.records import Spec

    Convert = Callable[[Source], Source]  # raises SpecError

MAX_PROBLEMS = 100  # reported per file


def _unchanged(source: Source) -> Source:
    return source


def load(path: str | os.PathLike[str], overrides: Iterable[str] = (), *, convert: Convert = _unchanged) -> Spec:
    """Read the spec at ``path``, with overrides as for ``read``: a file, a name of the catalog, or ``-`` for standard input.

    Raises SpecError, which holds every problem with its place.
    """
    return _only(_Reading(parse_overrides(overrides), convert), find_file(os.fspath(path)))


def load_text(text: str, overrides: Iterable[str] = (), name: str = "<mapping>", *, convert: Convert = _unchanged) -> Spec:
    """Read a spec from a text; ``extends`` in it is relative to the working directory. Raises SpecError."""
    tree, problems = parse(convert(Source(name, text)))
    if problems:
        raise SpecError(problems)
    reading = _Reading(parse_overrides(overrides), _unchanged)
    reading.trees[identity(name)] = tree
    return _only(reading, name)


def _only(reading: _Reading, file: str) -> Spec:
    specs, problems = reading.read([file])
    if problems:
        raise SpecError(problems)
    return specs[0]


def read(
    paths: Iterable[str | os.PathLike[str]], overrides: Iterable[str] = (), *, convert: Convert = _unchanged
) -> tuple[tuple[Spec, ...], tuple[Problem, ...]]:
    """Read the specs that ``paths`` name: files, folders, globs, and ``-`` for standard input.

    ``overrides`` are arguments such as ``training.batch_size=16``, laid on top of every spec. ``convert`` turns a file that is not a spec
    into one. Returns the specs without problems, in the order of the paths, and all problems of all files. Nothing is raised for bad input.
    """
    files, problems = find(paths)
    parsed = [parse_override(argument) for argument in overrides]
    problems += tuple(problem for _, wrong in parsed for problem in wrong)
    trees = tuple(tree for tree, wrong in parsed if tree and not wrong)
    specs, found = _Reading(trees, convert).read(files)
    return specs if len(trees) == len(parsed) else (), problems + found


class _Reading:
    """One run's files, each read and parsed once, however many specs extend it."""

    def __init__(self, overrides: tuple[Node, ...], convert: Convert) -> None:
        self.overrides = overrides
        self.convert = convert
        self.trees: dict[str, Node | SpecError] = {}  # by the file itself, however it is named
        self.misread: set[str] = set()  # files that have a tree, but not all of it as written
        self.names: dict[str, str] = {}  # which spec has a name, as file:line
        self.problems: dict[str, list[Problem]] = {tree.mark.source.file: [] for tree in overrides}  # by file

    def read(self, files: Sequence[str]) -> tuple[tuple[Spec, ...], tuple[Problem, ...]]:
        """Return the specs of files, and all problems by file and line."""
        for file in files:  # first of all, so that a file that others extend goes by the name that the user gave it
            self.problems[file] = []
            with suppress(SpecError):
                self._tree(file)
        specs = tuple(spec for file in files if (spec := self._spec(file)))
        return specs, tuple(chain.from_iterable(starmap(_told, self.problems.items())))

    def _tree(self, file: str) -> Node:
        """Return a file's tree, its problems noted; raises SpecError where it has none."""
        key = identity(file)
        if key not in self.trees:
            try:
                self.trees[key], problems = parse(self.convert(read_source(file)))
                self._note(problems)
                if problems:
                    self.misread.add(file)
            except SpecError as error:
                self.trees[key] = error
        tree = self.trees[key]
        if isinstance(tree, SpecError):
            raise tree
        return tree

    def _spec(self, file: str) -> Spec | None:
        """Return the spec of a file, or None, its problems noted."""
        try:
            own = self._tree(file)
        except SpecError as error:
            self._note(error.problems)
            return None
        try:
            whole = extended(own, file, self._tree)
        except SpecError as error:
            self._note(error.problems)
            _, problems = validate(overridden(own, self.overrides))
            self._note(problem for problem in problems if problem.code != "missing-key")  # it may be in the file that it extends
            return None
        tree, problems = validate(overridden(whole, self.overrides))
        document = Document(tree)
        problems = (*problems, *self._name_problems(tree, file), *check(document))
        self._note(problems)
        misread = self.misread and any(node.mark.source.file in self.misread for _, node in tree.walk())
        return None if problems or misread else resolve(document, file)

    def _name_problems(self, tree: Node, file: str) -> Iterator[Problem]:
        """Yield a problem where another spec of this run has the name."""
        name = tree.items().get("name")
        if name is None or not isinstance(name.value, str):
            return
        here = f"{file}:{name.mark.line + 1}"
        if (there := self.names.setdefault(name.value, here)) != here:
            yield name.mark.problem(
                "duplicate-name", f"duplicate spec name {quote(name.value)} (also used in {there})", "spec names must be unique"
            )

    def _note(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.problems.setdefault(problem.place.file, []).append(problem)


def _told(file: str, problems: list[Problem]) -> list[Problem]:
    """Return a file's problems in the order of lines, without duplicates and up to a limit."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: (problem.place.line, problem.place.column))
    if len(ordered) > MAX_PROBLEMS:
        return [*ordered[:MAX_PROBLEMS], whole_file(file, "too-many", f"has more than {MAX_PROBLEMS} problems; the others are not shown")]
    return ordered
