"""``extends``: which file a spec builds on, and the two of them as one tree."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from planner.spec.catalogue import PREFIX, file_of, meant
from planner.spec.find import SUFFIXES
from planner.spec.nodes import Node, merge
from planner.spec.problems import SpecError, quote
from planner.spec.source import STDIN, repositories

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.spec.problems import Problem

MAX_CHAIN = 10  # files, one extending the next
_OWN = ("name", "expect", "extends", "tags", "waivers")  # keys that are not inherited


def extended(root: Node, file: str, read: Callable[[str], Node], chain: tuple[str, ...] = ()) -> Node:
    """Return the tree merged over the one that it extends.

    ``read`` returns the tree of a file. Raises SpecError: the path is none that a spec may name, or the files extend one another in a ring.
    """
    written = root.items().get("extends")
    if written is None or not isinstance(written.value, str) or not written.value:
        return root
    chain = (*chain, file)
    base = _base(written, file)
    if os.path.realpath(base) in map(os.path.realpath, chain):
        ring = " -> ".join((*chain, base))
        raise SpecError([written.mark.problem("extends", f"circular extends: {ring}", "remove one of the extends keys")])
    if len(chain) >= MAX_CHAIN:
        message = f"more than {MAX_CHAIN} files extend one another"
        raise SpecError([written.mark.problem("extends", message, "extend a file nearer the first")])
    if not Path(base).is_file():
        message = f"no such file {quote(base)}"
        raise SpecError([written.mark.problem("extends", message, "paths are relative to the file that contains extends")])
    beneath = extended(read(base), base, read, chain)
    if not isinstance(beneath.value, dict):
        raise SpecError([beneath.mark.problem("type", "a spec must be a mapping", "start with name: and model:")])
    inherited = {key: node for key, node in beneath.value.items() if key not in _OWN}
    return merge(replace(beneath, value=inherited), root)


def _base(written: Node, file: str) -> str:
    """Return the path that is meant; raises SpecError where a spec may not name it."""

    def refusal(message: str, hint: str) -> SpecError:
        problem: Problem = written.mark.problem("extends", message, hint)
        return SpecError([problem])

    named = str(written.value)
    if named.startswith(PREFIX) and not named.endswith(SUFFIXES):
        return _from_catalogue(written, named.removeprefix(PREFIX))
    if os.path.isabs(named) or "\0" in named:  # noqa: PTH117 - the text is judged, not a path object
        raise refusal(f"the path {quote(named)} is absolute", "write it relative to this file")
    if not named.endswith(SUFFIXES):
        raise refusal(f"{quote(named)} is not a spec file", _did_you_mean(named) or f"name a file ending in {' or '.join(SUFFIXES)}")
    folder = "." if file == STDIN else os.path.dirname(file)  # noqa: PTH120 - the path as the user wrote it
    base = os.path.normpath(os.path.join(folder, named))  # noqa: PTH118
    target = Path(os.path.realpath(os.path.join(folder, named)))  # noqa: PTH118 - realpath of what the system opens
    if not any(target.is_relative_to(root) for root in _roots(folder)):
        message = f"the path {quote(named)} leaves the repository and the working directory"
        raise refusal(message, "extend a file below one of them")
    return base


def _from_catalogue(written: Node, name: str) -> str:
    """Return the path of a model of the catalogue; raises SpecError where there is none of the name."""
    file = file_of(name)
    if not file:
        hint = _did_you_mean(name) or "run planner list to see all names"
        raise SpecError([written.mark.problem("extends", f"no model named {quote(name)} in the catalog", hint)])
    return file


def _did_you_mean(name: str) -> str:
    near = meant(name)
    return f"did you mean {' or '.join(f'{PREFIX}{one}' for one in near)}?" if near else ""


def _roots(folder: str) -> tuple[Path, ...]:
    """Return the folders below which a spec in ``folder`` may extend files: its own, the working directory, its repository."""
    own = Path(os.path.realpath(folder))
    return own, Path.cwd().resolve(), *repositories(os.fspath(own))[:1]
