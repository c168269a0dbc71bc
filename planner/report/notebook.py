"""Plans in a notebook: HTML with charts, and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.capacity.figures import Plan


def html(plans: Sequence[Plan]) -> str:
    """Return the metrics and charts of plans, each with its formulas folded, under a table if there are several."""
    from planner.report.page import sheet

    return f"<style>{sheet()}</style><div class=planner>{''.join(_html(plans))}</div>"


def _html(plans: Sequence[Plan]) -> Iterator[str]:
    from planner.report import omitted, overview, page
    from planner.report.html import sections
    from planner.report.html.formula_list import FormulaList
    from planner.report.html.markup import text

    if len(plans) > 1:
        yield page.models_table(plans)
    yield from (f"<p>{text(note)}" for note in (*omitted.of_plans(plans), omitted.UNPADDED))
    for plan in plans:
        known, facts = FormulaList(), sections.Facts(plan)
        shown, formulas = known.linked("".join(sections.model([facts], known)), links=False)
        yield f"<h2>{text(overview.title(plan))}</h2><p class=q>{sections.sizes(facts)}{shown}"
        yield f"<details><summary>Formulas</summary><ol>{formulas}</ol></details>"


def markdown(plans: Sequence[Plan]) -> str:
    """Return the metrics of plans as tables of GitHub-flavored Markdown."""
    from planner.report.markdown import plans as tables

    return tables(plans)


class Plans(tuple[Plan, ...]):
    """Plans that a notebook shows together."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return html(self)

    def _repr_markdown_(self) -> str:
        return markdown(self)
