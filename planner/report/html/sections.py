"""The section of a model on a page: charts, each with its values in a table, and links to their formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, zip_longest

from planner import devices
from planner.capacity.explain import FigureFormulas, figure_formulas
from planner.capacity.figures import COMPONENTS, ByteSum, PhasePeak, Plan
from planner.capacity.symbols import ByStructure, SymbolicModel, different_devices, symbolize
from planner.report import served, units
from planner.report.curves import Curves
from planner.report.curves import peaks as curves_of
from planner.report.devices import reserve, usable
from planner.report.html import picture
from planner.report.html.formula_list import FormulaList
from planner.report.html.markup import row, table, text
from planner.report.html.picture import Curve, Stack
from planner.report.planned import BudgetLimit
from planner.trace.sizes import Size
from planner.trace.sizes import text as formula

Part = Callable[["Subject"], str]
_MATTERS = 20  # the other kind of LM head is shown if it changes the total by at least 1/20
_STATES = ("weights", "master weights", "gradients", "optimizer", "average of weights")
_IN_ORDER = "Segments appear in table order"
_TABLE = "model.embed_tokens.weight"
_RANK_PARTS = ("m0", "m2", "m3", "p8", "m5")  # the colors of weights, gradients, optimizer state, buffers and activations
_OF_MODEL = ("params_", "forward FLOPs")  # metrics that do not depend on the layout
_DRAWN = 8  # devices of a pipeline
_HEAD = f"p{COMPONENTS.index('head')}"


@dataclass(frozen=True)
class Formulas:
    """The formulas of all plans of one structure, as text, and their shapes in symbols, each computed on first use."""

    over_symbols: FigureFormulas
    names: SymbolicModel  # of the first of these plans

    @cached_property
    def sizes(self) -> Mapping[str, Size]:
        """Each metric by its name."""
        return {one.figure: one.size for group in self.over_symbols.totals.values() for one in group}

    @cached_property
    def texts(self) -> dict[str | Size, str]:
        """The texts so far, by metric; those of peaks by their size."""
        return {}

    def text(self, figure: str) -> str | None:
        """Return the formula of a metric, if it has one."""
        if figure not in self.texts and figure in self.sizes:
            self.texts[figure] = formula(self.sizes[figure])
        return self.texts.get(figure)

    def peak(self, phase: PhasePeak, values: Mapping[str, int]) -> str:
        """Return the formula of the peak of a phase."""
        size = self.over_symbols.peak(phase.phase, values, phase.operator).size
        if size not in self.texts:
            self.texts[size] = formula(size)
        return self.texts[size]

    @cached_property
    def shapes(self) -> str:
        """The shapes from token ids to logits in symbols."""
        return _modules(
            _Shape(line.path, line.what, line.tensor.dtype, tuple(map(formula, line.tensor.shape)), formula(line.copies))
            for line in self.over_symbols.forward.shapes
        )


@dataclass(frozen=True)
class Facts:
    """A plan, and what only a page shows of it, computed on first use."""

    plan: Plan
    budgets: tuple[BudgetLimit, ...] = ()  # of the plan's scenario
    by_structure: ByStructure[Formulas] = field(default_factory=ByStructure)  # shared by the plans of a page
    made: dict[Part, str] = field(default_factory=dict)  # HTML that is the same in any detail

    @cached_property
    def names(self) -> SymbolicModel:
        """The plan's model over symbols; without its layout if memory has no formulas then."""
        training = self.plan.training
        return symbolize(self.plan.model, training if self.memory_explained else replace(training, layout=None))

    @cached_property
    def memory_explained(self) -> bool:
        """Whether formulas of memory are modeled for the layout."""
        return not any(different_devices(self.plan.training))

    @cached_property
    def formulas(self) -> Formulas:
        """The formula of each metric."""
        return self.by_structure.of(self.names, lambda names: Formulas(figure_formulas(names), names))

    @cached_property
    def other_head(self) -> int | None:
        """The parameters with the other kind of LM head, tied or untied; None if they hardly differ."""
        if self.plan.model.head_type != "language":
            return None
        total = self.plan.parameters.total
        matrix = next(weight.params for weight in self.plan.parameters.weights if weight.name == _TABLE)  # an untied head is as large
        return total + (matrix if self.plan.model.tied_head else -matrix) if matrix * _MATTERS >= total else None

    @cached_property
    def curves(self) -> Curves:
        """Peak memory over n, and over B."""
        return curves_of(self.plan, self.formulas.over_symbols.peak_bytes, self.names.values)


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan to show, and the formulas listed so far."""

    facts: Facts
    formulas: FormulaList

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.facts.plan

    def once(self, part: Part) -> str:
        """Return a part of the section that is the same in any detail, made on first use."""
        if part not in self.facts.made:
            self.facts.made[part] = part(self)
        return self.facts.made[part]

    def label(self, label: str, figure: str) -> str:
        """Return a label that links to the formula of a metric, if it has one."""
        known = self.facts.memory_explained or figure.startswith(_OF_MODEL)
        return self.linked(label, figure, self.facts.formulas.text(figure) if known else None)

    def linked(self, label: str, figure: str, formula: str | None) -> str:
        """Return a label that links to a formula, if there is one."""
        return text(label) if formula is None else self.formulas.behind(label, figure, formula)


def model(facts: Sequence[Facts], known: FormulaList) -> Iterator[str]:
    """Yield everything about a model: its parameters, then each scenario, the base scenario first."""
    for number, scenario in enumerate(facts):
        one = Subject(scenario, known)
        yield f"<h3>Scenario {text(one.plan.scenario)}</h3>" if number else one.once(components) + one.once(serving)
        yield from (memory(one), one.once(ranks), one.once(curves), conventions(one), shapes(one))


def serving(one: Subject) -> str:
    """Show the figures of requests, if the spec has a section ``serving``."""
    found = served.section(one.plan)
    notes = "".join(f"<p>{text(note)}\n" for note in found.notes)
    rows = [row(text(name), map(text, cells)) for name, *cells in found.rows]
    return table(text(found.title), "", tuple(found.headings), rows) + notes if rows else ""


def sizes(facts: Facts) -> str:
    """List the value of each symbol in the formulas."""
    values = facts.names.values
    return ", ".join(f"{text(name)} {units.exact(value)}" for name, value in values.items() if name != "tokens")


def components(one: Subject) -> str:
    """Show parameters and forward FLOPs by component, and the parameters with the other kind of LM head if they differ much."""
    plan, other = one.plan, one.facts.other_head
    params, flops = plan.parameters, plan.flops.forward_by_component
    total, all_flops = params.total, sum(flops.values())
    parts = [(f"p{number}", name, params.by_component.get(name, 0), flops.get(name, 0)) for number, name in enumerate(COMPONENTS)]
    drawn = [Stack(f"{_head(plan)}: {units.count(total)}", [(css, size) for css, _, size, _ in parts], max(total, other or 0))]
    if other is not None:
        same = min(total, other)
        drawn.append(Stack(f"{_head(plan, other=True)}: {units.count(other)}", [("u", same), (_HEAD, other - same)], max(total, other)))
    drawn.append(Stack(f"a forward pass: {units.flops(all_flops)}", [(css, cost) for css, _, _, cost in parts], all_flops))
    rows = []
    for css, name, size, cost in parts:
        forward = (one.label(units.flops(cost), f"forward FLOPs in {name}"),) if cost else ()
        if size or cost:
            rows.append(row(one.label(name, f"params_{name}"), (units.exact(size), units.share(size, total), *forward), css=css))
    rows.append(row("sum", (units.exact(total), "", units.flops(all_flops)), css="t"))
    if other is not None:
        rows.append(row(_head(plan, other=True), (units.exact(other),), css="u"))
    chart = picture.stacks("Components", _IN_ORDER, drawn)
    return table("Parameters and FLOPs of a forward pass", chart, ("", "parameters", "", "forward"), rows)


def _head(plan: Plan, *, other: bool = False) -> str:
    if plan.model.head_type != "language":
        return "classes" if plan.model.head_type == "classes" else "no head"
    return "untied head" if plan.model.tied_head == other else "tied head"


def memory(one: Subject) -> str:
    """Show the memory of a training step by part, beside the budgets or the device's memory."""
    plan, figures = one.plan, one.plan.memory
    parts = [(f"m{_STATES.index(state.part)}", _state(one, state), state.total_bytes) for state in figures.states if state.total_bytes]
    others = figures.activations_bytes - figures.logits_bytes
    parts.append(("m5", one.label("activations", "activations_bytes"), others))
    parts.append(("m6", one.label("logits", "activations in logits"), figures.logits_bytes))
    limits = _limits(one)
    total = figures.model_states_bytes + figures.activations_bytes
    scale = max(total, figures.peak_bytes, *(size for _, size in limits))
    marks = [("k", figures.peak_bytes), *(("l", size) for _, size in limits)]
    stack = Stack(units.memory(total), [(css, size) for css, _, size in parts], scale, marks)
    drawn = picture.stacks("Training memory", f"{_IN_ORDER}; lines: peak memory, device memory", [stack])
    rounded = (units.memory,) if one.formulas.full else ()
    rows = [row(label, (units.exact(size), *(form(size) for form in rounded)), css=css) for css, label, size in parts]
    rows.append(row("sum", (units.exact(total), units.memory(total)), css="t"))
    phase = next(phase for phase in figures.phases if phase.peak_bytes == figures.peak_bytes)
    explained = one.facts.formulas.peak(phase, one.facts.names.values) if one.facts.memory_explained else None
    peak = one.linked(f"peak, {phase.phase}", f"peak {phase.phase}", explained)
    rows.append(row(peak, (units.exact(figures.peak_bytes), units.memory(figures.peak_bytes)), css="k"))
    rows.extend(row(text(name), (units.exact(size), units.memory(size)), css="l") for name, size in limits)
    return table(f"Training memory: {_recipe(plan)}", drawn, (), rows)


