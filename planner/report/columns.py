"""The columns of the CSV files, each stated once: its name, its unit, what it means, and how to read it off a plan.

The CSV, the data frame, the column reference in the Markdown report and the claims under ``expect`` all read these tables. Columns are
only ever appended: others rely on their names and their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.capacity.records import COMPONENTS, Component, Plan
from planner.report import paths, units

Cell = str | int | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of capacity.csv; a cell that has no value is empty."""

    name: str
    kind: Literal["text", "integer"]
    unit: str  # of the integers
    description: str
    read: Callable[[Plan], Cell]


def _text(name: str, description: str, read: Callable[[Plan], str]) -> Column:
    return Column(name, "text", "", description, read)


def _integer(name: str, unit: str, description: str, read: Callable[[Plan], int | None]) -> Column:
    return Column(name, "integer", unit, description, read)


def _params(component: Component, description: str) -> Column:
    def read(plan: Plan) -> int:
        return plan.parameters.by_component.get(component, 0)

    return _integer(f"params_{component}", "parameters", description, read)


def _train_gflop(plan: Plan) -> int | None:
    total = plan.flops.chosen.train_total
    return None if total is None else units.giga(total)


COLUMNS: tuple[Column, ...] = (
    _text("model", "the spec's name", lambda plan: plan.name),
    _text("scenario", "one of the spec's scenarios; base is the spec's own training", lambda plan: plan.scenario),
    _text(
        "spec",
        "the spec file from the current directory; outside it, its name alone",
        lambda plan: paths.shown(plan.spec_path),
    ),
    _integer("params_total", "parameters", "all parameters, a tied head once", lambda plan: plan.parameters.total),
    _integer("params_active", "parameters", "of them, those that one token uses", lambda plan: plan.parameters.active),
    _params("embedding", "the token table"),
    _params("position", "the table of learned positions"),
    _params("attention", "projections of attention with their biases"),
    _params("feed_forward", "matrices of the dense feed-forward with their biases"),
    _params("norm", "every normalisation, those of queries and keys included"),
    _params("head", "the output head; 0 when it is the token table"),
    _params("other", "whatever is none of these"),
    _integer("batch_size", "sequences", "B, per device and forward pass", lambda plan: plan.training.batch_size),
    _integer("sequence_length", "tokens", "n", lambda plan: plan.training.sequence_length),
    _text("precision", "data types of weights, gradients and computation", lambda plan: plan.training.precision),
    _text("optimizer", "whose state is counted", lambda plan: plan.training.optimizer),
    _text("recompute", "what the backward pass computes again instead of keeping", lambda plan: plan.training.recompute),
    _text("implementation", "whose kernels are modelled", lambda plan: plan.training.implementation),
    _integer("weights_bytes", "bytes", "the weights that the forward pass reads", lambda plan: plan.memory.weights_bytes),
    _integer("master_weights_bytes", "bytes", "the optimizer's fp32 copy of them", lambda plan: plan.memory.master_weights_bytes),
    _integer("gradients_bytes", "bytes", "one gradient per parameter", lambda plan: plan.memory.gradients_bytes),
    _integer("optimizer_bytes", "bytes", "the optimizer's state", lambda plan: plan.memory.optimizer_bytes),
    _integer("model_states_bytes", "bytes", "the sum of the four before and average_bytes", lambda plan: plan.memory.model_states_bytes),
    _integer(
        "activations_bytes",
        "bytes",
        "all that the forward pass leaves behind for backward, the loss's tensors and the token ids included",
        lambda plan: plan.memory.activations_bytes,
    ),
    _integer("logits_bytes", "bytes", "of them, copies of the logits", lambda plan: plan.memory.logits_bytes),
    _integer("peak_bytes", "bytes", "the most that is live at once in a training step", lambda plan: plan.memory.peak_bytes),
    _integer("forward_flops_per_token", "FLOP", "forward, averaged over n tokens", lambda plan: plan.flops.chosen.forward_per_token),
    _integer("train_flops_per_token", "FLOP", "forward and backward", lambda plan: plan.flops.chosen.train_per_token),
    _integer("train_tokens", "tokens", "of the whole training; empty when the spec does not say", lambda plan: plan.train_tokens),
    _integer("train_flops", "FLOP", "of the whole training; spreadsheets drop digits", lambda plan: plan.flops.chosen.train_total),
    _integer("train_gflop", "10⁹ FLOP", "train_flops in GFLOP, rounded to the nearest, halves up", _train_gflop),
    _text("flops_convention", "what the FLOPs of this row count, a multiply-add being 2", lambda plan: plan.flops.chosen.convention),
    _integer(
        "params_padding",
        "parameters",
        "of params_total, rows of the token table and of the head that no token uses",
        lambda plan: plan.parameters.padding_params,
    ),
    _params("ssm", "mixers that are not attention: state-space layers, linear attention, recurrences, convolutions"),
    _params("experts", "routed experts"),
    _params("shared_experts", "experts that every token takes"),
    _params("router", "what sends tokens to experts"),
    _integer(
        "params_prediction",
        "parameters",
        "of multi-token prediction; not in params_total",
        lambda plan: plan.parameters.prediction,
    ),
    _integer("average_bytes", "bytes", "a moving average of the weights", lambda plan: plan.memory.average_bytes),
)

