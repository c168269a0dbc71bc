"""A whole spec file: a model, its training scenarios, and metadata."""

from __future__ import annotations

from dataclasses import field
from datetime import date
from typing import TYPE_CHECKING, ClassVar

from planner.spec.key import group, key, record
from planner.spec.records.layout import Cluster, Layout
from planner.spec.records.model import Model
from planner.spec.records.serving import Serving
from planner.spec.records.training import Training

if TYPE_CHECKING:
    from planner.spec.nodes import Node


# A table, in which a key takes a line or two.
# fmt: off

@record
class Scenario:
    """A named way of training the model; the spec's own ``training`` is the one named ``base``."""

    name: str = key("Name of the scenario in reports; base is reserved for the spec's own training.", longest=100, example="long")
    training: Training


@record
class Place:
    """The location of a value: a file, a line and a column (both from 1)."""

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

    budget: str = key("Name of the budget in planner.yaml, or size_label.", longest=100, example="one-gpu")
    reason: str = key("Reason, shown in reports.", longest=1000, example="until the optimizer is sharded")
    until: date = key("Expiry date (inclusive), YYYY-MM-DD.", example="2027-01-31")
    place: Place


@record
class Spec:
    """One file's model with all its scenarios, the base scenario first."""

    name: str = key("Name of the model in reports, unique among the specs of a run. Not inherited through extends.", longest=100,
        example="gpt2-small", aliases="model_name id")
    path: str  # as given by the user
    description: str = key("What the model is, for readers.", default="", kw_only=True)
    sources: tuple[str, ...] = key("Where the sizes come from: a link or a citation, or a list of them.", path="source", default=(),
        kw_only=True, example="https://huggingface.co/openai-community/gpt2/blob/main/config.json", aliases="sources url reference")
    tags: tuple[str, ...] = key("Labels that budgets in planner.yaml can match. Not inherited through extends.", default=(), kw_only=True,
        example=["production"])
    omits: tuple[str, ...] = key("Parts of the source model that this spec does not count, e.g. a vision tower. Every output lists them.",
        default=(), kw_only=True, example=["vision tower and projector"])
    extends: ClassVar[str] = key("Base spec: a file relative to this one, or catalog/NAME. Keys in this file override the base: mappings "
        "are merged, lists and scalars are replaced. name, tags, expect and waivers are not inherited.", longest=1000,
        example="gpt2-small.yaml", aliases="base inherits inherit extend")
    model: Model = group("The architecture. Omitted settings default to GPT-2's values.", kind=Model)
    training: ClassVar[object] = group("How the model is trained: the scenario named base. Sizes are per device.", kind=Training)
    cluster: ClassVar[object] = group(kind=Cluster, form="none")
    layout: ClassVar[object] = group(kind=Layout, form="none")
    scenarios: tuple[Scenario, ...] = key("Additional training configurations: a name plus overrides of training and layout.",
        derived="training alone", example=[{"name": "long", "sequence_length": 8192, "batch_size": 1}])
    serving: Serving | None = group(kind=Serving, form="none", default=None)
    waivers: tuple[Waiver, ...] = key("Budgets of planner.yaml that this model may exceed until a date; every report shows them. Not "
        "inherited through extends.", default=(), kw_only=True,
        example=[{"budget": "one-gpu", "reason": "until the optimizer is sharded", "until": "2027-01-31"}])
    claims: tuple[Claim, ...] = key("Expected values of the base scenario, by column of capacity.csv; every run checks them. Not inherited "
        "through extends.", path="expect", default=(), kw_only=True, aliases="expected expects claims",
        values={"params_total": "params parameters n_params num_params num_parameters total_params total_parameters params_count"})
    places: dict[tuple[str | int, ...], Place] = field(default_factory=dict, compare=False, repr=False)
    defaulted: tuple[str, ...] = ()  # dotted keys that the user did not write, in schema order
    written: Node | None = field(default=None, compare=False, repr=False)  # the tree it was resolved from, merged
