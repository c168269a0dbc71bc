"""A plan whose figures are formulas: the functions that computed the values, run once more over symbols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.capacity.plan import plan
from planner.capacity.records import Plan
from planner.capacity.symbols import named
from planner.spec.records import Scenario, Spec
from planner.spec.resolve import default_d_ff, default_head_dim
from planner.trace.sizes import Size, symbol


@dataclass(frozen=True, slots=True)
class Formulas:
    """The figures of a plan as expressions over symbols.

    ``derived`` holds the symbols that follow from others because the spec leaves them out. ``plan`` has no operator at which a phase peaks,
    since that depends on what the symbols are worth.
    """

    plan: Plan  # of expressions, typed as the plans of integers that reports read
    values: dict[str, int]
    derived: dict[str, Size]


def formulas(spec: Spec, scenario: Scenario) -> Formulas:
    """Return a scenario's plan with a symbol for each size of the model and of its training. Raises what ``plan`` raises."""
    names = named(spec.model, scenario.training)
    symbolic = plan(replace(spec, model=names.model), Scenario(scenario.name, names.training))
    return Formulas(symbolic, names.values, _derived(spec, names.values))


def _derived(spec: Spec, values: dict[str, int]) -> dict[str, Size]:
    """Return the defaults that rest on other sizes, where the model has one size of that name."""
    rules: dict[str, tuple[Callable[..., Size], tuple[str, ...]]] = {
        "head_dim": (default_head_dim, ("d_model", "n_heads")),
        "d_ff": (default_d_ff, ("d_model",)),
    }
    return {
        name: rule(*map(symbol, of))
        for name, (rule, of) in rules.items()
        if f"model.{name}" in spec.defaulted and {name, *of} <= values.keys() and values[name] == rule(*(values[other] for other in of))
    }
