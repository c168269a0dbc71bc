"""Activation memory around the batch size and the sequence length of a scenario."""

from __future__ import annotations

from dataclasses import dataclass

from planner import capacity
from planner.spec.records import Scenario, Spec

_POINTS = 5  # of a curve
_BELOW = 3  # of them, up to the chosen one if there is room above it

Curve = tuple[tuple[int, int], ...]  # sizes and bytes, both ascending


@dataclass(frozen=True, slots=True)
class Curves:
    """Activation bytes by sequence length and by batch size; the other one is the scenario's."""

    by_length: Curve
    by_batch: Curve


def activations(spec: Spec, scenario: Scenario) -> Curves:
    """Return activation memory over n and over B."""
    import numpy as np

    training, model = scenario.training, spec.model
    lengths = _around(training.sequence_length, model.context_length if model.positions.type == "learned" else None)
    batches = _around(training.batch_size, None)
    B = np.array([training.batch_size] * len(lengths) + batches, dtype=np.int64)
    n = np.array(lengths + [training.sequence_length] * len(batches), dtype=np.int64)
    (found,) = capacity.step_formulas(spec, scenario).at(B, n, lambda plan: plan.memory.activations_bytes)
    saved = [int(size) for size in np.broadcast_to(np.asarray(found), B.shape)]
    return Curves(tuple(zip(lengths, saved[: len(lengths)], strict=True)), tuple(zip(batches, saved[len(lengths) :], strict=True)))


def _around(chosen: int, most: int | None) -> list[int]:
    """Return halvings and doublings of the chosen size, in order, up to ``most``."""
    above = [chosen << power for power in range(_POINTS) if most is None or chosen << power <= most]
    below = [chosen >> power for power in range(1, _POINTS) if chosen >> power]
    taken = below[: max(_BELOW - 1, _POINTS - len(above))]
    return [*reversed(taken), *above[: _POINTS - len(taken)]]
