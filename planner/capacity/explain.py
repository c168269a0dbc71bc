"""The formula of each figure: the functions that compute it, run on symbols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.capacity.activations import saved_for_backward
from planner.capacity.figures import PHASES, Flops
from planner.capacity.flops import flops
from planner.capacity.parameters import parameters
from planner.capacity.plan import sum_by_component
from planner.capacity.states import states
from planner.capacity.step import step
from planner.capacity.symbols import SymbolicModel, symbolize
from planner.spec.records import Scenario, Spec
from planner.trace.decoder import trace
from planner.trace.sizes import Size, evaluate, text
from planner.trace.tape import Node, Operation, operations


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


def explain(spec: Spec, scenario: Scenario) -> tuple[Explanation, ...]:
    """Return every figure of a plan with its formula, rows before their totals."""
    return tuple(_explanations(symbolize(spec.model, scenario.training)))


def _explanations(names: SymbolicModel) -> Iterator[Explanation]:
    def line(group: str, figure: str, unit: str, size: Size, source: str, *, total: bool = False) -> Explanation:
        return Explanation(group, figure, evaluate(size, names.values), unit, text(size), text(size, names.values), source, total)

    forward = trace(names.model, names.training)
    counted = parameters(forward)
    model_states = states(counted.weights, names.training)
    for weight in counted.weights:
        yield line("parameters", weight.name, "params", weight.params, weight.formula)
    for component, size in counted.by_component.items():
        yield line("parameters", f"params_{component}", "params", size, "the sum of the component's weights", total=True)
    yield line("parameters", "params_total", "params", counted.total, "the sum of all weights, a tied head once", total=True)

    for state in model_states.lines:
        yield line("model states", state.part, "bytes", state.total_bytes, state.what)
    yield line("model states", "model_states_bytes", "bytes", model_states.total, "the sum of the parts", total=True)

    entries = saved_for_backward(forward.nodes).entries
    savers = _savers(forward.nodes)
    for entry in entries:
        figure = f"{entry.path or 'model'}: {entry.what}"
        yield line("activations", figure, "bytes", entry.bytes, savers.get((entry.path, entry.what), "saved by a checkpointed region"))
    by_component = sum_by_component(entries)
    for name, size in by_component.items():
        yield line("activations", f"activations in {name}", "bytes", size, "the sum of what the component saves", total=True)
    yield line("activations", "activations_bytes", "bytes", sum(by_component.values()), "each saved storage once", total=True)

    counts = flops(forward.nodes, counted, names.model, names.training)
    for operation, copies in [(operation, copies) for operation, copies in operations(forward.nodes) if operation.flops.why]:
        size = copies * operation.flops.full
        yield line("flops", f"{operation.path}: {operation.name}, forward", "FLOPs", size, _source(operation))
    for figure, size, source in _flops_totals(counts):
        yield line("flops", figure, "FLOPs", size, source, total=True)

    samples = step(forward, counted.weights, names.training, model_states).later
    values = [evaluate(sample.bytes, names.values) for sample in samples]
    for phase in PHASES:
        top = max((number for number, sample in enumerate(samples) if sample.phase == phase), key=lambda number: values[number])
        source = "model states, inputs, saved tensors, and the operator's memory"
        yield line("peak", f"{phase}, at {samples[top].operator}", "bytes", samples[top].bytes, source, total=True)


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
    if node.by is None:
        return node.name
    module = node.by.__module__.removeprefix("planner.")
    description = node.by.__doc__ or "no description: python -OO removes docstrings"
    return f"{module}.{node.by.__name__}: {description.strip().splitlines()[0]}"
