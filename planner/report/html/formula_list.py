"""The formulas that a page links to: each once, however many models share it."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.report.html.markup import text


@dataclass(frozen=True, slots=True)
class Detail:
    """How much a page shows."""

    full: bool = True  # else shapes in symbols, once for all models that share them; no bars by convention; bytes of parts only exact
    longest: int | None = None  # of the formulas shown, in characters


_MARK = "\0"  # in no text of a page
# What a page omits to stay small, step by step.
DETAILS = (Detail(), Detail(full=False), *(Detail(full=False, longest=longest) for longest in (400, 300, 200, 150, 100, 50, 0)))


@dataclass(slots=True)
class FormulaList:
    """The labels of a page that have a formula, and its shapes, in the order of use. ``full`` is the page's detail."""

    full: bool = True
    labels: list[tuple[str, str, str]] = field(default_factory=list)  # HTML, metric and formula
    shapes: dict[str, int] = field(default_factory=dict)

    def behind(self, label: str, figure: str, formula: str) -> str:
        """Return a mark for a label with a formula, for ``linked``."""
        self.labels.append((text(label), figure, formula))
        return f"{_MARK}{len(self.labels) - 1}{_MARK}"

    def shapes_like(self, modules: str) -> str:
        """Return a link to shapes, which are HTML."""
        return f"<a href=#s{self.shapes.setdefault(modules, len(self.shapes) + 1)}>Shapes from token ids to logits</a>"

    def linked(self, html: str, longest: int | None = None, *, links: bool = True) -> tuple[str, str]:
        """Return HTML with its labels in place of their marks, and their formulas as items of a list.

        Labels link to formulas of at most ``longest`` characters, numbered in the order of use; without ``links`` they are not links.
        """
        known: dict[tuple[str, str], int] = {}
        labels = []
        for label, figure, formula in self.labels:
            short = longest is None or len(formula) <= longest
            number = known.setdefault((figure, formula), len(known) + 1) if short else 0
            labels.append(f"<a href=#f{number}>{label}</a>" if links and short else label)
        parts = html.split(_MARK)
        parts[1::2] = [labels[int(number)] for number in parts[1::2]]
        items = (
            f"<li{f' id=f{number}' if links else ''}><b>{text(figure)}</b> = {text(formula)}\n"
            for (figure, formula), number in known.items()
        )
        return "".join(parts), "".join(items)
