"""Parameters: the weights of the trace, each once."""

from __future__ import annotations

from planner.capacity.figures import COMPONENTS, Component, Parameters, Weight
from planner.trace.decoder import Trace
from planner.trace.nodes import operations
from planner.trace.primitives import LINEAR
from planner.trace.sizes import Size, total


def parameters(trace: Trace) -> Parameters[Size]:
    """Count the elements of every stored tensor. A tied LM head reads the token embedding and stores nothing."""
    factors = {tensor for operation, _ in operations(trace.nodes) if operation.flops.why for tensor in operation.inputs[:2]}
    weights = tuple(
        Weight(
            stored.name,
            stored.tensor.shape,
            stored.copies,
            _component(stored.component),
            stored.why,
            stored.always_float32,
            stored.active,
            stored.why == LINEAR or stored.tensor in factors or stored.tensor.cast_copy in factors,
            stored.trains,
            stored.tensor.dtype,
            stored.packing,
        )
        for stored in trace.parameters
    )
    by_component = {name: total(weight.params for weight in weights if weight.component == name) for name in COMPONENTS}
    active = total(weight.active_each * weight.copies for weight in weights)
    padding = total(stored.padding * stored.copies for stored in trace.parameters)
    return Parameters(weights, padding, total(by_component.values()), active, by_component, trace.correction_biases)


def _component(name: str) -> Component:
    for component in COMPONENTS:
        if component == name:
            return component
    raise ValueError(f"the trace stores a weight in the unknown component {name!r}")
