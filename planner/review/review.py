"""What a review says, as frozen records: models before and after, what moved their figures, and what is not allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.spec.records import Place, Waiver

Figures: TypeAlias = Mapping[str, int | None]  # by column of capacity.csv
Status = Literal["changed", "new", "removed", "renamed", "unreadable", "unchanged"]
Severity = Literal["error", "warning", "waived"]


@dataclass(frozen=True, slots=True)
class Edit:
    """One setting that a change touches, as the spec language names it, and its values as written."""

    setting: str  # "training.batch_size"
    before: str  # empty: not there
    after: str
    place: Place | None  # where it stands now; where it stood if it is gone; None: in a saved report


@dataclass(frozen=True, slots=True)
class Move:
    """What some edits alone, made together on the base, do to a figure."""

    edits: tuple[int, ...]  # indices into the model's edits
    by: int


@dataclass(frozen=True, slots=True)
class Change:
    """A figure that changed, and what moved it."""

    figure: str
    before: int | None
    after: int | None
    moves: tuple[Move, ...] = ()
    together: int = 0  # what the edits do only in combination: the change less the sum of moves


@dataclass(frozen=True, slots=True)
class ReviewedScenario:
    """One scenario of a model, before and after."""

    scenario: str
    status: Literal["changed", "new", "removed", "unchanged"]
    before: Figures | None
    after: Figures | None
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewedModel:
    """One model, before and after. ``rows`` is empty where nothing about it changed."""

    name: str
    status: Status
    path: str  # from the repository's root; where it was if it is removed
    rows: tuple[ReviewedScenario, ...] = ()
    edits: tuple[Edit, ...] = ()
    moved_from: str = ""  # its path in the base, where that is another
    renamed_from: str = ""  # its name in the base, where that is another
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a reviewer must know: a broken budget, claim or label, an invalid spec."""

    rule: str  # "budget:NAME", "size_label", "expect", or a problem's code
    severity: Severity
    message: str
    place: Place  # its file is named from the repository's root
    model: str = ""
    scenario: str = ""
    hint: str = ""
    waiver: Waiver | None = None


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """How a scenario of a model stands to one limit of a budget."""

    model: str
    scenario: str
    budget: str
    state: Literal["kept", "error", "warning", "waived"]


@dataclass(frozen=True, slots=True)
class FormulaChange:
    """A figure of the base report that today's code computes otherwise from the same spec."""

    model: str
    scenario: str
    figure: str
    saved: int | None
    recomputed: int | None
    saved_method: str
    method: str


@dataclass(frozen=True, slots=True)
class Review:
    """All that ``planner diff`` has to say. Models with findings come first, then changed ones, then the others, by name."""

    base: str  # what was compared with, for people
    models: tuple[ReviewedModel, ...]
    findings: tuple[Finding, ...]
    standings: tuple[BudgetStatus, ...] = ()  # of the models that were held against budgets
    waivers: tuple[tuple[str, Waiver], ...] = ()  # of all models, by model
    notes: tuple[str, ...] = ()
    formulas: tuple[FormulaChange, ...] = ()

    @property
    def changed(self) -> tuple[ReviewedModel, ...]:
        """The models that are not as they were."""
        return tuple(model for model in self.models if model.status != "unchanged")

    @property
    def failed(self) -> bool:
        """Whether a finding is more than a warning."""
        return any(finding.severity == "error" for finding in self.findings)
