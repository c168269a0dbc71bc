"""The base or head of a comparison: the specs of the working tree, a revision or a saved report, with paths from one root."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from planner.importer.convert import as_spec
from planner.report.columns import CLAIMABLE
from planner.report.paths import posix
from planner.report.write import make_folder
from planner.review.policy import POLICY
from planner.review.review import Figures
from planner.spec import catalogue
from planner.spec import read as read_specs
from planner.spec.find import SUFFIXES, find
from planner.spec.problems import Problem
from planner.spec.records import Place, Spec
from planner.spec.source import STDIN, whole_file

REPORT_LIMIT = 2**28  # bytes of a saved report


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Specs by name, the errors of the others, and saved metrics."""

    specs: Mapping[str, Spec]
    problems: tuple[Problem, ...] = ()
    paths: frozenset[str] = frozenset()  # of every spec file, valid or not
    saved: Mapping[tuple[str, str], Figures] = field(default_factory=dict)  # by model and scenario
    methods: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)  # of saved figures, by column


def is_spec(path: str, patterns: Iterable[str] = ()) -> bool:
    """Whether a file of a revision could be a spec, or is a configuration that matches a pattern."""
    return path.endswith(SUFFIXES) or (path.endswith(".json") and any(fnmatchcase(path, pattern) for pattern in patterns))


def working_tree(root: Path, paths: Sequence[str]) -> Snapshot:
    """Read the specs at the paths. A file outside the root, or a link to one, is an error and is not read."""
    files, problems = find(paths)
    real = os.path.realpath(root)
    names = {file: from_root(root, file) for file in files if file != STDIN and Path(os.path.realpath(file)).is_relative_to(real)}
    outside = [file for file in files if file not in names]
    refused = [whole_file(file, "outside", "is outside the repository", "review specs that are in it") for file in outside]
    read, wrong = read_specs([file for file, name in names.items() if name != POLICY], convert=as_spec)
    found = {spec.name: replace(spec, path=names[spec.path]) for spec in read}
    placed = tuple(_placed(problem, lambda file: from_root(root, file)) for problem in (*problems, *refused, *wrong))
    return Snapshot(found, placed, frozenset(names.values()))


def from_root(root: Path, file: str) -> str:
    """Return the path from the root, with forward slashes; links of its folders are followed, of the file itself not.

    A catalog file outside the root is named as in ``extends``.
    """
    path = Path.cwd() / file
    real, top = _real(path.parent) / path.name, _real(root)
    if real.is_relative_to(top):
        return posix(real.relative_to(top))
    return _published(real) or posix(Path(os.path.relpath(real, top)))


@lru_cache(maxsize=1024)
def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))


def revision(
    files: Mapping[str, bytes], patterns: Iterable[str], head: Mapping[str, Spec], unchanged: frozenset[str], others: Iterable[str] = ()
) -> Snapshot:
    """Read the specs among a revision's files that ``patterns`` match, from the root; a pattern may match none.

    ``unchanged`` are paths of files that are the same in the working tree and extend nothing; their ``head`` specs are reused. Specs that
    match ``others`` are read but are not among the snapshot's paths: a model may have moved from there.
    """
    matching = selected(files, patterns)
    chosen = dict.fromkeys((*matching, *selected(files, others)))
    known = {spec.path: spec for spec in head.values() if spec.path in unchanged}
    unread = [file for file in chosen if posix(Path(file)) not in known and posix(Path(file)) != POLICY]
    needed = {file: files[file] for file in unread} if all(is_self_contained(files[file]) for file in unread) else files
    with _snapshot(needed) as folder:
        read, problems = read_specs([folder / file for file in unread], convert=as_spec)
        own = {spec.name: _relocated(spec, folder) for spec in read if _within(spec, folder)}
        astray = (spec.path for spec in read if not _within(spec, folder))
        strays = tuple(whole_file(path, "extends", "extends a file that does not exist at that revision") for path in astray)
        placed = tuple(_placed(problem, lambda file: _relative(file, folder), folder) for problem in (*problems, *strays))
    taken = {known[name].name: known[name] for name in map(posix, map(Path, chosen)) if name in known}
    return Snapshot({**taken, **own}, placed, frozenset(map(posix, map(Path, matching))))


def selected(files: Collection[str], patterns: Iterable[str]) -> list[str]:
    """Return the spec files that match the patterns, as ``planner.spec.find`` would on disk; a pattern may match none."""
    folders = {"."}.union(*({parent.as_posix() for parent in Path(file).parents} for file in files))
    split = [(Path(pattern).parts, pattern in files or pattern in folders) for pattern in patterns]
    return [file for file in sorted(files) if any(_selects(parts, Path(file).parts, literal=literal) for parts, literal in split)]


