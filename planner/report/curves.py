"""Peak memory around the batch size and the sequence length of a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.capacity.figures import Plan
from planner.trace.lengths import structure_starts
from planner.trace.sizes import Size, evaluate

_POINTS = 5  # of a curve
_BELOW = 3  # of them, up to the chosen one if there is room above it

Curve = tuple[tuple[int, int], ...]  # sizes and bytes, both ascending


@dataclass(frozen=True, slots=True)
class Curves:
    """Bytes at the peak by sequence length and by batch size; the other one is the scenario's."""

    by_length: Curve
    by_batch: Curve


def peaks(plan: Plan, peak: Size, values: Mapping[str, int]) -> Curves:
    """Return the peak over n and over B, from its formula and the values of its symbols."""
    training, model = plan.training, plan.model

    def curve(sizes: Iterable[int], name: str) -> Curve:
        return tuple((size, evaluate(peak, {**values, name: size})) for size in sizes)

    lengths = _around(training.sequence_length, model.context_length if model.positions.type == "learned" else None)
    for start in structure_starts(model, training):  # where the formula changes
        lengths = [n for n in lengths if (n < start) == (training.sequence_length < start)]
    return Curves(curve(lengths, "n"), curve(_around(training.batch_size, None), "B"))


def _around(chosen: int, most: int | None) -> list[int]:
    """Return halvings and doublings of the chosen size, in order, up to ``most``."""
    above = [chosen << power for power in range(_POINTS) if most is None or chosen << power <= most]
    below = [chosen >> power for power in range(1, _POINTS) if chosen >> power]
    taken = below[: max(_BELOW - 1, _POINTS - len(above))]
    return [*reversed(taken), *above[: _POINTS - len(taken)]]
