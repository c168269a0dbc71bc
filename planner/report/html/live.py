"""The part of a page whose figures follow their inputs: the expressions of a plan over symbols, which the browser evaluates exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from planner import devices
from planner.capacity.choices import CHOICES, Formulas, formulas_by_choice, guards
from planner.capacity.figures import COMPONENTS, PHASES, Parameters, Phase, Plan, RankPeak
from planner.capacity.layout_choices import LAYOUT_CHOICES, Choice, LayoutFormulas, layout_formulas
from planner.capacity.layout_conditions import Test
from planner.capacity.parts import ACTIVATIONS, PARTS, PASSING, STATES, Parts
from planner.capacity.serving import SERVING_INPUTS, serving_formulas
from planner.report import breakdown
from planner.report.columns import COLUMNS, FINE_TUNED, GROUPS, ON_DEVICES, SERVED, TIME
from planner.report.devices import reserve
from planner.report.html.expressions import Expressions, condition, packed
from planner.report.html.markup import text
from planner.report.paths import display_path
from planner.report.planned import Planned
from planner.report.served import setting
from planner.trace.sizes import Size

_GIVEN = ("batch_size", "sequence_length", "train_tokens", "train_gflop")  # inputs, and one that is rounded


def section(model: Planned) -> str:
    """Return the live section of a model with its data, hidden until the script runs; empty if its settings cannot change."""
    found = (layout_formulas if model.plans[0].training.layout else formulas_by_choice)(model.spec)
    if found is None:
        return ""
    return _file("live.html").replace("{name}", text(model.spec.name)).replace("{data}", packed(_data(model, found)))


def style() -> str:
    """Return the style of live sections."""
    return _file("live.css")


def script() -> str:
    """Return the script of live sections."""
    return "".join(_file(name) for name in ("formulas.js", "memory.js", "parts.js", "ranks.js", "serving.js", "live.js"))


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _data(model: Planned, found: Formulas | LayoutFormulas) -> dict[str, Any]:
    sizes, base = Expressions(), model.plans[0]
    layout = base.training.layout
    made = _of_layouts(found, sizes) if isinstance(found, LayoutFormulas) else _of_one_device(found, sizes)
    figures, made["plans"] = _shown(made["plans"], sizes)
    keys = {name: f"training.{name}" for name in CHOICES} | {name: f"layout.{name}" for name in LAYOUT_CHOICES if layout}
    return {
        "name": model.spec.name,
        "spec": display_path(model.spec.path),
        "values": {name: str(value) for name, value in found.values.items()},
        "derived": {name: sizes.text(size) for name, size in found.derived.items()},
        "inputs": dict(found.inputs),
        "keys": keys,
        "choices": {name: sorted({chosen[at] for chosen in made["plans"]}, key=_order(name)) for at, name in enumerate(keys)},
        "chosen": found.chosen,
        "presets": {name: [chosen, {key: str(value) for key, value in sizes.items()}] for name, (chosen, sizes) in found.presets.items()},
        "figures": figures,
        "conventions": dict(note.split(": ", 1) for note in breakdown.conventions(base).notes),
        "convention": base.flops.chosen.convention,
        "sources": model.spec.sources,
        **made,
        "plans": {" ".join(chosen): variants for chosen, variants in made["plans"].items()},
        "served": _served(model, sizes),
        "sizes": list(sizes.sizes),
        "helpers": sizes.written,
        "devices": [[one.name, str(one.memory_bytes)] for one in devices.entries()],
        "device": _device(base),
        "reserve": str(reserve(base.training)),
    }


def _of_one_device(found: Formulas, sizes: Expressions) -> dict[str, Any]:
    """Return the parts of the data that depend on the formulas."""
    keys, movable = list(found.noted), {*found.inputs, *found.derived}
    return {
        "plans": {chosen: [[keys.index(chosen[:2]), [plan], []]] for chosen, plan in found.plans.items()},
        "sets": [[{}, [condition(one, sizes) for one in guards(found.noted[key], movable)]] for key in keys],
        "rules": {"": [[[rule.relation, sizes.text(rule.left), sizes.text(rule.right)], rule.message] for rule in found.rules]},
        "weights": list(_weights(found.plans[found.chosen].parameters, sizes)),
        **_memory(found, sizes),
    }


def _of_layouts(found: LayoutFormulas, sizes: Expressions) -> dict[str, Any]:
    """Return the same with a layout, whose plans are for several structures and kinds of devices."""
    sets: list[list[Any]] = []
    plans: dict[Choice, list[list[Any]]] = {}
    for chosen, variants in found.variants.items():
        for one in variants:
            definitions = {name: sizes.text(size) for name, size in one.definitions.items()}
            applies = [definitions, [condition(guard, sizes) for guard in one.guards]]
            if applies not in sets:
                sets.append(applies)
            ranks = [_rank(rank, sizes) for plan in one.plans if plan.fleet for rank in plan.fleet.ranks]
            plans.setdefault(chosen, []).append([sets.index(applies), one.plans, ranks])
    return {
        "plans": plans,
        "sets": sets,
        "rules": {" ".join(kind): [[_test(test, sizes), why] for test, why in required] for kind, required in found.required.items()},
        "weights": list(_weights(found.parameters, sizes)),
        "parts": [],
        "moments": {},
    }


def _shown(plans: Mapping[Any, list[list[Any]]], sizes: Expressions) -> tuple[list[tuple[str, ...]], dict[Any, list[list[Any]]]]:
    """Return the figures that any plan has, and the plans as the numbers of their expressions."""
    figures = list(_figures(next(iter(plans.values()))[0][1][0]))
    numbers = {
        chosen: [
            [applies, [[None if size is None else sizes.number(size) for *_, size in _figures(plan)] for plan in of_devices], ranks]
            for applies, of_devices, ranks in variants
        ]
        for chosen, variants in plans.items()
    }
    rows = [row for variants in numbers.values() for _, of_devices, _ in variants for row in of_devices]
    shown = [at for at in range(len(figures)) if any(row[at] not in (None, sizes.sizes.get("0")) for row in rows)]
    for variants in numbers.values():
        for one in variants:
            one[1] = [[row[at] for at in shown] for row in one[1]]
    return [figures[at][:4] for at in shown], numbers


def _served(model: Planned, sizes: Expressions) -> dict[str, Any] | None:
    """Return the figures of a spec's section ``serving``, with their inputs; None if it has none."""
    found, own = serving_formulas(model.spec), model.spec.serving
    if found is None or own is None:
        return None
    plan = replace(model.plans[0], served=found.served)
    figures = [(column, column.read(plan)) for column in SERVED]
    keys = {name: f"serving.{field}" for name, field in SERVING_INPUTS.items() if name != "memory"}
    return {
        "inputs": keys,
        "values": {name: str(value) for name, value in found.values.items()},
        "device": [own.device or "the spec's memory", str(found.values["memory"])],
        "about": setting(own).partition(",")[0],
        "figures": [[one.name, one.unit, one.description, sizes.number(cast("Size", size))] for one, size in figures if size is not None],
        "guards": [condition(one, sizes) for one in guards(found.choices, found.values)],
    }


