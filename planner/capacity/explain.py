"""The formula of each figure: the functions that compute it, run on symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from planner.capacity.activations import SavedEntry, saved_for_backward
from planner.capacity.figures import PHASES, Parameters, Phase
from planner.capacity.flops import by_component, flops
from planner.capacity.parameters import parameters
from planner.capacity.plan import sum_by_component
from planner.capacity.shares import Share, share
from planner.capacity.step import Step, peaks, step
from planner.capacity.symbols import SymbolicModel, symbolize
from planner.spec.records import Scenario, Spec, Training
from planner.trace.decoder import Trace, trace
from planner.trace.dominance import undominated
from planner.trace.nodes import Node, Operation, operations
from planner.trace.sizes import Size, evaluate, maximum, text, total


@dataclass(frozen=True, slots=True)
class Explanation:
    """A figure or one of its rows: value, formula, formula with numbers substituted, and source."""

    group: str  # "parameters", "model states", "devices", "activations", "flops", "peak"
    figure: str
    value: int
    unit: str
    formula: str
    substituted: str
    source: str
    is_total: bool = False


class Figure(NamedTuple):
    """A figure over symbols, or one of its rows."""

    group: str
    figure: str
    unit: str
    size: Size
    source: str
    is_total: bool = False

    def explained(self, values: Mapping[str, int]) -> Explanation:
        """Return its explanation with the values of its symbols."""
        made = evaluate(self.size, values), self.unit, text(self.size), text(self.size, values)
        return Explanation(self.group, self.figure, *made, self.source, self.is_total)


@dataclass(frozen=True)
class FigureFormulas:
    """The figures of a model over symbols, each group computed on first use. The operators of peaks depend on the symbols' values."""

    training: Training
    forward: Trace  # of the whole model
    device: Trace  # of one of several devices, if it has only a part

    @cached_property
    def parameters(self) -> Parameters[Size]:
        """The parameters."""
        return parameters(self.forward)

    @cached_property
    def held(self) -> Share:
        """What the device holds."""
        return share(self.device, parameters(self.device).weights, self.training)

    @cached_property
    def step(self) -> Step:
        """The memory of a training step."""
        return step(self.device, self.held, self.training)

    @cached_property
    def saved(self) -> list[SavedEntry]:
        """What is saved for backward."""
        return saved_for_backward(self.device.nodes, offload=self.training.offload_activations).entries

    @cached_property
    def totals(self) -> dict[str, tuple[Figure, ...]]:
        """The figures by component and part, and their totals, by group."""
        params = self.parameters.by_component
        saved = sum_by_component(self.saved)
        return {
            "parameters": (
                *(
                    _total("parameters", f"params_{name}", "params", size, "the sum of the component's weights")
                    for name, size in params.items()
                ),
                _total("parameters", "params_total", "params", self.parameters.total, "the sum of all weights, a tied head once"),
            ),
            "model states": (
                *(Figure("model states", state.part, "bytes", state.total_bytes, state.what) for state in self.held.states.lines),
                _total("model states", "model_states_bytes", "bytes", self.held.states.total, "the sum of the parts"),
            ),
            "devices": (
                *(_total("devices", what, "bytes", size, "allocated beside the states") for what, size in self.held.buffers),
                *(
                    _total("devices", f"{sent.collective}, spans {sent.spans} devices", "bytes", sent.bytes, "whole tensors of a step")
                    for sent in self.held.traffic
                ),
            ),
            "activations": (
                *(
                    _total("activations", f"activations in {name}", "bytes", size, "the sum of what the component saves")
                    for name, size in saved.items()
                ),
                _total("activations", "activations_bytes", "bytes", total(saved.values()), "each saved storage once"),
            ),
            "flops": tuple(
                _total("flops", f"forward FLOPs in {name}", "FLOPs", size, "the sum of the component's matrix products")
                for name, size in by_component(self.forward.nodes).items()
            ),
        }

    @cached_property
    def peak_bytes(self) -> Size:
        """The peak of a step with any values of the symbols."""
        return maximum(*undominated([phase.peak_bytes for phase in peaks(self.step)[0]]))

    def peak(self, phase: Phase, values: Mapping[str, int], operator: str = "") -> Figure:
        """Return the peak of a phase; it is found faster if its operator is known."""
        if phase == "optimizer":
            at, size = self.step.update, self.step.updates[0]
        else:
            at, size = self.step.later.highest_of(phase, values, operator)
            size = self.step.throughout_later + size
        return _total("peak", f"{phase}, at {at}", "bytes", size, "model states, inputs, saved tensors, and the operator's memory")


def explain(spec: Spec, scenario: Scenario) -> tuple[Explanation, ...]:
    """Return every figure of a plan with its formula, rows before their totals."""
    names = symbolize(spec.model, scenario.training)
    made = figure_formulas(names)
    peaks = (made.peak(phase, names.values) for phase in PHASES)
    return tuple(figure.explained(names.values) for figure in (*_figures(names, made), *peaks))


def figure_formulas(names: SymbolicModel) -> FigureFormulas:
    """Return the figures of a model over symbols. They do not depend on the symbols' values."""
    model, training = names.model, names.training
    whole = trace(model, replace(training, layout=None))
    return FigureFormulas(training, whole, trace(model, training) if training.layout else whole)


def _figures(names: SymbolicModel, made: FigureFormulas) -> Iterator[Figure]:
    nodes, totals = made.forward.nodes, made.totals
    for weight in made.parameters.weights:
        yield Figure("parameters", weight.name, "params", weight.params, weight.formula)
    yield from (*totals["parameters"], *totals["model states"], *totals["devices"])
    savers = _savers(made.device.nodes)
    for entry in made.saved:
        figure = f"{entry.path or 'model'}: {entry.what}"
        yield Figure("activations", figure, "bytes", entry.bytes, savers.get((entry.path, entry.what), "saved by a checkpointed region"))
    yield from totals["activations"]
    for operation, copies in [(operation, copies) for operation, copies in operations(nodes) if operation.flops.why]:
        size = copies * operation.flops.full
        yield Figure("flops", f"{operation.path}: {operation.name}, forward", "FLOPs", size, _source(operation))
    yield from totals["flops"]
    for count in flops(nodes, made.parameters, names.model, names.training).by_convention:
        per_token = (("forward", count.forward_per_token), ("train", count.train_per_token))
        for name, size in per_token:
            yield _total("flops", f"{name}_flops_per_token ({count.convention})", "FLOPs", size, count.description)


def _total(group: str, figure: str, unit: str, size: Size, source: str) -> Figure:
    return Figure(group, figure, unit, size, source, is_total=True)


def _savers(nodes: tuple[Node, ...]) -> dict[tuple[str, str], str]:
    """Return the source of the operator that saves each tensor, by path and description."""
    savers = [(operation, saved) for operation, _ in operations(nodes) for saved in operation.saved]
    return {(operation.path, f"{saved.what} of {operation.name}"): _source(operation) for operation, saved in savers}


def _source(node: Operation) -> str:
    """Return the function that defines an operator, and its docstring's first line."""
    return node.name if node.by is None else _described(node.by)


@cache
def _described(function: Callable[..., object]) -> str:
    module = function.__module__.removeprefix("planner.")
    description = function.__doc__ or "no description: python -OO removes docstrings"
    return f"{module}.{function.__name__}: {description.strip().splitlines()[0]}"
