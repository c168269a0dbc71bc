"""What the models of a page need with another batch size or sequence length: their formulas, for the table of models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from planner.capacity.choices import guards, rules
from planner.capacity.flops import flops
from planner.report.devices import reserve
from planner.report.html.expressions import Expressions, condition, packed
from planner.report.html.sections import Facts, Formulas
from planner.trace.sizes import Size, symbols

_INPUTS = {"B", "n"}
COLUMNS = ("activations_bytes", "peak_bytes", "train_flops_per_token", "train_flops")
"""The columns of the table that depend on them."""


def data(facts: Iterable[Facts]) -> str:
    """Return the formulas of each structure, and each plan's structure and sizes, as text of an attribute."""
    sizes, numbers = Expressions(), dict[int, int]()
    structures: list[list[Any]] = []
    used: list[set[str]] = []
    rows: list[list[Any] | None] = []
    for one in facts:
        if not one.memory_explained:
            rows.append(None)
            continue
        number = numbers.setdefault(id(one.formulas), len(numbers))
        if number == len(structures):
            figures, applies = _figures(one.formulas), list(guards(one.formulas.names.choices, _INPUTS))
            structures.append(
                [[None if size is None else sizes.number(size) for size in figures], [condition(guard, sizes) for guard in applies]]
            )
            inside = [*figures, *(guard.left for guard in applies), *(guard.right for guard in applies if not isinstance(guard.right, str))]
            used.append({name for size in inside if size is not None for name in symbols(size)})
        values = one.names.values
        must = [rule for rule in rules(one.plan.model, values, {}) if _INPUTS & {*symbols(rule.left), *symbols(rule.right)}]
        named = used[number] | {name for rule in must for size in (rule.left, rule.right) for name in symbols(size)}
        written = [[[rule.relation, sizes.text(rule.left), sizes.text(rule.right)], rule.message] for rule in must]
        rows.append([number, {name: str(values[name]) for name in sorted(named)}, written, str(reserve(one.plan.training))])
    return packed({"sizes": list(sizes.sizes), "helpers": sizes.written, "structures": structures, "rows": rows})


def _figures(made: Formulas) -> tuple[Size | None, ...]:
    """Return the expressions of ``COLUMNS``."""
    over = made.over_symbols
    counted = flops(over.forward.nodes, over.parameters, made.names.model, made.names.training).chosen
    return made.sizes["activations_bytes"], over.peak_bytes, counted.train_per_token, counted.train_total