# By which rules a figure is counted. The number is raised whenever the same spec comes out otherwise, so that whoever compares a saved
# report with today's figures can tell a change of the rules from a change of the model.
METHODS: Mapping[str, str] = {
    **{column.name: "parameters/1" for column in COLUMNS if column.name.startswith("params_")},
    **dict.fromkeys(("weights_bytes", "master_weights_bytes", "gradients_bytes", "optimizer_bytes", "average_bytes"), "states/1"),
    "model_states_bytes": "states/1",
    **dict.fromkeys(("activations_bytes", "logits_bytes"), "kept/1"),
    "peak_bytes": "peak/2",
    **dict.fromkeys(("forward_flops_per_token", "train_flops_per_token", "train_flops", "train_gflop"), "flops/2"),
}

CLAIMABLE: Mapping[str, Column] = {column.name: column for column in COLUMNS if column.kind == "integer"}


def row(plan: Plan) -> tuple[Cell, ...]:
    """Read the plan's row of capacity.csv."""
    return tuple(column.read(plan) for column in COLUMNS)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of components.csv that belong together: a quantity by component."""

    name: str
    unit: str
    description: str
    read: Callable[[Plan], Mapping[str, int]]


def _model_states(plan: Plan) -> Mapping[str, int]:
    memory = plan.memory
    return {
        "weights": memory.weights_bytes,
        "master_weights": memory.master_weights_bytes,
        "gradients": memory.gradients_bytes,
        "optimizer": memory.optimizer_bytes,
        "average": memory.average_bytes,
    }


GROUPS: tuple[Group, ...] = (
    Group(
        "parameters",
        "parameters",
        "by component; the sum is params_total",
        lambda plan: {component: plan.parameters.by_component.get(component, 0) for component in COMPONENTS},
    ),
    Group("model_states", "bytes", "by part; the sum is model_states_bytes", _model_states),
    Group("activations", "bytes", "by component; the sum is activations_bytes", lambda plan: plan.memory.activations_by_component),
    Group(
        "peak",
        "bytes",
        "the most that is live at once, by phase of a step; the largest is peak_bytes",
        lambda plan: {phase.phase: phase.peak_bytes for phase in plan.memory.phases},
    ),
    Group(
        "forward_flops",
        "FLOP",
        "one forward pass of B sequences by component: all matrix products, the full attention square",
        lambda plan: {component: plan.flops.forward_by_component.get(component, 0) for component in COMPONENTS},
    ),
    Group(
        "train_flops_per_step",
        "FLOP",
        "one optimizer step under each convention; alternatives, not parts",
        lambda plan: {count.convention: count.train_per_step for count in plan.flops.by_convention},
    ),
)


class ComponentRow(NamedTuple):
    """One row of components.csv; the fields are its columns."""

    model: str
    scenario: str
    group: str
    component: str
    quantity: int
    unit: str


COMPONENT_COLUMNS = ComponentRow._fields


def component_rows(plan: Plan) -> Iterator[ComponentRow]:
    """Read the plan's rows of components.csv, zeros included, so that every plan has the same rows."""
    for group in GROUPS:
        for component, quantity in group.read(plan).items():
            yield ComponentRow(plan.name, plan.scenario, group.name, component, quantity, group.unit)
