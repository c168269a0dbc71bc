"""``planner diff``: choose the base and the specs, and review them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path

from planner.report.paths import posix
from planner.review import git, policy, snapshot
from planner.review.compare import Terms, compare
from planner.review.git import GitError, Repository
from planner.review.policy import POLICY
from planner.review.review import Review
from planner.review.snapshot import ReportError, Snapshot
from planner.review.trend import trends
from planner.spec.source import LIMIT

_NO_POLICY = f"a saved report does not contain the {POLICY} of the base: changes of budgets, and what only they allow, are not reported"
_NOWHERE = ("not-found", "no-specs")  # problems of a path that may have named specs in the base


class ReviewError(ValueError):
    """Why there can be no review, and the fix."""


@dataclass(frozen=True, slots=True)
class Request:
    """The specs to review as the user names them (none: those of the policy), and the base."""

    specs: tuple[str, ...] = ()
    base: str | None = None  # a revision; None: the merge base with the main branch
    base_report: Path | None = None  # a capacity.json instead
    today: date = date.min  # the date for waivers


def review(request: Request, folder: Path) -> Review:
    """Review the specs in the working tree around a folder. Raises ReviewError."""
    try:
        return _review(request, folder, _repository(request, folder))
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
    commit, named = git.base_commit(repo, request.base) if request.base_report is None else ("", f"the report {request.base_report}")
    before = git.tree(repo, commit, POLICY.__eq__, LIMIT).files.get(POLICY) if commit else None
    base_rules, lapsed = policy.parsed(f"base {POLICY}", before) if before else (policy.Policy(), ())
    listed = [*(rules.specs if rules.written or not base_rules.written else ()), *(base_rules.specs if base_rules.written else ())]
    patterns = [_from_root(repo.root, folder, path) for path in request.specs] or list(dict.fromkeys(listed))
    head = snapshot.working_tree(repo.root, request.specs or [os.path.relpath(repo.root / path, folder) for path in patterns])
    nowhere = [problem for problem in head.problems if problem.code in _NOWHERE]
    head = replace(head, problems=(*wrong, *(problem for problem in head.problems if problem not in nowhere)))
    if request.base_report is None:
        tree = git.tree(repo, commit, lambda path: snapshot.is_spec(path, patterns), LIMIT)
        base = snapshot.revision(tree.files, patterns, head.specs, _unchanged(repo.root, tree.files), rules.specs)
        notes = (*tree.notes, *(f"{problem.place.file} has errors: {problem.message}" for problem in lapsed))
    else:
        base, notes = snapshot.saved_report(request.base_report), (_NO_POLICY,)
        base = replace(base, paths=frozenset(snapshot.selected(base.paths, patterns)))
    base = _only_requested(base, head)
    lost = {problem.place.file for problem in nowhere}
    unmatched = () if request.specs or head.problems else tuple(policy.unmatched(rules, head.specs.values(), lost))
    asked = lost if request.specs else {os.path.normpath(path) for path in rules.specs}  # those of the base's policy may match nothing
    nowhere = [problem for problem in nowhere if problem.place.file in asked and not snapshot.selected(base.paths, [problem.place.file])]
    if nowhere and (request.specs or not (head.paths or base.paths)):
        hint = "" if request.specs else f"; name the specs, or list where they are under specs: in {POLICY}"
        raise ReviewError("; ".join(f"{problem.place.file}: {problem.message}" for problem in nowhere) + hint)
    from_root, judging = partial(snapshot.from_root, repo.root), None if lapsed or not commit else base_rules
    made = compare(base, head, Terms(rules, request.today, named, from_root, notes, judging, unmatched))
    return replace(made, trends=trends(repo, commit, made)) if commit else made


def _only_requested(base: Snapshot, head: Snapshot) -> Snapshot:
    """Omit models of the base that the request does not name and that the head does not have."""
    specs = {name: spec for name, spec in base.specs.items() if spec.path in base.paths or name in head.specs}
    saved = {key: figures for key, figures in base.saved.items() if key[0] in specs or key[0] in head.specs}
    return replace(base, specs=specs, saved=saved)


def _from_root(root: Path, folder: Path, pattern: str) -> str:
    return os.path.relpath(Path(os.path.realpath(folder)) / pattern, os.path.realpath(root))


def _unchanged(root: Path, files: dict[str, bytes]) -> frozenset[str]:
    """Return the names of the files that are unchanged in the working tree and extend no other file."""
    return frozenset(
        posix(Path(name)) for name, content in files.items() if snapshot.is_self_contained(content) and not _differs(root / name, content)
    )


def _differs(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size != len(content) or path.read_bytes() != content
    except OSError:
        return True
