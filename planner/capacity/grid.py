"""Figures of one model over many batch sizes and sequence lengths at once: one trace over B and n, evaluated on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.capacity.activations import kept
from planner.capacity.flops import flops
from planner.capacity.parameters import parameters
from planner.capacity.plan import sums
from planner.capacity.states import states
from planner.capacity.step import step
from planner.capacity.symbols import with_symbols_for_step
from planner.trace.decoder import trace
from planner.trace.sizes import common_part, undominated

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from planner.spec.records import Scenario, Spec


@dataclass(frozen=True, slots=True)
class Grid:
    """Exact figures, element by element: int64 where nothing can pass 2⁶³ - 1, Python integers in an object array elsewhere."""

    activations_bytes: NDArray[Any]
    logits_bytes: NDArray[Any]
    peak_bytes: NDArray[Any]
    forward_flops_per_token: NDArray[Any]
    train_flops_per_token: NDArray[Any]
    train_flops_per_step: NDArray[Any]


def grid(spec: Spec, scenario: Scenario, *, batch_size: NDArray[np.int64], sequence_length: NDArray[np.int64]) -> Grid:
    """Plan the scenario with each batch size and sequence length in its place; the arrays have, or broadcast to, one shape.

    Raises ValueError for sizes below 1, and for sequences longer than a learned table of positions.
    """
    import numpy as np

    from planner.trace.arrays import INT64_MAX, Points

    B, n = np.broadcast_arrays(np.asarray(batch_size, dtype=np.int64), np.asarray(sequence_length, dtype=np.int64))
    model = spec.model
    if B.size and (B.min() < 1 or n.min() < 1):
        raise ValueError("batch sizes and sequence lengths are at least 1")
    if B.size and model.positions.type == "learned" and n.max() > model.context_length:
        raise ValueError(f"{spec.name} has learned positions for {model.context_length} tokens, fewer than {n.max()}")
    training = with_symbols_for_step(scenario.training)
    forward = trace(model, training)
    counted = parameters(forward)
    takes = sums(kept(forward.nodes).keepings)
    counts = flops(forward.nodes, counted, model, training).chosen
    moments = [moment.bytes for moment in step(forward, counted.weights, training, states(counted.weights, training)).later]

    points = Points({"B": B, "n": n})
    over = points.evaluate
    candidates = undominated(moments)
    common = common_part(candidates)
    fits = max(points.bound(size) for size in candidates) <= INT64_MAX
    peak = over(common).astype(np.int64 if fits else object) + np.maximum.reduce([over(size - common) for size in candidates])
    return Grid(
        over(sum(takes.values())),
        over(takes["logits"]),
        peak,
        over(counts.forward_per_token),
        over(counts.train_per_token),
        over(counts.train_per_step),
    )
