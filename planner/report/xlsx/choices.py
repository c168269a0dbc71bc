"""Choices: the figures of a spec with each precision, recomputation and optimizer that can be chosen, as formulas over Inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from planner.capacity.choices import CHOICES, Chosen, Formulas, Guard, guards
from planner.capacity.figures import Plan
from planner.report.columns import COLUMNS, GROUPS
from planner.report.xlsx.book import Book, Cells, place, span
from planner.trace.sizes import Size

Key = tuple[str, str]  # a group of Components, empty for Figures, and a name
_ABOVE = 1  # rows above the headings
_CHECK = len(CHOICES) + 1  # its column, after that of the choices together


@dataclass(frozen=True, slots=True)
class Switch:
    """The columns of Choices by metric: only those that depend on the choice."""

    book: Book
    columns: Mapping[Key, int]
    last: int  # row

    def formula(self, key: Key) -> str | None:
        """Return the formula of a metric for what is chosen in Inputs; None for one that does not depend on it."""
        return self._chosen(self.columns[key]) if key in self.columns else None

    @property
    def check(self) -> str:
        """The formula of the problems with the inputs, as text."""
        return f'IFERROR({self._chosen(_CHECK)},"{", ".join(CHOICES)} cannot be combined; ")'

    def _chosen(self, column: int) -> str:
        sheet = self.book.sheets["Choices"]
        return f"INDEX({span(sheet, _ABOVE + 1, self.last, column)},{place(sheet, 0, 1)})"


def sizes_of(plan: Plan) -> dict[Key, Size | None]:
    """Return the size of each metric of a plan of expressions."""
    figures = {("", column.name): column.read(plan) for column in COLUMNS if column.kind == "integer"}
    parts = {(group.name, name): size for group in GROUPS for name, size in group.read(plan).items()}
    return cast("dict[Key, Size | None]", figures | parts)


def write_choices(cells: Cells, found: Formulas, inputs: Mapping[str, str]) -> Switch:
    """Write a row for each combination; ``inputs`` are the cells where one is chosen."""
    book, sheet = cells.book, cells.book.sheets["Choices"]
    plans = {chosen: sizes_of(plan) for chosen, plan in found.plans.items()}
    own = plans[found.chosen]
    moving = [key for key, size in own.items() if size is not None and any(sizes[key] != size for sizes in plans.values())]
    columns = {key: at for at, key in enumerate(moving, start=_CHECK + 1)}
    names = [f"{group}: {name}" if group else name for group, name in columns]
    book.head("Choices", ("all", *CHOICES, "check", *names), at=_ABOVE)
    last, together = _ABOVE + len(plans), list(map(" ".join, plans))
    sheet.write_string(0, 0, "row that is chosen in Inputs")
    wanted = '&" "&'.join(inputs[name] for name in CHOICES)
    match = f"=MATCH({wanted},{span(sheet, _ABOVE + 1, last, 0)},0)"
    sheet.write_formula(0, 1, match, None, together.index(" ".join(found.chosen)) + 1)
    checks = {key: _check(cells, noted) for key, noted in _guards(found).items()}
    for at, (chosen, sizes) in enumerate(plans.items(), start=_ABOVE + 1):
        sheet.write_row(at, 0, (" ".join(chosen), *chosen))
        if check := checks[chosen[:2]]:
            sheet.write_formula(at, _CHECK, check, None, "")
        for key, column in columns.items():
            size = sizes[key]
            if size is not None:
                cells.write(sheet, (at, column), size, cells.value(size))
    return Switch(book, columns, last)


def _guards(found: Formulas) -> Mapping[Chosen, list[Guard]]:
    movable = {*found.inputs, *found.derived}
    return {key: list(guards(noted, movable)) for key, noted in found.noted.items()}


def _check(cells: Cells, conditions: list[Guard]) -> str:
    """Return the formula of a text that is empty if all conditions hold."""
    holds = ",".join(_holds(cells, conditions))
    return f'=IF(AND({holds}),"","these sizes call for other kernels than the figures have; ")' if holds else ""


def _holds(cells: Cells, conditions: list[Guard]) -> Iterator[str]:
    for one in conditions:
        left = cells.formula(one.left)
        if isinstance(one.right, str):
            yield f'MID({cells.book.listed(one.right)},{left},1)="1"'
        else:
            right = str(one.right) if isinstance(one.right, int) else cells.formula(one.right)
            yield f"{left}{'=' if one.relation == '==' else one.relation}{right}"
