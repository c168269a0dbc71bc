"""Specs as they stand against ``planner.yaml``, without a base: what ``planner run`` tells."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path

from planner.report.records import Planned
from planner.review import findings as rules
from planner.review import policy
from planner.review.findings import Held
from planner.review.records import Finding
from planner.review.side import POLICY
from planner.spec.records import Place


def findings(models: Iterable[Planned], folder: Path, today: date) -> tuple[Finding, ...]:
    """Return what the policy of the repository around a folder does not allow; nothing without a policy. Growth has no base here."""
    home = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    if not (home / POLICY).is_file():
        return ()
    read, problems = policy.read(home / POLICY, POLICY)
    if problems:
        return tuple(map(rules.of_problem, problems))
    held = [Held(model, {}, dict.fromkeys(("", "name"), _place(model))) for model in models]
    found, _ = rules.findings(held, read, today, str)
    return tuple(finding for finding in found if finding.rule != "expect")  # told before anything is written


def _place(model: Planned) -> Place:
    return model.spec.places["name",]
