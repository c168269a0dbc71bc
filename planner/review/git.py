"""Read revisions with ``git``. Nothing in the working tree, the index or the configuration changes.

No hook, pager, file-system monitor or transport runs, whatever the configuration: only objects are read.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from posixpath import dirname, join, normpath

MAIN = ("origin/HEAD", "origin/main", "origin/master", "main", "master")  # candidates for the main branch
_SAFE = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never", "gc.auto=0")
_LINK = "120000"
_MISSING_HISTORY = "fetch its history: git fetch --unshallow; in GitHub Actions, give actions/checkout fetch-depth: 0"

_PARTIAL = "git is missing files of the base; if this clone is partial, fetch them: git fetch --refetch --no-filter"


class GitError(Exception):
    """Why a base cannot be read, and the fix, in one sentence."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository with a working tree."""

    root: Path
    shallow: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a revision by their path from the repository's root, and notes on what could not be read."""

    files: dict[str, bytes]
    notes: tuple[str, ...] = ()


def repository(folder: Path) -> Repository:
    """Return the repository around a folder. Raises GitError."""
    result = _git(folder, "rev-parse", "--show-toplevel", "--is-shallow-repository")
    if result.returncode:
        reason = _reason(result)
        if "not a git repository" in reason:
            raise GitError("not a git repository; run inside one, or use --base-report FILE")
        raise GitError(f"git cannot read this repository: {reason}")
    root, shallow = os.fsdecode(result.stdout).removesuffix("\n").rsplit("\n", 1)
    return Repository(Path(root), shallow == "true")


def base_commit(repo: Repository, ref: str | None) -> tuple[str, str]:
    """Return the base commit and its description: the merge base with the main branch by default, with REF for ``REF...``.

    Raises GitError.
    """
    if ref is None:
        main = _main(repo)
        if main is None:
            raise _refusal(repo, f"no main branch to compare with: none of {', '.join(MAIN)}", "choose a base with --base REF")
        return _merge_base(repo, *main)
    name = ref.removesuffix("...")
    commit = _commit(repo, name)
    if commit is None:
        raise _refusal(repo, f"unknown revision {name!r}", "give a branch, tag or commit")
    return _merge_base(repo, name, commit) if ref.endswith("...") else (commit, f"{name} ({commit[:12]})")


def _main(repo: Repository) -> tuple[str, str] | None:
    """Return the first main branch that exists, and its commit."""
    refs = {f"refs/remotes/{name}" if "/" in name else f"refs/heads/{name}": name for name in MAIN}
    result = _git(repo.root, "for-each-ref", "--format=%(refname) %(objectname)", *refs)
    there = dict(line.split(" ") for line in result.stdout.decode("utf-8", "replace").splitlines())
    return next(((name, there[full]) for full, name in refs.items() if full in there), None)


def _merge_base(repo: Repository, name: str, commit: str) -> tuple[str, str]:
    result = _git(repo.root, "merge-base", "HEAD", commit)
    found = result.stdout.decode("ascii", "replace").split()
    if result.returncode or not found:
        raise _refusal(repo, f"HEAD and {name} have no commit in common", "choose a base with --base REF")
    return found[0], f"the merge base with {name} ({found[0][:12]})"


