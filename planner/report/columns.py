"""The columns of the CSV files, each stated once: its name, unit, meaning, method and tier, and how to read it from a plan.

Every report, comparison and review, and the values under ``expect``, read these tables. Columns are only ever appended: others rely on
their names and their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Literal, NamedTuple

from planner.capacity.figures import COMPONENTS, Component, Fleet, FlopsCount, Parameters, Plan, Prediction
from planner.capacity.pool import Pool
from planner.capacity.served import Bounds, Pooled, Served
from planner.report import time, units
from planner.report.paths import display_path
from planner.time.estimate import Estimate
from planner.time.training import WholeTraining

Cell = str | int | None

# Where a column is listed: in the table of ``planner run`` and everywhere below; in the overviews of reports and reviews and below; in
# comparisons of all figures and below; only in files.
Tier = Literal["summary", "overview", "figure", "file"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of capacity.csv."""

    name: str
    unit: str  # of integers
    # How it is counted; empty for what a spec states. The number is raised whenever the result for an unchanged spec changes, so that a
    # comparison with a saved report can distinguish a change of the method from a change of the model.
    method: str
    description: str
    read: Callable[[Plan], Cell]
    tier: Tier = "figure"
    heading: str = ""  # in overviews
    may_be_empty: bool = False
    kind: Literal["text", "integer"] = "integer"

    def value(self, plan: Plan) -> int | None:
        """Return the integer of a plan; None if it has none."""
        cell = self.read(plan)
        return cell if isinstance(cell, int) else None


_optional = partial(Column, may_be_empty=True)
_PARAMETERS, _STATES, _SAVED, _PEAK, _FLOPS = "parameters/1", "states/2", "kept/2", "peak/2", "flops/2"
_TRAFFIC = "communicated/1"
_SERVED, _BOUND = "serving/1", "roofline/1"
TIME = "time/1"  # the method of columns that are estimates, not integers of formulas


def _text(name: str, description: str, read: Callable[[Plan], str], *, may_be_empty: bool = False) -> Column:
    return Column(name, "", "", description, read, "file", may_be_empty=may_be_empty, kind="text")


def _params(name: str, description: str, read: Callable[[Parameters], int], tier: Tier = "figure", heading: str = "") -> Column:
    return Column(f"params_{name}", "parameters", _PARAMETERS, description, lambda plan: read(plan.parameters), tier, heading)


def _component(name: Component, description: str) -> Column:
    return _params(name, description, lambda parameters: parameters.by_component.get(name, 0))


def _bytes(name: str, method: str, description: str, tier: Tier = "figure", heading: str = "") -> Column:
    """Return the column of a field of ``Memory``, which has the same name."""
    field = f"{name}_bytes"
    return Column(field, "bytes", method, description, lambda plan: getattr(plan.memory, field), tier, heading)


def _flops(name: str, description: str, read: Callable[[FlopsCount], int], tier: Tier = "figure", heading: str = "") -> Column:
    return Column(name, "FLOP", _FLOPS, description, lambda plan: read(plan.flops.chosen), tier, heading)


def _added(name: str, unit: str, method: str, description: str, read: Callable[[Prediction], int]) -> Column:
    meaning = f"{description} of the multi-token prediction (MTP) layers; in the totals only if training.count_prediction is true"
    return Column(f"prediction_{name}", unit, method, meaning, lambda plan: read(plan.prediction) if plan.prediction else 0)


def _on_devices(name: str, unit: str, method: str, description: str, read: Callable[[Fleet], int], tier: Tier = "figure") -> Column:
    return _optional(name, unit, method, description, lambda plan: read(plan.fleet) if plan.fleet else None, tier)


def _timed(name: str, unit: str, description: str, read: Callable[[Estimate], float]) -> Column:
    return _optional(name, unit, TIME, description, lambda plan: time.estimated(plan, read))


def _whole(name: str, unit: str, description: str, read: Callable[[WholeTraining], Fraction | None]) -> Column:
    return _optional(name, unit, TIME, description, lambda plan: time.trained(plan, read))


def _tuned(name: str, description: str, read: Callable[[Parameters], int]) -> Column:
    counted = _params(name, description, read)
    return replace(counted, read=lambda plan: read(plan.parameters) if plan.fine_tuned else None, may_be_empty=True)


def _served(name: str, unit: str, description: str, read: Callable[[Served | Pooled], int | None]) -> Column:
    return _optional(f"serving_{name}", unit, _SERVED, description, lambda plan: read(plan.served) if plan.served else None)