def _state(one: Subject, state: ByteSum) -> str:
    """Name a part of the model states with its bytes per parameter; if these vary by tensor, link to its formula instead."""
    each = state.bytes_per_param
    if each is None or each * one.plan.parameters.total != state.total_bytes:
        return one.label(state.part, state.part)
    return f"{text(state.part)}, {each}·params"


def _recipe(plan: Plan) -> str:
    training = plan.training
    at = f"B = {units.exact(training.batch_size)}, n = {units.exact(training.sequence_length)}"
    recompute = "" if training.recompute == "none" else f", recompute {training.recompute}"
    return text(f"{at}, {training.precision}, {training.optimizer}{recompute}, {training.implementation}")


def _limits(one: Subject) -> list[tuple[str, int]]:
    """Return the memory limits of budgets by name; without any, the memory of the modeled device."""
    budgets = [
        (f"budget {limit.budget}", limit.worth)
        for limit in one.facts.budgets
        if limit.figure == "peak_bytes" and limit.kind == "max" and limit.worth
    ]
    if one.plan.fleet:
        return [*budgets, ("memory of the device, less the reserve", usable(one.plan.fleet.layout))]
    device = devices.find(one.plan.training.device)
    return budgets or ([(f"{device.name}, less the reserve", device.memory_bytes - reserve(one.plan.training))] if device else [])