def _rank(rank: RankPeak, sizes: Expressions) -> list[Any]:
    """Return which device it is, its peak, and its memory by part."""
    return [rank.which, sizes.number(rank.peak_bytes), [[name, sizes.number(size)] for name, size in rank.parts]]


def _test(test: Test, sizes: Expressions) -> list[Any] | bool:
    """Return a test as the script reads it."""
    if isinstance(test, bool):
        return test
    relation, *both = test
    return [relation, *(_test(cast("Test", one), sizes) if relation in "&|" else sizes.text(cast("Size", one)) for one in both)]


def _weights(counted: Parameters, sizes: Expressions) -> Iterator[list[Any]]:
    """Yield the class that colors a component, its name, and its weights, each with the number of its size."""
    for number, component in enumerate(COMPONENTS):
        inside = [weight for weight in counted.weights if weight.component == component]
        if inside:
            yield [f"p{number}", component, [[_short(weight.name), sizes.number(weight.params)] for weight in inside]]


def _short(name: str) -> str:
    return name.removeprefix("model.").replace("layers.N.", "").removesuffix(".weight")


def _memory(found: Formulas, sizes: Expressions) -> dict[str, Any]:
    """Return memory by part: lists of parts and sizes, each by its number."""

    def listed(parts: Parts) -> list[int]:
        return [number for part, size in parts.items() for number in (PARTS.index(part), sizes.number(size))]

    operators: dict[str, int] = {}

    def moment(phase: Phase, operator: str, parts: Parts) -> list[int]:
        return [PHASES.index(phase), operators.setdefault(operator, len(operators)), *listed(parts)]

    moments = {" ".join(key): [moment(*sample) for sample in one.samples] for key, one in found.samples.items()}
    return {
        "parts": [*map(list, (STATES, ACTIVATIONS, PASSING))],
        "phases": PHASES,
        "operators": list(operators),
        "moments": moments,
        "stretches": {
            " ".join(key): [[each.first, each.samples, sizes.number(each.count), *listed(each.left)] for each in one.stretches]
            for key, one in found.samples.items()
        },
        "after": {" ".join(key): listed(one.after) for key, one in found.samples.items()},
        "throughout": {" ".join(key): [sizes.number(update), *listed(parts)] for key, (parts, update) in found.throughout.items()},
    }


def _order(name: str) -> Any:  # noqa: ANN401 - a sort key
    known = {**CHOICES, **LAYOUT_CHOICES}[name]
    return lambda value: (value not in known, known.index(value) if value in known else 0)


def _device(plan: Plan) -> list[str]:
    """Return the name and the memory of the plan's device; nothing for one that the catalog does not have."""
    layout = plan.training.layout
    if layout:
        return [layout.cluster.device or "the spec's device", str(layout.cluster.memory_bytes)]
    device = devices.find(plan.training.device)
    return [device.name, str(device.memory_bytes)] if device else []


def _figures(plan: Plan) -> Iterator[tuple[str, str, str, str, Size | None]]:
    """Yield each figure: its group, name, unit and meaning, and its expression."""
    for column in (*COLUMNS, *(ON_DEVICES if plan.fleet else ()), *(FINE_TUNED if plan.fine_tuned else ())):
        if column.kind == "integer" and column.name not in _GIVEN and column.method != TIME:
            value = column.read(plan)
            assert not isinstance(value, str)  # noqa: S101 - of integers
            yield "", column.name, column.unit, column.description, value
    for group in GROUPS:
        for name, size in group.read(plan).items():
            yield group.name, name, group.unit, group.description, size
