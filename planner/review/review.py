"""The records of a review: models before and after, the causes of changes, and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.report.remedies import Remedy
from planner.spec.records import Place, Waiver

Figures: TypeAlias = Mapping[str, int | None]  # by column of capacity.csv
Status = Literal["changed", "new", "removed", "renamed", "unreadable", "unchanged"]
Severity = Literal["error", "warning", "waived"]


@dataclass(frozen=True, slots=True)
class Edit:
    """A setting that changed, by its dotted key, and its values as written."""

    setting: str  # "training.batch_size"
    before: str  # empty: unset
    after: str
    place: Place | None  # now, or before if it is gone; None: in a saved report or a policy of the base


@dataclass(frozen=True, slots=True)
class Move:
    """The effect of some edits alone, together on the base, on a metric."""

    edits: tuple[int, ...]  # indices into the model's edits
    by: int


@dataclass(frozen=True, slots=True)
class Change:
    """A metric that changed, and the contributions of edits."""

    figure: str
    before: int | None
    after: int | None
    moves: tuple[Move, ...] = ()
    together: int = 0  # interaction: the change minus the sum of moves


@dataclass(frozen=True, slots=True)
class ReviewedScenario:
    """A scenario of a model, before and after."""

    scenario: str
    status: Literal["changed", "new", "removed", "unchanged"]
    before: Figures | None
    after: Figures | None
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewedModel:
    """A model, before and after. ``rows`` is empty if nothing changed."""

    name: str
    status: Status
    path: str  # from the repository's root; if removed, at the base
    rows: tuple[ReviewedScenario, ...] = ()
    edits: tuple[Edit, ...] = ()
    moved_from: str = ""  # its path at the base, if different
    renamed_from: str = ""  # its name at the base, if different
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to report: an exceeded budget, a failed expect value, a wrong label, an invalid spec."""

    rule: str  # "budget:NAME", "size_label", "expect", or a problem's code
    severity: Severity
    message: str
    place: Place  # its file is named from the repository's root
    model: str = ""
    scenario: str = ""
    hint: str = ""
    remedies: tuple[Remedy, ...] = ()
    waiver: Waiver | None = None


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """Whether a scenario of a model is within a budget."""

    model: str
    scenario: str
    budget: str
    state: Literal["kept", "unchecked", "error", "warning", "waived"]  # unchecked: growth without a base


@dataclass(frozen=True, slots=True)
class FormulaChange:
    """A metric of a saved report that this version computes differently from the same spec."""

    model: str
    scenario: str
    figure: str
    saved: int | None
    recomputed: int | None
    saved_method: str
    method: str


@dataclass(frozen=True, slots=True)
class Trend:
    """A metric in the last committed reports, the oldest first, then at the base and now."""

    model: str
    scenario: str
    figure: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Review:
    """The result of ``planner diff``. Models with findings come first, then changed ones, then the others, by name."""

    base: str  # description of the base
    models: tuple[ReviewedModel, ...]
    findings: tuple[Finding, ...]
    budget_statuses: tuple[BudgetStatus, ...] = ()  # of the models that were checked
    waivers: tuple[tuple[str, Waiver], ...] = ()  # of all models, by model
    notes: tuple[str, ...] = ()
    formulas: tuple[FormulaChange, ...] = ()
    policy_edits: tuple[Edit, ...] = ()
    trends: tuple[Trend, ...] = ()

    @property
    def changed(self) -> tuple[ReviewedModel, ...]:
        """The models that changed."""
        return tuple(model for model in self.models if model.status != "unchanged")

    @property
    def failed(self) -> bool:
        """Whether a finding has severity error."""
        return any(finding.severity == "error" for finding in self.findings)