def ranks(one: Subject) -> str:
    """Show the kinds of devices of a layout side by side, the fullest first: memory by part, peak by phase."""
    fleet = one.plan.fleet
    if fleet is None:
        return ""
    shown = sorted(fleet.ranks, key=lambda rank: -rank.peak_bytes)[:_DRAWN]
    limit = usable(fleet.layout)
    scale = max(limit, *(max(rank.peak_bytes, sum(size for _, size in rank.parts)) for rank in shown))
    drawn = "".join(
        picture.stacks(f"Device {number}", "Parts in table order; lines: peak memory, device memory less the reserve", [stack])
        for number, rank in enumerate(shown)
        for parts in [[(css, size) for css, (_, size) in zip(_RANK_PARTS, rank.parts, strict=True)]]
        for stack in [Stack(text(_short(rank.which)), parts, scale, [("k", rank.peak_bytes), ("l", limit)])]
    )
    names = [text(_short(rank.which)) for rank in shown]
    rows = [
        row(text(part), [units.memory(rank.parts[number][1]) for rank in shown], css=css)
        for number, (css, (part, _)) in enumerate(zip(_RANK_PARTS, shown[0].parts, strict=True))
    ]
    rows += [
        row(f"peak, {phase.phase}", [units.memory(rank.phases[number].peak_bytes) for rank in shown])
        for number, phase in enumerate(shown[0].phases)
    ]
    rows.append(row("free", [units.memory(limit - rank.peak_bytes) for rank in shown]))
    title = f"Devices: {len(shown)} of {len(fleet.ranks)} kinds, the fullest first" if len(fleet.ranks) > 1 else "Memory of each device"
    return table(title, drawn, ("", *names), rows)


