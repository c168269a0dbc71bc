"""One model in one scenario: the trace and the recipe, turned into figures."""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import cast

from planner.capacity.activations import OWN_LINES, Keeping, kept
from planner.capacity.flops import flops
from planner.capacity.parameters import parameters
from planner.capacity.records import COMPONENTS, Kept, Memory, Plan, ShapeLine, Weight
from planner.capacity.states import States, states
from planner.capacity.step import highest, not_counted, step
from planner.spec.records import Scenario, Spec, Training
from planner.trace.decoder import Trace, trace
from planner.trace.refusal import NotModelledError
from planner.trace.sizes import Size, maximum, structure


def plan(spec: Spec, scenario: Scenario) -> Plan:
    """Return everything that the spec's model takes in a scenario.

    Raises NotModelledError, with the spec's path in front, for what the trace cannot say.
    """
    model, training = spec.model, scenario.training
    try:
        forward = trace(model, training)
    except NotModelledError as error:
        raise NotModelledError(f"{spec.path}: error[not-modelled]: scenario {scenario.name} of {spec.name}: {error}") from None
    counted = parameters(forward)
    made: Plan[Size] = Plan(
        name=spec.name,
        scenario=scenario.name,
        spec_path=spec.path,
        model=model,
        training=training,
        parameters=counted,
        memory=memory(forward, counted.weights, training, states(counted.weights, training)),
        flops=flops(forward.nodes, counted, model, training),
        shapes=tuple(ShapeLine(line.path, line.what, line.tensor.shape, line.tensor.dtype, line.copies) for line in forward.shapes),
        initial_loss=log(structure(model.vocab_size)),
        train_tokens=training.tokens,
        not_counted=(*forward.not_counted, *not_counted(training)),
    )
    return cast("Plan", made)  # a model of integers has figures that are integers


def plans(spec: Spec) -> tuple[Plan, ...]:
    """Plan every scenario, the base scenario first."""
    return tuple(plan(spec, scenario) for scenario in spec.scenarios)


def memory(forward: Trace, weights: tuple[Weight[Size], ...], training: Training, model_states: States) -> Memory[Size]:
    """Return the bytes of a training step on one device that holds the whole model."""
    keepings = kept(forward.nodes).keepings
    by_component = sums(keepings)
    a_step = step(forward, weights, training, model_states)
    phases, first_phases = highest(a_step.later), highest(a_step.first)
    return Memory(
        states=model_states.lines,
        weights_bytes=model_states.weights,
        master_weights_bytes=model_states.master_weights,
        gradients_bytes=model_states.gradients,
        optimizer_bytes=model_states.optimizer,
        model_states_bytes=model_states.total,
        kept=tuple(line for line in map(_line, keepings) if line.bytes_each != 0 and line.copies != 0),
        activations_bytes=sum(by_component.values()),
        activations_by_component=by_component,
        logits_bytes=by_component["logits"],
        phases=phases,
        peak_bytes=maximum(*(phase.peak_bytes for phase in phases)),
        first_step_phases=first_phases,
        first_step_peak_bytes=maximum(*(phase.peak_bytes for phase in first_phases)),
        live=a_step.live,
        average_bytes=model_states.average,
        step_counters_bytes=model_states.step_counters,
        buffers_bytes=forward.buffers_bytes,
    )


def sums(keepings: Iterable[Keeping]) -> dict[str, Size]:
    """Return the bytes kept by component, and in the lines of their own."""
    by_component: dict[str, Size] = dict.fromkeys((*COMPONENTS, *OWN_LINES), 0)
    for keeping in keepings:
        by_component[keeping.component] = by_component[keeping.component] + keeping.bytes
    return by_component


def _line(keeping: Keeping) -> Kept[Size]:
    storage = keeping.storage
    each = storage.bytes * keeping.times
    return Kept(keeping.path, keeping.what, storage.shape, storage.dtype, each, keeping.copies, keeping.component)