def _selects(pattern: tuple[str, ...], file: tuple[str, ...], *, literal: bool) -> bool:
    """Whether a pattern matches a file or a folder around it; wildcards do not match hidden names."""
    if not pattern:
        return not file or (file[-1].endswith(SUFFIXES) and not any(part.startswith(".") for part in file[:-1]))
    if not file:
        return False
    first, rest = pattern[0], pattern[1:]
    if first == "**" and not literal:
        return _selects(rest, file, literal=False) or (not file[0].startswith(".") and _selects(pattern, file[1:], literal=False))
    matches = not literal and fnmatchcase(file[0], first) and (not file[0].startswith(".") or first.startswith("."))
    return (first == file[0] or matches) and _selects(rest, file[1:], literal=literal)


def is_self_contained(content: bytes) -> bool:
    """Whether a spec extends nothing: its text cannot contain the key ``extends``, not even escaped."""
    return b"extends" not in content and b"\\" not in content


class ReportError(Exception):
    """Why a saved report cannot be read, in one sentence."""


def saved_report(path: Path) -> Snapshot:
    """Read a ``capacity.json``: its specs, to be recomputed, and its metrics. Raises ReportError."""
    plans = _plans(path)
    try:
        entries = [_entry(plan) for plan in plans]
        paths = {name: str(plan["figures"]["spec"]) for plan, (name, *_) in zip(plans, entries, strict=True)}
    except (KeyError, TypeError, AttributeError):
        raise ReportError(f"{path}: {_NO_REPORT}") from None
    texts = {name: json.dumps(written, ensure_ascii=True).encode() for name, _, _, _, written in entries if written is not None}
    files = {f"{number}.yaml": text for number, text in enumerate(texts.values())}
    read = revision(files, files, {}, frozenset())
    unplaced = {name: replace(spec, path=paths[name]) for name, spec in read.specs.items()}
    return Snapshot(
        specs=unplaced,
        paths=frozenset(spec.path for spec in unplaced.values()),
        saved={(name, scenario): figures for name, scenario, figures, _, _ in entries},
        methods={(name, scenario): methods for name, scenario, _, methods, _ in entries},
    )


def _plans(path: Path) -> list[Any]:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ReportError(f"{path}: is not a regular file")  # a pipe may block
        with path.open("rb") as stream:
            data = stream.read(REPORT_LIMIT + 1)
        plans = json.loads(data) if len(data) <= REPORT_LIMIT else None
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        plans = None
    if not isinstance(plans, list):
        raise ReportError(f"{path}: {_NO_REPORT}")
    return plans


_NO_REPORT = "is not a capacity.json; create one with `planner run --format json`"

_Entry = tuple[str, str, Figures, Mapping[str, str], object]


def _entry(plan: Mapping[str, Any]) -> _Entry:
    figures = plan["figures"]
    values = {name: figures[name] for name in CLAIMABLE if name in figures}
    name, scenario = figures["model"], figures["scenario"]
    if not all(value is None or type(value) is int for value in values.values()) or type(name) is not str or type(scenario) is not str:
        raise TypeError(name)
    methods = plan.get("methods") or {}
    return name, scenario, values, {str(column): str(method) for column, method in methods.items()}, plan.get("spec")


@contextmanager
def _snapshot(files: Mapping[str, bytes]) -> Iterator[Path]:
    """Write files to a temporary folder that looks like a repository, so that nothing outside it can be extended."""
    with tempfile.TemporaryDirectory(prefix="planner-") as made:
        folder = Path(os.path.realpath(made))
        (folder / ".git").mkdir()
        for name, content in files.items():
            path = folder / name
            make_folder(path.parent)
            path.write_bytes(content)
        yield folder


def _within(spec: Spec, folder: Path) -> bool:
    return all(Path(file).is_relative_to(folder) or _published(Path(file)) for file in {place.file for place in spec.places.values()})


def _published(path: Path) -> str:
    """Return the name of a file of the built-in catalog; empty for any other."""
    return f"{catalogue.PREFIX}{path.stem}" if Path(os.path.realpath(path)) in _catalogue() else ""


@cache
def _catalogue() -> frozenset[Path]:
    return frozenset(Path(os.path.realpath(path)) for path in catalogue.paths().values())


def _relative(file: str, folder: Path) -> str:
    path = Path(file)
    return posix(path.relative_to(folder)) if path.is_relative_to(folder) else _published(path) or file


def _relocated(spec: Spec, folder: Path) -> Spec:
    """Make the paths of a spec relative to the folder; nothing else uses its tree, so its sources change in place."""
    for _, node in spec.written.walk() if spec.written else ():
        node.mark.source.file = _relative(node.mark.source.file, folder)
    places = {path: replace(place, file=_relative(place.file, folder)) for path, place in spec.places.items()}
    return replace(spec, path=_relative(spec.path, folder), places=places)


def _placed(problem: Problem, name: Callable[[str], str], folder: Path | None = None) -> Problem:
    place = Place(name(problem.place.file), problem.place.line, problem.place.column)
    message = problem.message if folder is None else problem.message.replace(f"{folder}{os.sep}", "")
    return replace(problem, place=place, message=message)
