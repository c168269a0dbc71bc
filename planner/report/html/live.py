"""The part of a page whose figures follow their inputs: the expressions of a plan over symbols, which the browser evaluates exactly."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import compress

from planner import devices
from planner.capacity.choices import CHOICES, Formulas, Guard, formulas_by_choice, guards
from planner.capacity.figures import COMPONENTS, PHASES, Phase, Plan
from planner.capacity.parts import ACTIVATIONS, PARTS, PASSING, STATES, Parts
from planner.report import breakdown
from planner.report.columns import COLUMNS, FINE_TUNED, GROUPS, ON_DEVICES, TIME
from planner.report.html.markup import text
from planner.report.paths import display_path
from planner.report.planned import Planned
from planner.trace.sizes import Factor, Monomial, Size, polynomial_text

_GIVEN = ("batch_size", "sequence_length", "train_tokens", "train_gflop")  # inputs, and one that is rounded


@dataclass(slots=True)
class _Sizes:
    """Expressions and the helpers in them, each once, as text that the page parses: ``4*B*n + 2*@7``, @7 being the helper at 7."""

    sizes: dict[str, int] = field(default_factory=dict)
    helpers: dict[Factor, int] = field(default_factory=dict)
    written: list[list[str | int]] = field(default_factory=list)  # of helpers: the name and the arguments
    texts: dict[Size, str] = field(default_factory=dict)

    def number(self, size: Size) -> int:
        """Return the number of an expression."""
        return self.sizes.setdefault(self.text(size), len(self.sizes))

    def text(self, size: Size) -> str:
        """Return an expression as text."""
        if size not in self.texts:
            self.texts[size] = polynomial_text(size, self._product, "*").replace(" ", "")
        return self.texts[size]

    def _product(self, product: Monomial) -> str:
        return "*".join(self._factor(factor) + (f"^{power}" if power > 1 else "") for factor, power in product)

    def _factor(self, factor: Factor) -> str:
        if isinstance(factor, str):
            return factor
        if factor not in self.helpers:
            arguments = [self.text(argument) for argument in factor[1]]
            self.helpers[factor] = len(self.written)
            self.written.append([factor[0], *arguments])
        return f"@{self.helpers[factor]}"


def section(model: Planned) -> str:
    """Return the live section of a model with its data, hidden until the script runs; empty if its settings cannot change."""
    found = formulas_by_choice(model.spec)
    if found is None:
        return ""
    data = json.dumps(_data(model, found), separators=(",", ":"), ensure_ascii=False)
    packed = b64encode(compress(data.encode(), 9)).decode()
    return _file("live.html").replace("{name}", text(model.spec.name)).replace("{data}", packed)


def style() -> str:
    """Return the style of live sections."""
    return _file("live.css")


def script() -> str:
    """Return the script of live sections."""
    return "".join(_file(name) for name in ("exact.js", "memory.js", "parts.js", "live.js"))


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _data(model: Planned, found: Formulas) -> dict[str, Any]:
    sizes, base = _Sizes(), model.plans[0]
    movable = {*found.inputs, *found.derived}
    figures = list(_figures(found.plans[found.chosen]))
    rows = {chosen: [None if size is None else sizes.number(size) for *_, size in _figures(plan)] for chosen, plan in found.plans.items()}
    shown = [number for number in range(len(figures)) if any(row[number] not in (None, sizes.sizes.get("0")) for row in rows.values())]
    layout = base.training.layout
    return {
        "spec": display_path(model.spec.path),
        "values": {name: str(value) for name, value in found.values.items()},
        "derived": {name: sizes.text(size) for name, size in found.derived.items()},
        "inputs": dict(found.inputs),
        "choices": {name: sorted({chosen[at] for chosen in rows}, key=_order(name)) for at, name in enumerate(CHOICES)},
        "chosen": found.chosen,
        "presets": {name: [chosen, {key: str(value) for key, value in sizes.items()}] for name, (chosen, sizes) in found.presets.items()},
        "figures": [figures[number][:4] for number in shown],
        "plans": {" ".join(chosen): [row[number] for number in shown] for chosen, row in rows.items()},
        "guards": {" ".join(key): [_guard(one, sizes) for one in guards(noted, movable)] for key, noted in found.noted.items()},
        "rules": [[sizes.text(rule.left), rule.relation, sizes.text(rule.right), rule.message] for rule in found.rules],
        "weights": list(_weights(found.plans[found.chosen], sizes)),
        "conventions": dict(note.split(": ", 1) for note in breakdown.conventions(base).notes),
        "convention": base.flops.chosen.convention,
        "sources": model.spec.sources,
        **_memory(found, sizes),
        "sizes": list(sizes.sizes),
        "helpers": sizes.written,
        "devices": [[one.name, str(one.memory_bytes)] for one in devices.entries()],
        "device": _device(base),
        "reserve": str(layout.cluster.reserve_bytes) if layout else "0",
    }


def _weights(plan: Plan, sizes: _Sizes) -> Iterator[list[Any]]:
    """Yield the class that colors a component, its name, and its weights, each with the number of its size."""
    for number, component in enumerate(COMPONENTS):
        inside = [weight for weight in plan.parameters.weights if weight.component == component]
        if inside:
            yield [f"p{number}", component, [[_short(weight.name), sizes.number(weight.params)] for weight in inside]]


def _short(name: str) -> str:
    return name.removeprefix("model.").replace("layers.N.", "").removesuffix(".weight")


def _memory(found: Formulas, sizes: _Sizes) -> dict[str, Any]:
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
    known = CHOICES[name]
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


def _guard(one: Guard, sizes: _Sizes) -> list[str]:
    return [one.relation, sizes.text(one.left), one.right if isinstance(one.right, str) else sizes.text(one.right)]
