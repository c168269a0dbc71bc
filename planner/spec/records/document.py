"""A whole spec file: a model, the ways to train it, and what the file says about them."""

from __future__ import annotations

from dataclasses import field
from datetime import date
from typing import TYPE_CHECKING, ClassVar

from planner.spec.key import group, key, record
from planner.spec.records.model import Model
from planner.spec.records.training import Training

if TYPE_CHECKING:
    from planner.spec.nodes import Node


# A table, in which a key takes a line or two.
# fmt: off

@record
class Scenario:
    """A named way of training the model; the spec's own ``training`` is the one named ``base``."""

    name: str = key("What reports call the scenario (text without unit, one line, at most 100 characters). Not base, which is the spec's "
        "own training.", title="Scenario name", longest=100, example="long")
    training: Training


@record
class Place:
    """Where a value stands: a file, a line and a column (both from 1)."""

    file: str
    line: int
    column: int


@record
class Claim:
    """One line of ``expect``: a figure by its column name and the value that it must have."""

    figure: str
    value: int
    place: Place


@record
class Waiver:
    """Leave to exceed a budget, with its reason, up to and including a day."""

    budget: str = key("The budget's name in planner.yaml, or size_label (text without unit).", title="Budget", longest=100,
        example="one-gpu")
    reason: str = key("Why, for whoever reads the report (text without unit, one line).", title="Reason", longest=1000,
        example="until the optimizer is sharded")
    until: date = key("The last day on which it holds, as year-month-day (a date without unit).", title="Until", example="2027-01-31")
    place: Place


@record
class Spec:
    """One file's model with all its scenarios, the base scenario first."""

    name: str = key("What reports call the model (text without unit, one line, at most 100 characters). Every spec of a run has its own; "
        "never taken over by extends.", title="Name", longest=100, example="gpt2-small", aliases="model_name id")
    path: str  # as given by the user
    description: str = key("What the model is, for readers (text without unit).", title="Description", default="", kw_only=True)
    sources: tuple[str, ...] = key("Where the sizes come from: a link or a citation, or a list of them (text without unit).",
        title="Source", path="source", default=(), kw_only=True,
        example="https://huggingface.co/openai-community/gpt2/blob/main/config.json", aliases="sources url reference")
    tags: tuple[str, ...] = key("Words by which budgets in planner.yaml name groups of models (text without unit). Not taken over by "
        "extends.", title="Tags", default=(), kw_only=True, example=["production"])
    extends: ClassVar[str] = key("Another spec file, relative to this one (a path without unit). This file's keys lie on top: mappings are "
        "merged, lists and scalars replace. name, tags, expect and waivers are not taken over.", title="Extends", longest=1000,
        example="gpt2-small.yaml", aliases="base inherits inherit extend")
    model: Model = group("The architecture: sizes are counts, switches are named or true or false. Left-out settings are GPT-2's.",
        title="Model", kind=Model)
    training: ClassVar[object] = group("How the model is trained: the scenario called base. Sizes are counts per device.", title="Training",
        kind=Training)
    scenarios: tuple[Scenario, ...] = key("Further ways to train the same model: each has a name and keys on top of training (units as "
        "there).", title="Scenarios", derived="training alone", example=[{"name": "long", "sequence_length": 8192, "batch_size": 1}])
    waivers: tuple[Waiver, ...] = key("Budgets of planner.yaml that this model may exceed for a time; every report shows them (text and "
        "dates, no unit). Not taken over by extends.", title="Waivers", default=(), kw_only=True,
        example=[{"budget": "one-gpu", "reason": "until the optimizer is sharded", "until": "2027-01-31"}])
    claims: tuple[Claim, ...] = key("Figures of the base scenario that every run checks, by their column in capacity.csv (units as in the "
        "names). Not taken over by extends.", title="Claims", path="expect", default=(), kw_only=True, aliases="expected expects claims",
        values={"params_total": "params parameters n_params num_params num_parameters total_params total_parameters params_count"})
    places: dict[tuple[str | int, ...], Place] = field(default_factory=dict, compare=False, repr=False)
    defaulted: tuple[str, ...] = ()  # dotted keys that the user did not write, in schema order
    written: Node | None = field(default=None, compare=False, repr=False)  # the tree it was resolved from, what it extends beneath it
