"""The formulas that a page links to: each once, however many models share it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.report.html.markup import text


@dataclass(frozen=True, slots=True)
class Detail:
    """How much a page shows."""

    full: bool = True  # else shapes in symbols, once for all models that share them; no bars by convention; bytes of parts only exact
    longest: int | None = None  # of the formulas shown, in characters


# What a page omits to stay small, step by step.
DETAILS = (Detail(), Detail(full=False), *(Detail(full=False, longest=longest) for longest in (400, 300, 200, 150, 100, 50, 0)))


@dataclass(slots=True)
class FormulaList:
    """The formulas and shapes used so far, numbered in that order. With ``links`` a label links to its formula."""

    links: bool = True
    detail: Detail = DETAILS[0]
    known: dict[tuple[str, str], int] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=dict)

    def behind(self, label: str, figure: str, formula: str) -> str:
        """Return a label, as HTML, that links to the formula of a metric, unless that is too long for this page."""
        if self.detail.longest is not None and len(formula) > self.detail.longest:
            return text(label)
        number = self.known.setdefault((figure, formula), len(self.known) + 1)
        return f"<a href=#f{number}>{text(label)}</a>" if self.links else text(label)

    def shapes_like(self, modules: str) -> str:
        """Return a link to shapes, which are HTML."""
        return f"<a href=#s{self.shapes.setdefault(modules, len(self.shapes) + 1)}>Shapes from token ids to logits</a>"

    def items(self) -> Iterator[str]:
        """Yield each formula as an item of a list."""
        for (figure, formula), number in self.known.items():
            yield f"<li{f' id=f{number}' if self.links else ''}><b>{text(figure)}</b> = {text(formula)}\n"