def _of_passes(name: str, unit: str, description: str, read: Callable[[Served], int | None]) -> Column:
    """Return the column of a figure of transformers, whose passes are modeled."""
    return _served(name, unit, description, lambda one: read(one) if isinstance(one, Served) else None)


def _of_pool(name: str, unit: str, description: str, read: Callable[[Pool], int | None]) -> Column:
    """Return the column of a figure of an engine with a pool of memory for the cache."""
    return _served(name, unit, description, lambda one: read(one.pool) if isinstance(one, Pooled) else None)


def _bound(name: str, unit: str, description: str, read: Callable[[Bounds], int]) -> Column:
    return replace(_served(name, unit, description, lambda one: read(one.bounds) if one.bounds else None), method=_BOUND)


def communicated(fleet: Fleet) -> int:
    """Return the bytes of all collectives of a step."""
    return sum(one.bytes for one in fleet.traffic)


def _train_gflop(plan: Plan) -> int | None:
    total = plan.flops.chosen.train_total
    return None if total is None else units.giga(total)


COLUMNS: tuple[Column, ...] = (
    _text("model", "the spec's name", lambda plan: plan.name),
    _text("scenario", "one of the spec's scenarios; base is the spec's own training", lambda plan: plan.scenario),
    _text("spec", "the spec file from the current directory; outside it, its name alone", lambda plan: display_path(plan.spec_path)),
    _params("total", "all parameters; tied weights counted once", lambda parameters: parameters.total, "summary", "parameters"),
    _params("active", "active parameters per token", lambda parameters: parameters.active),
    _component("embedding", "token embedding"),
    _component("position", "learned position embedding"),
    _component("attention", "attention projections and their biases"),
    _component("feed_forward", "dense feed-forward matrices and their biases"),
    _component("norm", "all norms, including QK norm"),
    _component("head", "LM head; 0 when tied to the token embedding"),
    _component("other", "everything else"),
    Column(
        "batch_size", "sequences", "", "micro-batch size B per device; no batch is padded", lambda plan: plan.training.batch_size, "file"
    ),
    Column("sequence_length", "tokens", "", "sequence length n", lambda plan: plan.training.sequence_length, "file"),
    _text("precision", "data types of weights, gradients and computation", lambda plan: plan.training.precision),
    _text("optimizer", "optimizer whose state is included", lambda plan: plan.training.optimizer),
    _text("recompute", "activation recomputation: none, selective or full", lambda plan: plan.training.recompute),
    _text("implementation", "implementation whose kernels are modeled", lambda plan: plan.training.implementation),
    _bytes("weights", _STATES, "weights that the forward pass reads"),
    _bytes("master_weights", _STATES, "fp32 copy of the weights, kept by the optimizer"),
    _bytes("gradients", _STATES, "gradients, one per parameter"),
    _bytes("optimizer", _STATES, "optimizer state"),
    _bytes("model_states", _STATES, "weights + master weights + gradients + optimizer state + EMA", "summary", "model states"),
    _bytes("activations", _SAVED, "tensors saved for backward, including the loss's and the token IDs", "summary", "activations"),
    _bytes("logits", _SAVED, "part of activations_bytes: logits and their copies"),
    _bytes("peak", _PEAK, "peak allocated memory of a training step", "summary", "peak"),
    _flops("forward_flops_per_token", "forward pass, averaged over n tokens", lambda flops: flops.forward_per_token),
    _flops("train_flops_per_token", "forward and backward pass", lambda flops: flops.train_per_token, "summary", "train FLOPs per token"),
    _optional("train_tokens", "tokens", "", "total training tokens; empty if the spec gives none", lambda plan: plan.train_tokens),
    _optional(
        "train_flops",
        "FLOP",
        _FLOPS,
        "total training FLOPs; too large for a spreadsheet to hold exactly",
        lambda plan: plan.flops.chosen.train_total,
        "overview",
        "train FLOPs",
    ),
    _optional("train_gflop", "10⁹ FLOP", _FLOPS, "train_flops in GFLOP, rounded to the nearest integer, halves up", _train_gflop, "file"),
    _text("flops_convention", "what the FLOPs of this row count; 1 multiply-add = 2 FLOPs", lambda plan: plan.flops.chosen.convention),
    _params(
        "padding", "part of params_total: padding rows of the token embedding and the LM head", lambda parameters: parameters.padding_params
    ),
    _component("ssm", "non-attention token mixers: state-space layers, linear attention, recurrences, convolutions"),
    _component("experts", "routed experts"),
    _component("shared_experts", "shared experts"),
    _component("router", "routers (gates)"),
    Column(
        "params_prediction",
        "parameters",
        _PARAMETERS,
        "multi-token prediction (MTP) layers as a checkpoint stores them, with copies of token embedding and LM head; not in params_total",
        lambda plan: plan.prediction.stored_params if plan.prediction else 0,
    ),
    _bytes("average", _STATES, "EMA of the weights"),
    _added("trained_params", "parameters", _PARAMETERS, "trained parameters; embedding and LM head are shared", lambda more: more.params),
    _added("active_params", "parameters", _PARAMETERS, "active parameters per token", lambda more: more.active_params),
    _added("model_states_bytes", "bytes", _STATES, "model states", lambda more: more.model_states_bytes),
    _added("activations_bytes", "bytes", _SAVED, "activations", lambda more: more.activations_bytes),
    _added("peak_bytes", "bytes", _PEAK, "peak memory", lambda more: more.peak_bytes),
    _added("forward_flops_per_token", "FLOP", _FLOPS, "forward FLOPs per token", lambda more: more.forward_flops_per_token),
    _added("train_flops_per_token", "FLOP", _FLOPS, "training FLOPs per token", lambda more: more.train_flops_per_token),
    _text(
        "omits",
        "parts of the source model that are in no value of this row, separated by semicolons; empty if all are counted",
        lambda plan: "; ".join(plan.omits),
        may_be_empty=True,
    ),
)