def _commit(repo: Repository, ref: str) -> str | None:
    if not ref or ref.startswith("-") or "\0" in ref:  # git would read it as an option
        return None
    result = _git(repo.root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    return result.stdout.decode("ascii").strip() if result.returncode == 0 else None


def _refusal(repo: Repository, what: str, otherwise: str) -> GitError:
    if repo.shallow:
        return GitError(f"{what}, but this clone is shallow; {_MISSING_HISTORY}")
    return GitError(f"{what}; {otherwise}" if _commit(repo, "HEAD") else "the repository has no commits yet")


def tree(repo: Repository, commit: str, wanted: Callable[[str], bool], limit: int) -> Tree:
    """Read the wanted files of a commit up to ``limit`` bytes, those of submodules at the recorded commits.

    A link is replaced by its target, if that is a file of the same revision. Raises GitError.
    """
    files: dict[str, bytes] = {}
    links: dict[str, bytes] = {}
    notes: list[str] = []
    entries, submodules = _entries(repo.root, commit)
    chosen = [entry for entry in entries if wanted(entry.path) and entry.size <= limit]
    for entry, content in zip(chosen, _contents(repo.root, [entry.oid for entry in chosen]), strict=True):
        (links if entry.mode == _LINK else files)[entry.path] = content
    for path, oid in submodules.items():
        inner = repo.root / path
        if not (inner / ".git").exists():
            continue  # not checked out: it has no specs in the work tree either
        try:
            read = tree(Repository(inner, shallow=False), oid, wanted, limit)
        except GitError:
            notes.append(f"the submodule {path} lacks its commit {oid[:12]}, so its specs have no base; fetch it: git submodule update")
        else:
            files |= {f"{path}/{name}": content for name, content in read.files.items()}
            notes += read.notes
    files |= {path: files[target] for path, text in links.items() if (target := _target(path, text)) in files}
    return Tree(files, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Entry:
    mode: str
    oid: str
    size: int
    path: str


def _entries(folder: Path, commit: str) -> tuple[list[_Entry], dict[str, str]]:
    """Return the files and links of a commit, and the commits of its submodules by their path."""
    result = _git(folder, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
    if result.returncode:
        raise GitError(_PARTIAL if b"promisor" in result.stderr else f"git cannot list {commit}: {_reason(result)}")
    entries, submodules = [], {}
    for line in filter(None, result.stdout.split(b"\0")):
        attributes, _, name = line.partition(b"\t")
        mode, kind, oid, size = attributes.decode("ascii").split()
        path = os.fsdecode(name)
        if {"", ".", "..", ".git"} & set(path.split("/")):
            continue  # git itself does not create such names
        if kind == "commit":
            submodules[path] = oid
        else:
            entries.append(_Entry(mode, oid, int(size), path))
    return entries, submodules


def _contents(folder: Path, oids: list[str]) -> Iterator[bytes]:
    """Yield the blobs, read at once."""
    if not oids:
        return
    result = _git(folder, "cat-file", "--batch", given="\n".join(oids).encode() + b"\n")
    data, at = result.stdout, 0
    for _ in oids:
        end = data.find(b"\n", at)
        head = data[at:end].split()
        if result.returncode or end < 0 or len(head) != 3:  # noqa: PLR2004 - object, type, size
            raise GitError(_PARTIAL)
        size = int(head[2])
        yield data[end + 1 : end + 1 + size]
        at = end + 1 + size + 1


def versions(repo: Repository, commit: str, path: str, commits: int, most: int, limit: int) -> list[bytes]:
    """Return the last versions of a file up to ``limit`` bytes in the first parents of a commit, the oldest first. Raises GitError."""
    chain = _git(repo.root, "rev-list", "--first-parent", f"--max-count={commits}", commit, "--").stdout.decode("ascii").split()
    known = _git(repo.root, "cat-file", "--batch-check", given="".join(f"{one}:{path}\n" for one in chain).encode())
    lines = [line.split() for line in known.stdout.splitlines()]  # object, type and size, or "missing"
    oids = [line[0].decode() for line in lines if line[1:2] == [b"blob"] and int(line[2]) <= limit]
    return [*_contents(repo.root, [oid for oid, _ in groupby(oids)][:most])][::-1]


def _target(path: str, text: bytes) -> str:
    """Return the target of a link; if a folder on the way is a link too, the revision has no such file."""
    return normpath(join(dirname(path), os.fsdecode(text)))


def _git(folder: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    settings = [part for setting in _SAFE for part in ("-c", setting)]
    environment = os.environ | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    command = ["git", "--no-pager", "--literal-pathspecs", *settings, *arguments]
    try:
        return subprocess.run(command, cwd=folder, input=given, capture_output=True, env=environment, check=False)  # noqa: S603 - no shell
    except FileNotFoundError:
        raise GitError("git is not installed, or not on the PATH") from None


def _reason(result: subprocess.CompletedProcess[bytes]) -> str:
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else f"exit code {result.returncode}"
