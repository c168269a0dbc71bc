"""What the user named on the command line: files, folders, globs, standard input."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from planner.spec import catalogue
from planner.spec.problems import SpecError
from planner.spec.source import STDIN, identity, whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.spec.problems import Problem

SUFFIXES = (".yaml", ".yml")


def find(paths: Iterable[str | os.PathLike[str]]) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """Return the spec files that the paths name, each once, in the order of the paths, and what is wrong with the paths.

    A folder stands for every ``*.yaml`` and ``*.yml`` below it, hidden folders left out; ``-`` for standard input; a name of the catalogue
    for its spec, unless a file has that name. Sorted within a path.
    """
    files: dict[str, str] = {}
    problems: list[Problem] = []
    for path in paths:
        found, wrong = _named(os.fspath(path))
        problems += wrong
        for file in found:
            files.setdefault(identity(file), file)
    return tuple(files.values()), tuple(problems)


def find_file(path: str) -> str:
    """Return the one file that a path or a name of the catalogue means. Raises SpecError if it is neither."""
    if path == "-":
        return STDIN
    try:
        os.lstat(path)
    except FileNotFoundError:
        file = catalogue.file_of(path)
        if not file and (problem := catalogue.missing(path)):
            raise SpecError([problem]) from None
        return file or path
    except (OSError, ValueError):
        return path  # the reason is reported when it is read
    return path


def _named(path: str) -> tuple[list[str], list[Problem]]:
    if path == "-":
        return [STDIN], []
    if os.path.isdir(path):  # noqa: PTH112 - the path as the user wrote it is kept: "./specs" stays so
        files = _below(path)
        others = sorted(glob.glob(f"{glob.escape(path)}/*.json"))  # noqa: PTH207 - as above
        hint = f"name the file itself: {others[0]}" if others else ""
        return files, [] if files else [whole_file(path, "no-specs", f"contains no files ending in {' or '.join(SUFFIXES)}", hint)]
    if glob.has_magic(path) and not os.path.lexists(path):
        files = []
        for match in sorted(set(_matches(path))):
            files += _below(match) if os.path.isdir(match) else [match]  # noqa: PTH112
        return files, [] if files else [whole_file(path, "no-specs", "no files match")]
    try:
        return [find_file(path)], []
    except SpecError as error:
        return [], list(error.problems)


def _matches(pattern: str) -> Iterator[str]:
    """Yield the paths that match; ``**`` does not follow links to folders, which may lead in a circle."""
    before, found, after = f"/{pattern}".replace(os.sep, "/").partition("/**/")
    if not found:
        yield from glob.glob(pattern)  # noqa: PTH207 - the path as the user wrote it is kept
        yield from glob.glob(pattern[:-2]) if pattern.endswith("/**") else ()  # noqa: PTH207 - the folder itself, with all below it
        return
    for start in glob.glob(f"{before[1:]}/") if before else [""]:  # noqa: PTH207 - as above
        for where, _ in _walk(start or "."):
            inside = os.path.join(where, "") if start else os.path.join(where, "")[2:]  # noqa: PTH118
            yield from _matches(glob.escape(inside) + after)


def _below(folder: str) -> list[str]:
    found = []
    for where, names in _walk(folder):
        found += [os.path.join(where, name) for name in names if name.endswith(SUFFIXES)]  # noqa: PTH118
    return sorted(file for file in found if Path(file).is_file())


def _walk(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the folder and those below it, hidden ones and links left out, each with its names. Up to Python 3.11 os.walk is recursive."""
    folders = [folder]
    while folders:
        where = folders.pop()
        try:
            with os.scandir(where) as found:
                entries = list(found)
        except OSError:
            continue
        yield where, [entry.name for entry in entries]
        inner = (entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False))
        folders += [os.path.join(where, name) for name in inner]  # noqa: PTH118 - the path as the user wrote it is kept
