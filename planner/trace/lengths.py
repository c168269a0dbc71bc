"""The sequence lengths at which the operators of a model change."""

from __future__ import annotations

from planner.spec.records import GatedDeltaNet, KimiDeltaAttention, Model, Training
from planner.trace.implementations import named
from planner.trace.mixers.delta_rule import CHUNK


def structure_starts(model: Model, training: Training) -> tuple[int, ...]:
    """Return the sequence lengths, ascending, from which on layers run other operators.

    From its window on, fused attention gets a mask; from the second chunk on, a delta rule reads states.
    """
    its = named(training.implementation)
    layers = [layer for run in model.runs for layer in run.layers]
    windows = {layer.attention.window for layer in layers if layer.attention and layer.attention.window is not None}
    plain = its.plain_mixers and training.mixer_kernels == "plain"
    rules = any(isinstance(mixer, GatedDeltaNet | KimiDeltaAttention) for layer in layers for mixer in layer.mixers)
    return tuple(sorted((windows if its.masks_from_window else set()) | ({CHUNK + 1} if plain and rules else set())))
