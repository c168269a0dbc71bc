"""Where each figure comes from: the functions that computed it, run once more over symbols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.capacity.activations import kept
from planner.capacity.figures import PHASES, Flops
from planner.capacity.flops import flops
from planner.capacity.parameters import parameters
from planner.capacity.plan import sums
from planner.capacity.states import states
from planner.capacity.step import step
from planner.capacity.symbols import SymbolicModel, symbolize
from planner.spec.records import Scenario, Spec
from planner.trace.decoder import trace
from planner.trace.sizes import Size, evaluate, text
from planner.trace.tape import Node, Operation, operations


@dataclass(frozen=True, slots=True)
class Explanation:
    """A figure, or one of the rows that it sums: its value, its formula, the formula with the numbers put in, and who says so."""

    group: str  # "parameters", "model states", "activations", "flops", "peak"
    figure: str
    value: int
    unit: str
    formula: str
    substituted: str
    source: str
    is_total: bool = False


def explain(spec: Spec, scenario: Scenario) -> tuple[Explanation, ...]:
    """Return every figure of a plan with its formula, rows before the totals that they add up to."""
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

    keepings = kept(forward.nodes).keepings
    keepers = _keepers(forward.nodes)
    for keeping in keepings:
        figure = f"{keeping.path or 'model'}: {keeping.what}"
        yield line("activations", figure, "bytes", keeping.bytes, keepers.get((keeping.path, keeping.what), "kept by a recomputed stretch"))
    by_component = sums(keepings)
    for name, size in by_component.items():
        yield line("activations", f"activations in {name}", "bytes", size, "the sum of what the component keeps", total=True)
    yield line("activations", "activations_bytes", "bytes", sum(by_component.values()), "each kept storage once", total=True)

    counts = flops(forward.nodes, counted, names.model, names.training)
    products = [(operation, copies) for operation, copies in operations(forward.nodes) if operation.flops.why]
    for operation, copies in products:
        size = copies * operation.flops.full
        yield line("flops", f"{operation.path}: {operation.name}, forward", "FLOPs", size, _source(operation))
    for figure, size, source in _flops_totals(counts):
        yield line("flops", figure, "FLOPs", size, source, total=True)

    moments = step(forward, counted.weights, names.training, model_states).later
    worth = [evaluate(moment.bytes, names.values) for moment in moments]
    for phase in PHASES:
        top = max((number for number, moment in enumerate(moments) if moment.phase == phase), key=lambda number: worth[number])
        source = "model states, inputs, what is kept, and what the operator needs"
        yield line("peak", f"{phase}, at {moments[top].operator}", "bytes", moments[top].bytes, source, total=True)


def _keepers(nodes: tuple[Node, ...]) -> dict[tuple[str, str], str]:
    """Return for the path of each kept tensor, and what it is, the docstring of the operator that keeps it."""
    keepers = [(operation, saved) for operation, _ in operations(nodes) for saved in operation.saved]
    return {(operation.path, f"{saved.what} of {operation.name}"): _source(operation) for operation, saved in keepers}


def _flops_totals(counts: Flops[Size]) -> Iterator[tuple[str, Size, str]]:
    for name, size in counts.forward_by_component.items():
        yield f"forward FLOPs in {name}", size, "the sum of the component's matrix products"
    for count in counts.by_convention:
        yield f"forward_flops_per_token ({count.convention})", count.forward_per_token, count.description
        yield f"train_flops_per_token ({count.convention})", count.train_per_token, count.description


def _source(node: Operation) -> str:
    """Return where an operator's rules are stated, and its docstring's first line."""
    if node.by is None:
        return node.name
    module = node.by.__module__.removeprefix("planner.")
    description = node.by.__doc__ or "no description: python -OO removes docstrings"
    return f"{module}.{node.by.__name__}: {description.strip().splitlines()[0]}"
