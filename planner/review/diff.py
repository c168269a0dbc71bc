"""``planner diff``: what is compared with what, and the review that comes of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from planner.report.paths import posix
from planner.review import git, policy, snapshot
from planner.review.compare import Terms, compare
from planner.review.git import GitError, Repository
from planner.review.review import Review
from planner.review.snapshot import POLICY, ReportError, Snapshot
from planner.spec.problems import Problem
from planner.spec.source import LIMIT

_NOWHERE = ("not-found", "no-specs")  # problems of a path that may have named specs in the base


class ReviewError(Exception):
    """Why there can be no review, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to review: specs as the user names them (none: those that the policy names), and what with."""

    specs: tuple[str, ...] = ()
    base: str | None = None  # a revision; None: the merge base with the main branch
    base_report: Path | None = None  # a capacity.json instead
    today: date = date.min  # on which waivers are in force


def review(request: Request, folder: Path) -> Review:
    """Return the review of the specs in the work tree around a folder. Raises ReviewError."""
    try:
        repo = _repository(request, folder)
        return _review(request, folder, repo)
    except (GitError, ReportError) as error:
        raise ReviewError(str(error)) from None


def _repository(request: Request, folder: Path) -> Repository:
    try:
        return git.repository(folder)
    except GitError:
        if request.base_report is None:
            raise
        return Repository(folder, shallow=False)


def _review(request: Request, folder: Path, repo: Repository) -> Review:
    rules, wrong = policy.read(repo.root / POLICY, POLICY)
    patterns = [_from_root(repo.root, folder, path) for path in request.specs] or list(rules.specs)
    head = snapshot.work_tree(repo.root, request.specs or [os.path.relpath(repo.root / path, folder) for path in patterns])
    nowhere = [problem for problem in head.problems if problem.code in _NOWHERE]
    head = replace(head, problems=(*wrong, *(problem for problem in head.problems if problem not in nowhere)))
    if request.base_report is None:
        commit, named = git.base_commit(repo, request.base)
        tree = git.tree(repo, commit, lambda path: snapshot.is_spec(path, patterns), LIMIT)
        base = snapshot.revision(tree.files, patterns, head.specs, _unchanged(repo.root, tree.files), rules.specs)
        policy_changed, notes = _differs(repo.root / POLICY, tree.files.get(POLICY)), tree.notes
    else:
        base, named, policy_changed, notes = snapshot.saved_report(request.base_report), f"the report {request.base_report}", True, ()
        base = replace(base, paths=frozenset(snapshot.selected(base.paths, patterns)))
    base = _meant(base, head)
    nowhere = [problem for problem in nowhere if not snapshot.selected(base.paths, [problem.place.file])]
    if nowhere:
        raise ReviewError(_told(nowhere, by_default=not request.specs))
    terms = Terms(rules, policy_changed, request.today, named, lambda file: snapshot.from_root(repo.root, file), notes)
    return compare(base, head, terms)


def _meant(base: Snapshot, head: Snapshot) -> Snapshot:
    """Leave out models that the request does not name in the base and that the head has not got either."""
    specs = {name: spec for name, spec in base.specs.items() if spec.path in base.paths or name in head.specs}
    saved = {key: figures for key, figures in base.saved.items() if key[0] in specs or key[0] in head.specs}
    return replace(base, specs=specs, saved=saved)


def _from_root(root: Path, folder: Path, pattern: str) -> str:
    return os.path.relpath(Path(os.path.realpath(folder)) / pattern, os.path.realpath(root))


def _unchanged(root: Path, files: dict[str, bytes]) -> frozenset[str]:
    """Return the names of the files that the work tree has as they are, and that need no other file to be read."""
    return frozenset(
        posix(Path(name)) for name, content in files.items() if snapshot.stands_alone(content) and not _differs(root / name, content)
    )


def _differs(path: Path, content: bytes | None) -> bool:
    if content is None:
        return path.is_file()
    try:
        return path.stat().st_size != len(content) or path.read_bytes() != content
    except OSError:
        return True


def _told(nowhere: list[Problem], *, by_default: bool) -> str:
    said = "; ".join(f"{problem.place.file}: {problem.message}" for problem in nowhere)
    return f"{said}; name the specs, or list where they are under specs: in {POLICY}" if by_default else said