def _short(which: str) -> str:
    return which.partition(":")[0].partition(",")[0]


def curves(one: Subject) -> str:
    """Show the peak over n and over B, with the spec's setting marked."""
    if not one.facts.memory_explained:
        return ""
    over_n, over_B = one.facts.curves.by_length, one.facts.curves.by_batch
    training, peak = one.plan.training, one.plan.memory.peak_bytes
    drawn = picture.curves(
        "Peak memory",
        "Log scale; the circle marks the spec's setting",
        [Curve("n", over_n, (training.sequence_length, peak)), Curve("B", over_B, (training.batch_size, peak))],
    )
    rows = (f"<tr>{''.join(map(_point, pair))}" for pair in zip_longest(over_n, over_B, fillvalue=None))
    headings = ("n", f"B = {units.exact(training.batch_size)}", "B", f"n = {units.exact(training.sequence_length)}")
    return table("Peak memory over n and B", drawn, headings, rows)


def _point(point: tuple[int, int] | None) -> str:
    return "<td><td>" if point is None else f"<td>{units.exact(point[0])}<td>{units.memory(point[1])}"


def conventions(one: Subject) -> str:
    """Show training FLOPs by the chosen convention, and those by others folded."""
    counts, chosen = one.plan.flops.by_convention, one.plan.flops.chosen
    classes = [f"c{number}" if one.formulas.full else "" for number in range(len(counts))]
    rows = [
        row(
            f"{count.convention}{' (chosen)' if count.convention == chosen.convention else ''}",
            (units.exact(count.train_per_token),),
            css=css,
        )
        for css, count in zip(classes, counts, strict=True)
    ]
    drawn = ""
    if one.formulas.full:
        bars = [(css, count.train_per_token) for css, count in zip(classes, counts, strict=True)]
        drawn = picture.bars("FLOPs by convention", "Bars appear in table order", bars)
    folded = f"Training FLOPs per token: {units.flops(chosen.train_per_token)} by {chosen.convention}, and other conventions"
    return f"<details><summary>{folded}</summary>{table('Training FLOPs per token', drawn, (), rows)}</details>"


def shapes(one: Subject) -> str:
    """List the tensors from token ids to logits by module: in numbers, or in symbols that models share."""
    if not one.formulas.full:
        return f"<p>{one.formulas.shapes_like(one.facts.formulas.shapes)}\n"
    lines = (_Shape(line.path, line.what, line.dtype, tuple(map(str, line.shape)), str(line.copies)) for line in one.plan.shapes)
    return f"<details><summary>Shapes from token ids to logits</summary><ol>{_modules(lines)}</ol></details>\n"


@dataclass(frozen=True, slots=True)
class _Shape:
    path: str
    what: str
    dtype: str
    sizes: tuple[str, ...]
    copies: str


def _modules(lines: Iterable[_Shape]) -> str:
    """Return an item per module, with consecutive tensors of one shape together; a dtype also applies to what follows it."""
    items: list[str] = []
    last = ""
    for (path, copies), inside in groupby(lines, lambda line: (line.path, line.copies)):
        tensors: list[str] = []
        for (sizes, dtype), alike in groupby(inside, lambda line: (line.sizes, line.dtype)):
            names = ", ".join(line.what for line in alike)
            tensors.append(f"{names} ({', '.join(sizes)})" + (f" {dtype}" if dtype != last else ""))
            last = dtype
        items.append(f"<li>{text(path or 'input')}{f' × {copies}' if copies != '1' else ''}: {text(', '.join(tensors))}")
    return "".join(items)
