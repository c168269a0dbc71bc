"""The formula of each figure: the functions that compute it, run on symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from planner.capacity.activations import saved_for_backward
from planner.capacity.figures import PHASES, Flops, Parameters, Phase
from planner.capacity.flops import flops
from planner.capacity.parameters import parameters
from planner.capacity.plan import sum_by_component
from planner.capacity.shares import alone
from planner.capacity.states import States
from planner.capacity.step import Step, step
from planner.capacity.symbols import SymbolicModel, symbolize
from planner.spec.records import Scenario, Spec
from planner.trace.decoder import Trace, trace
from planner.trace.sizes import Size, evaluate, text
from planner.trace.tape import Node, Operation, Shape, operations


@dataclass(frozen=True, slots=True)
class Explanation:
    """A figure or one of its rows: value, formula, formula with numbers substituted, and source."""

    group: str  # "parameters", "model states", "activations", "flops", "peak"
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


@dataclass(frozen=True, slots=True)
class FigureFormulas:
    """The figures of a model over symbols, but the peaks, which depend on the symbols' values; and its shapes from ids to logits."""

    figures: tuple[Figure, ...]
    shapes: tuple[Shape, ...]
    step: Step

    def peak(self, phase: Phase, values: Mapping[str, int], operator: str = "") -> Figure:
        """Return the peak of a phase; it is found faster if the operator is known, by its name before ``at``."""
        update = self.step.updates[0]
        samples = (*self.step.samples, update)
        candidates = [sample for sample in samples if sample.phase == phase and sample.operator.startswith(operator)]
        top = max(candidates, key=lambda sample: evaluate(sample.bytes, values)) if len(candidates) > 1 else candidates[0]
        size = top.bytes if top is update else self.step.later + top.bytes
        source = "model states, inputs, saved tensors, and the operator's memory"
        return Figure("peak", f"{phase}, at {top.operator}", "bytes", size, source, is_total=True)


def explain(spec: Spec, scenario: Scenario) -> tuple[Explanation, ...]:
    """Return every figure of a plan with its formula, rows before their totals."""
    names = symbolize(spec.model, scenario.training)
    made = figure_formulas(names)
    peaks = (made.peak(phase, names.values) for phase in PHASES)
    return tuple(figure.explained(names.values) for figure in (*made.figures, *peaks))


def figure_formulas(names: SymbolicModel) -> FigureFormulas:
    """Return the figures of a model over symbols. They do not depend on the symbols' values."""
    forward = trace(names.model, names.training)
    counted = parameters(forward)
    held = alone(forward, counted.weights, names.training)
    figures = tuple(_figures(names, forward, counted, held.states))
    return FigureFormulas(figures, forward.shapes, step(forward, held, names.training))


def _figures(names: SymbolicModel, forward: Trace, counted: Parameters[Size], model_states: States) -> Iterator[Figure]:
    for weight in counted.weights:
        yield Figure("parameters", weight.name, "params", weight.params, weight.formula)
    for component, size in counted.by_component.items():
        yield Figure("parameters", f"params_{component}", "params", size, "the sum of the component's weights", is_total=True)
    yield Figure("parameters", "params_total", "params", counted.total, "the sum of all weights, a tied head once", is_total=True)

    for state in model_states.lines:
        yield Figure("model states", state.part, "bytes", state.total_bytes, state.what)
    yield Figure("model states", "model_states_bytes", "bytes", model_states.total, "the sum of the parts", is_total=True)

    entries = saved_for_backward(forward.nodes).entries
    savers = _savers(forward.nodes)
    for entry in entries:
        figure = f"{entry.path or 'model'}: {entry.what}"
        yield Figure("activations", figure, "bytes", entry.bytes, savers.get((entry.path, entry.what), "saved by a checkpointed region"))
    by_component = sum_by_component(entries)
    for name, size in by_component.items():
        yield Figure("activations", f"activations in {name}", "bytes", size, "the sum of what the component saves", is_total=True)
    yield Figure("activations", "activations_bytes", "bytes", sum(by_component.values()), "each saved storage once", is_total=True)

    counts = flops(forward.nodes, counted, names.model, names.training)
    for operation, copies in [(operation, copies) for operation, copies in operations(forward.nodes) if operation.flops.why]:
        size = copies * operation.flops.full
        yield Figure("flops", f"{operation.path}: {operation.name}, forward", "FLOPs", size, _source(operation))
    for figure, size, source in _flops_totals(counts):
        yield Figure("flops", figure, "FLOPs", size, source, is_total=True)


def _flops_totals(counts: Flops[Size]) -> Iterator[tuple[str, Size, str]]:
    for name, size in counts.forward_by_component.items():
        yield f"forward FLOPs in {name}", size, "the sum of the component's matrix products"
    for count in counts.by_convention:
        yield f"forward_flops_per_token ({count.convention})", count.forward_per_token, count.description
        yield f"train_flops_per_token ({count.convention})", count.train_per_token, count.description


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
