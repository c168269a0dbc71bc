"""A plan whose figures are formulas: the functions that compute the values, run on symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from planner.capacity.figures import Plan
from planner.capacity.plan import plan
from planner.capacity.symbols import ByStructure, SymbolicModel, encoder_length_follows, symbolize, with_symbols_for_step
from planner.spec.defaults import default_d_ff, default_head_dim
from planner.spec.records import Scenario, Spec
from planner.trace.lengths import structure_starts
from planner.trace.sizes import Size, minimum, symbol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Values: TypeAlias = "NDArray[Any] | int"
"""A figure at many points: int64 if nothing can exceed 2⁶³ - 1, else Python integers in an object array; one integer if it is constant."""


@dataclass(frozen=True, slots=True)
class SymbolicPlan:
    """The figures of a plan as expressions over symbols.

    ``derived`` has the symbols whose defaults follow from others. ``plan`` has no operator at which a phase peaks, since that depends on
    the values of the symbols.
    """

    plan: Plan  # of expressions, typed as the plans of integers that reports read
    values: dict[str, int]
    derived: dict[str, Size]


def formulas(spec: Spec, scenario: Scenario, by_structure: ByStructure[Plan] | None = None) -> SymbolicPlan:
    """Return a scenario's plan with a symbol for each size of the model and its training. Raises what ``plan`` raises.

    Scenarios of one structure share a plan, which has the name and the initial loss of the first.
    """
    names = symbolize(spec.model, scenario.training)

    def symbolic(names: SymbolicModel) -> Plan:
        return plan(replace(spec, model=names.model, serving=None), Scenario(scenario.name, names.training))

    made = symbolic(names) if by_structure is None else by_structure.of(names, symbolic)
    return SymbolicPlan(made, names.values, derived_sizes(spec, names.values))


@dataclass(frozen=True, slots=True)
class StepFormulas:
    """A plan over symbols for the batch size B and the sequence length n alone: its figures at many of both at once.

    ``longer``: sequence lengths from which on another plan holds, ascending, each with that plan.
    """

    plan: Plan
    longer: tuple[tuple[int, Plan], ...] = ()

    def size(self, figure: Callable[[Plan], Size | None]) -> Size | None:
        """Return a figure of the plan as one expression, None if it has none."""
        made = figure(self.plan)
        before = made
        for start, one in self.longer:
            after = figure(one)
            if made is not None and before is not None and after is not None:
                made = made + (after - before) * minimum(symbol("n") // start, 1)
            before = after
        return made

    def at(
        self, batch_size: NDArray[np.int64], sequence_length: NDArray[np.int64], *figures: Callable[[Plan], Size | None]
    ) -> list[Values | None]:
        """Evaluate figures of the plan at each batch size and sequence length. The arrays must broadcast to one shape.

        A figure that depends on neither is an integer; a missing one is None. Raises ValueError for sizes that are no integers from 1 to
        2⁶³ - 1, and for sequences longer than a learned position embedding.
        """
        import numpy as np

        B, n = np.broadcast_arrays(*(_integers(np.asarray(sizes)) for sizes in (batch_size, sequence_length)))
        model = self.plan.model
        if B.size and (B.min() < 1 or n.min() < 1):
            raise ValueError("batch sizes and sequence lengths are at least 1")
        if B.size and model.positions.type == "learned" and n.max() > model.context_length:
            raise ValueError(f"{self.plan.name} has learned positions for {model.context_length} tokens, fewer than {n.max()}")
        return values_at([self.size(figure) for figure in figures], B, n)


def values_at(sizes: Iterable[Size | None], batch_size: NDArray[np.int64], sequence_length: NDArray[np.int64]) -> list[Values | None]:
    """Evaluate sizes at each batch size and sequence length, which are valid and of one shape."""
    from planner.trace.arrays import Points

    points = Points({"B": batch_size, "n": sequence_length})
    return [size if size is None or isinstance(size, int) else points.evaluate(size) for size in sizes]


def _integers(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Return integers as they are. Raises ValueError for other types, which a conversion would round, and for integers that would wrap."""
    if sizes.size and (sizes.dtype.kind not in "iu" or sizes.max() > 2**63 - 1):
        raise ValueError(f"batch sizes and sequence lengths must be integers up to 2^63 - 1, not {sizes.dtype} such as {sizes.ravel()[0]}")
    return sizes.astype("int64", copy=False)


def step_formulas(spec: Spec, scenario: Scenario) -> StepFormulas:
    """Return the base scenario's plan with symbols for B and n. Raises what ``plan`` raises."""
    longer = [start for start in structure_starts(spec.model, scenario.training) if start > 1]
    made = [plan(spec, Scenario(scenario.name, with_symbols_for_step(spec, scenario.training, n))) for n in (1, *longer)]
    return StepFormulas(made[0], tuple(zip(longer, made[1:], strict=True)))


def derived_sizes(spec: Spec, values: dict[str, int]) -> dict[str, Size]:
    """Return the defaults that depend on other sizes, if the model has one size of that name."""
    rules: dict[str, tuple[Callable[..., Size], tuple[str, ...]]] = {
        "head_dim": (default_head_dim, ("d_model", "n_heads")),
        "d_ff": (default_d_ff, ("d_model",)),
    }
    found = {
        name: rule(*map(symbol, of))
        for name, (rule, of) in rules.items()
        if f"model.{name}" in spec.defaulted and {name, *of} <= values.keys() and values[name] == rule(*(values[other] for other in of))
    }
    return found | ({"m": symbol("n")} if encoder_length_follows(spec) else {})