ON_DEVICES: tuple[Column, ...] = (
    _on_devices("devices", "devices", "", "devices of the cluster", lambda one: one.layout.cluster.devices, "file"),
    _on_devices("params_per_device", "parameters", _PARAMETERS, "parameters stored on a device, padding included", lambda one: one.params),
    _on_devices("communicated_bytes", "bytes", _TRAFFIC, "whole tensors of all collectives of one device and step", communicated),
    _on_devices("device_bytes", "bytes", "", "memory of one device", lambda one: one.layout.cluster.memory_bytes, "file"),
    _on_devices("reserved_bytes", "bytes", "", "part of device_bytes kept free", lambda one: one.layout.cluster.reserve_bytes, "file"),
    _on_devices(
        "free_bytes", "bytes", _PEAK, "device_bytes - reserved_bytes - peak_bytes; negative: too large", lambda one: one.free_bytes
    ),
    _timed("step_us", "µs", "time of a step, estimated", lambda one: one.seconds * 1e6),
    _timed("step_us_low", "µs", "time of a step below which 10 % of published runs of its class are", lambda one: one.low * 1e6),
    _timed("step_us_high", "µs", "time of a step above which 10 % of published runs of its class are", lambda one: one.high * 1e6),
    _timed("tokens_per_s_per_device", "tokens/s", "tokens per second and device", lambda one: one.tokens_per_second_per_device),
    _timed("mfu_permille", "‰", "model FLOPs, attention causal, over the dense peak in 16 or 32 bits", lambda one: one.mfu * 1000),
    _timed("hfu_permille", "‰", "executed FLOPs, recomputation included, over the same peak", lambda one: one.hfu * 1000),
    _whole("device_hours", "hours", "device hours of the whole training, over cluster.availability", lambda one: one.device_hours),
    _whole("days", "days", "days of the whole training", lambda one: one.days),
    _whole("energy_kwh", "kWh", "energy of the devices at rated power, times PUE", lambda one: one.energy_kwh),
    _whole("co2_kg", "kg", "CO2 of that energy", lambda one: one.co2_kg),
    _whole("cost", "currency units", "device hours times price, in the currency of cluster.price", lambda one: one.cost),
)
"""Columns of specs with a cluster. A file has them, after all others, if a plan has one. They are of the device with the largest peak."""


FINE_TUNED: tuple[Column, ...] = (
    _tuned("trained", "parameters that train", lambda parameters: parameters.trained),
    _tuned("adapters", "adapters, and copies of weights that train beside them", lambda parameters: parameters.by_component["adapters"]),
)
"""Columns of specs that freeze weights. A file has them, after all others, if a plan does so."""


