"""capacity.html: all models on one self-contained page. It works without JavaScript; a short script sorts and filters the first table."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from planner import devices
from planner.capacity.figures import Plan
from planner.capacity.symbols import ByStructure
from planner.report import breakdown, omitted, overview, units
from planner.report.accuracy import accuracy
from planner.report.columns import OVERVIEW
from planner.report.devices import reserve
from planner.report.html import live, sections, what_if
from planner.report.html.formula_list import DETAILS, Detail, FormulaList
from planner.report.html.markup import link, row, table, text
from planner.report.html.sections import Facts, Formulas
from planner.report.paths import display_path
from planner.report.planned import Planned

_BYTES_EACH, _AT_LEAST = 5000, 50  # a page of up to fifty models stays under 250 KB
_UNFOLDED = 8  # models of a page whose sections are open
_SCRIPTS = ("units.js", "exact.js", "compare.js", "what_if.js", "table.js")
_HTML = Path(__file__).parent / "html"


def report(models: Sequence[Planned]) -> str:
    """Return the whole page, which ends with a line feed, with as much detail as its size limit allows."""
    most = _BYTES_EACH * max(_AT_LEAST, len(models))
    by_structure: ByStructure[Formulas] = ByStructure()
    facts = [
        [Facts(plan, tuple(one for one in model.budgets if one.scenario == plan.scenario), by_structure) for plan in model.plans]
        for model in models
    ]
    known, body = FormulaList(), ""
    changes = live.section(models[0]) if len(models) == 1 else ""
    others = "" if changes else what_if.data(one for of_model in facts for one in of_model)
    for detail in DETAILS:
        if not body or known.full != detail.full:
            known.full = detail.full
            body = "".join(_models(models, facts, known))
        shown, formulas = known.linked(body, detail.longest)
        page = "".join(_page(models, shown, known.shapes, formulas, detail, changes, others))
        if len(page.encode()) - len(changes) - len(others) < most:
            break
    return page


def sheet() -> str:
    """Return the style sheet, which applies inside the class ``planner``."""
    return (_HTML / "sheet.css").read_text(encoding="utf-8")


def _page(
    models: Sequence[Planned], body: str, shapes: Mapping[str, int], formulas: str, detail: Detail, changes: str, others: str
) -> Iterator[str]:
    style, script = sheet(), "".join((_HTML / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    if changes:
        style, script = style + live.style(), script + live.script()
    policy = f"default-src 'none';style-src {_hash(style)};script-src {_hash(script)};base-uri 'none';form-action 'none'"
    yield '<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">\n'
    yield f'<meta http-equiv=Content-Security-Policy content="{policy}"><title>Capacity report</title>\n'
    yield f"<style>{style}</style>\n<body class=planner><h1>Capacity report</h1>\n"
    yield "<p>Written by <code>planner run</code>. Values with a unit are rounded; others, and all in capacity.csv, are exact. "
    yield "B is 10⁹ parameters, GiB is 2³⁰ bytes, 1 multiply-add is 2 FLOPs. Memory is for one device holding the whole model, with "
    plans = [plan for model in models for plan in model.plans]
    fullest = " With a cluster, it is for the device with the largest peak." if any(plan.fleet for plan in plans) else ""
    yield f"batch size B and sequence length n.{fullest} Names with a dotted underline link to their formula.\n"
    addresses = [f"#m{number}" for number, model in enumerate(models, 1) for _ in model.plans]
    yield models_table(plans, addresses, compared=not changes, others=others)
    yield changes
    left_out = omitted.of_plans(plans)
    yield from (f"<p>{text(note)}\n" for note in (*left_out, omitted.UNPADDED))
    yield body
    yield "<h2 id=conventions>What the FLOPs conventions count</h2><ul>"
    for plan in plans[:1]:
        yield from (f"<li>{text(note)}\n" for note in breakdown.conventions(plan).notes)
    yield "</ul><h2>Not included</h2><ul>"
    yield from (f"<li>{text(note)}\n" for note in dict.fromkeys(note for plan in plans for note in plan.not_counted))
    yield "</ul>"
    measured = dict.fromkeys(accuracy(plan.model, plan.training).text for plan in plans)
    yield f"<h2>Accuracy</h2><ul>{''.join(f'<li>{text(one)}' for one in measured)}</ul>"
    if shapes:
        yield "<h2>Shapes</h2><p>In symbols, whose values are listed under each model's name.\n"
        yield from (f"<h3 id=s{number}>Shapes {number}</h3><ol>{modules}</ol>\n" for modules, number in shapes.items())
    yield "<h2>Formulas</h2><p>Derived by running the planner on symbolic sizes, whose values are listed under each model's name. "
    yield "<code>planner show SPEC --explain</code> prints them with substituted values and sources."
    if detail.longest is not None:
        yield f" Formulas of more than {detail.longest} characters are omitted to keep the page small."
    yield "\n<ol>"
    yield f"{formulas}</ol><script>{script}</script>\n"


def models_table(plans: Sequence[Plan], addresses: Sequence[str] = (), *, compared: bool = False, others: str = "") -> str:
    """Return the table of plans, whose names link to the addresses if given, with what the script compares with devices if ``compared``.

    ``others``: the formulas for other batch sizes and sequence lengths.
    """
    names = [text(overview.title(plan)) for plan in plans]
    if addresses:
        names = [f"<a href={address}>{name}</a>" for name, address in zip(names, addresses, strict=True)]
    first, *headings = (column.heading for column in OVERVIEW.values())
    rows = "".join(_row(name, plan, compared=compared) for name, plan in zip(names, plans, strict=True))
    listed = " ".join(f"{one.name}:{one.memory_bytes}" for one in devices.entries())
    modeled = devices.find(plans[0].training.device) or devices.entries()[0]
    settings = "|".join(_settings(plans[0]))
    data = (
        f' data-device="{text(modeled.name)}" data-devices="{listed}" data-settings="{settings}" data-live="{others}"' if compared else ""
    )
    return f"<div class=n{data}>{table('Models', '', ('model', first, 'B', 'n', *headings), [rows])}</div>\n"


def _row(name: str, plan: Plan, *, compared: bool) -> str:
    parameters, *figures = overview.cells(plan)
    needed = plan.memory.peak_bytes + reserve(plan.training)  # of a device's memory
    sizes = (units.exact(plan.training.batch_size), units.exact(plan.training.sequence_length))
    made = row(name, (parameters, *sizes, *figures)) + "\n"
    return made.replace("<tr>", f'<tr data-b={needed} data-s="{"|".join(_settings(plan).values())}">', 1) if compared else made


def _settings(plan: Plan) -> dict[str, str]:
    """Return the settings that plans are compared by, besides the sizes of a batch."""
    model, training = plan.model, plan.training
    sizes = {"layers": model.n_layers, "width d_model": model.d_model, "vocabulary": model.vocab_size, "context": model.context_length}
    words = {name: text(str(getattr(training, name))) for name in ("precision", "recompute", "optimizer", "implementation")}
    return words | {name: units.exact(size) for name, size in sizes.items()}


def _models(models: Sequence[Planned], facts: Sequence[Sequence[Facts]], known: FormulaList) -> Iterator[str]:
    for number, (model, of_model) in enumerate(zip(models, facts, strict=True), 1):
        yield from _model(number, model, of_model, known, folded=len(models) > _UNFOLDED)


def _model(number: int, model: Planned, facts: Sequence[Facts], known: FormulaList, *, folded: bool) -> Iterator[str]:
    spec = model.spec
    heading = f"<h2>{text(spec.name)}</h2>"
    yield f"<details><summary>{heading}</summary><div id=m{number}>" if folded else f"<div id=m{number}>{heading}"
    if spec.description:
        yield f"<p>{text(spec.description)}"
    from_where = ", ".join((text(display_path(spec.path)), *map(link, spec.sources[:1])))
    yield f"<p class=q>{from_where}<br>{sections.sizes(facts[0])}\n"
    yield from (f"<p>Waiver: {text(note)}" for note in breakdown.waivers(spec).notes)
    yield from sections.model(facts, known)
    yield "</div></details>" if folded else "</div>"


def _hash(inline: str) -> str:
    """Return the source expression of inline text for a Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(inline.encode()).digest()).decode()}'"