SERVED: tuple[Column, ...] = (
    _served("weights_bytes", "bytes", "weights on each device", lambda one: one.weights_bytes),
    _of_passes("cache_bytes", "bytes", "cache after the prompts", lambda one: one.cache_bytes),
    _of_passes("cache_after_bytes", "bytes", "cache after the outputs", lambda one: one.cache_after_bytes),
    _of_passes("prefill_peak_bytes", "bytes", "peak of the pass over the prompts", lambda one: one.prefill.peak_bytes),
    _of_passes("peak_bytes", "bytes", "largest peak of all passes", lambda one: one.peak_bytes),
    _of_passes("free_bytes", "bytes", "memory of the device less the largest peak; negative: too large", lambda one: one.free_bytes),
    _of_passes("prefill_flops", "FLOP", "pass over the prompts, as PyTorch counts FLOPs", lambda one: one.prefill.flops),
    _of_passes("first_token_flops", "FLOP", "pass over the first decoded token of each sequence", lambda one: one.first.flops),
    _of_passes("last_token_flops", "FLOP", "pass over the last decoded token of each sequence", lambda one: one.last.flops),
    _of_pool("request_bytes", "bytes", "cache of one request on each device", lambda one: one.request_bytes),
    _of_pool("requests_bytes", "bytes", "cache of all requests on each device", lambda one: one.all_bytes),
    _of_pool("pool_bytes", "bytes", "memory for the cache on each device", lambda one: one.pool_bytes),
    _of_pool("pool_tokens", "tokens", "tokens for which the pool has room", lambda one: one.tokens),
    _of_pool("requests", "requests", "whole requests that fit at once", lambda one: one.requests),
    _bound("first_token_us", "µs", "least time of the pass over the prompts: a bound", lambda one: floor(one.prefill.seconds * 1e6)),
    _bound(
        "tokens_per_s", "tokens/s", "most tokens decoded per second, of all sequences: a bound", lambda one: ceil(one.all_tokens_per_second)
    ),
)
"""Columns of specs with a section ``serving``, in a file of their own: figures of the base scenario."""


def columns_of(plans: Iterable[Plan]) -> tuple[Column, ...]:
    """Return the columns of a file with these plans."""
    every = tuple(plans)
    on_devices, tuned = any(plan.fleet for plan in every), any(plan.fine_tuned for plan in every)
    return (*COLUMNS, *(ON_DEVICES if on_devices else ()), *(FINE_TUNED if tuned else ()))


RATES = ("tokens_per_s_per_device", "mfu_permille", "hfu_permille")
"""Estimates that are large if a step is short."""


CLAIMABLE: Mapping[str, Column] = {
    column.name: column for column in (*COLUMNS, *ON_DEVICES, *FINE_TUNED, *SERVED) if column.kind == "integer"
}
SERVING_FIGURES = frozenset(column.name for column in SERVED)
METHODS: Mapping[str, str] = {name: column.method for name, column in CLAIMABLE.items() if column.method}
FIGURES: Mapping[str, Column] = {name: column for name, column in CLAIMABLE.items() if column.tier != "file"}
OVERVIEW: Mapping[str, Column] = {name: column for name, column in FIGURES.items() if column.tier != "figure"}


def row(plan: Plan, columns: Iterable[Column] = COLUMNS) -> tuple[Cell, ...]:
    """Return the plan's row of capacity.csv."""
    return tuple(column.read(plan) for column in columns)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of components.csv that belong together: a quantity by component."""

    name: str
    unit: str
    description: str
    read: Callable[[Plan], Mapping[str, int]]


def _model_states(plan: Plan) -> Mapping[str, int]:
    return {name: getattr(plan.memory, f"{name}_bytes") for name in ("weights", "master_weights", "gradients", "optimizer", "average")}


def _by_component(plan: Plan, quantities: Mapping[Component, int]) -> Mapping[str, int]:
    return {name: quantities.get(name, 0) for name in COMPONENTS if name != "adapters" or plan.fine_tuned}


def _activations(plan: Plan) -> Mapping[str, int]:
    return {name: size for name, size in plan.memory.activations_by_component.items() if name != "adapters" or plan.fine_tuned}


GROUPS: tuple[Group, ...] = (
    Group(
        "parameters",
        "parameters",
        "by component; the sum is params_total",
        lambda plan: _by_component(plan, plan.parameters.by_component),
    ),
    Group("model_states", "bytes", "by part; the sum is model_states_bytes", _model_states),
    Group("activations", "bytes", "by component; the sum is activations_bytes", _activations),
    Group(
        "peak",
        "bytes",
        "peak allocated memory by phase of a step; the largest is peak_bytes",
        lambda plan: {phase.phase: phase.peak_bytes for phase in plan.memory.phases},
    ),
    Group(
        "forward_flops",
        "FLOP",
        "one forward pass of B sequences by component: all matrix multiplications; attention as the full n × n matrix",
        lambda plan: _by_component(plan, plan.flops.forward_by_component),
    ),
    Group(
        "train_flops_per_step",
        "FLOP",
        "one optimizer step, one row per FLOPs convention (do not sum)",
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
    """Yield the plan's rows of components.csv, zeros included, so that every plan has the same rows."""
    for group in GROUPS:
        for component, quantity in group.read(plan).items():
            yield ComponentRow(plan.name, plan.scenario, group.name, component, quantity, group.unit)
