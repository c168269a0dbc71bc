"""The functions of the Python API: the commands' words, with the same results as records.

A spec is a ``Spec``, a path, the name of a model in the catalog, or a mapping with the keys of a spec or config.json. ``set`` overrides
settings by their dotted keys, as ``--set`` does. Keywords are settings of ``training`` and ``model`` without the section:
``batch_size=4``; they hold in the scenario that is planned. Errors: ``SpecError`` lists everything that is wrong with a spec,
``UnsupportedError`` says what cannot be planned, and ``ValueError`` and ``TypeError`` name a wrong argument.
"""

from __future__ import annotations

import json
import operator
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

from planner import capacity
from planner import spec as specs
from planner.capacity.explain import Explanation
from planner.capacity.figures import Plan
from planner.importer.convert import as_spec
from planner.report import devices, quantity
from planner.report.notebook import Plans
from planner.spec import Scenario, Spec, SpecError
from planner.spec.edits import ByName, Difference, Path, changed
from planner.spec.language import inlined, properties
from planner.spec.override import clash, parse_overrides
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    from datetime import date

    from planner.capacity.served import Pooled, Served
    from planner.explore.compare import Comparison
    from planner.explore.fit import Fit
    from planner.explore.size import Configuration
    from planner.explore.table import Sweep
    from planner.review.review import Review

SpecLike: TypeAlias = "Spec | str | os.PathLike[str] | Mapping[str, Any]"
Settings: TypeAlias = "Mapping[str, Any] | None"

BASE = "base"
_SECTIONS = ("training", "model")

__all__ = [
    "Plan", "Spec", "SpecError", "UnsupportedError", "compare", "diff", "explain", "fit", "load", "plan", "plans", "serve", "size", "sweep",
]  # fmt: skip


def load(spec: SpecLike, *, set: Settings = None) -> Spec:
    """Return the spec of a file, of a model in the catalog or of a mapping, checked. Raises SpecError.

    >>> spec = planner.load("specs/gpt2-small.yaml", set={"model.n_layers": 24})
    >>> spec.name, spec.model.n_layers
    ('gpt2-small', 24)
    """
    if not isinstance(set, Mapping | None):
        raise TypeError(f"set must be a mapping of dotted keys to values, not {type(set).__name__}")
    overrides = [f"{key}={_text(value, key)}" for key, value in (set or {}).items()]
    if isinstance(spec, Spec):
        return changed(spec, overrides=overrides) if overrides else spec
    if isinstance(spec, Mapping):
        return specs.load_text(_text(spec, "the mapping"), overrides, convert=as_spec)
    if not isinstance(spec, str | os.PathLike):
        raise TypeError(f"a spec must be a Spec, a path or a mapping, not {type(spec).__name__}")
    return specs.load(spec, overrides, convert=as_spec)


def plan(spec: SpecLike, scenario: str = BASE, *, set: Settings = None, **settings: Any) -> Plan:
    """Plan a scenario of the spec by name; ``base`` is the spec's ``training``. A plan is an immutable record of exact integers.

    >>> plan = planner.plan("specs/gpt2-small.yaml", batch_size=4)
    >>> plan.parameters.total, plan.training.batch_size
    (124439808, 4)
    >>> plan.memory.peak_bytes < planner.plan("specs/gpt2-small.yaml", batch_size=8).memory.peak_bytes
    True
    >>> plan.to_frame()[["model", "params_total", "batch_size"]]
            model  params_total  batch_size
    0  gpt2-small     124439808           4
    """
    return capacity.plan(*_scenario(spec, scenario, set, settings))


def plans(spec: SpecLike, *, set: Settings = None) -> Plans:
    """Plan every scenario of the spec, the base scenario first. Notebooks display the tuple as a table.

    >>> [plan.scenario for plan in planner.plans("specs/gpt2-small.yaml")]
    ['base']
    """
    return Plans(capacity.plans(load(spec, set=set)))


def explain(spec: SpecLike, scenario: str = BASE, *, set: Settings = None, **settings: Any) -> tuple[Explanation, ...]:
    """Return every figure of a plan with its formula, the formula with numbers, and its source.

    >>> [line] = [line for line in planner.explain("specs/gpt2-small.yaml") if line.figure == "model.embed_tokens.weight"]
    >>> line.formula, line.substituted, line.value
    ('V·d_model', '50257·768', 38597376)
    """
    return capacity.explain(*_scenario(spec, scenario, set, settings))


def fit(
    spec: SpecLike,
    memory: int | str,
    scenario: str = BASE,
    *,
    vary: Sequence[str] = (),
    set: Settings = None,
    **settings: Any,
) -> tuple[Fit, ...]:
    """Return the largest batch, sequence, depth, width and rank at which a step fits, or of the settings to ``vary``, each alone.

    ``memory`` is a number of bytes, or as ``--memory`` takes it: "80GiB", or "h100-80gb", of which 2 GiB are kept free.

    >>> [batch] = planner.fit("specs/gpt2-small.yaml", "80GiB", vary=["batch_size"])
    >>> planner.plan("specs/gpt2-small.yaml", batch_size=batch.largest).memory.peak_bytes == batch.peak_bytes <= 80 * 2**30
    True
    """
    from planner.explore.fit import SETTINGS, fits

    known, one = _scenario(spec, scenario, set, settings)
    vary = (vary,) if isinstance(vary, str) else vary
    if wrong := [name for name in vary if name not in SETTINGS]:
        raise ValueError(f"cannot vary {wrong[0]!r}; choose from {', '.join(SETTINGS)}")
    capacity.plan(known, one)  # raises if the plan as given is not supported
    return fits(known, scenario, _step_memory(memory, one), vary or SETTINGS)


def serve(spec: SpecLike, *, set: Settings = None, **settings: Any) -> Served | Pooled:
    """Return the memory and FLOPs of a model that answers requests. Keywords are settings of the section ``serving``.

    >>> served = planner.serve("specs/gpt2-small.yaml", prompt=512, output=128)
    >>> served.cache_bytes == 512 * 12 * 2 * 768 * 2  # tokens, layers, keys and values, width, bytes
    True
    """
    from planner.capacity import serving

    known = load(spec, set={**(set or {}), **{f"serving.{name}": value for name, value in settings.items()}})
    if known.serving is None:
        raise ValueError(f"{known.name} has no section serving; give its settings, for example prompt=2048")
    return serving.serve(known, known.serving, known.scenarios[0].training)


def sweep(spec: SpecLike, axes: Mapping[str, Iterable[int | str] | str], *, metric: str = "peak_bytes", set: Settings = None) -> Sweep:
    """Return metrics of the base scenario at every point of a grid, exact.

    ``axes`` has the values of each setting by its dotted key, or text as in the command: ``{"training.batch_size": "1..64"}``.

    >>> grid = planner.sweep("specs/gpt2-small.yaml", {"training.batch_size": [1, 2, 4], "training.precision": ["bf16", "fp32"]})
    >>> grid.points
    6
    """
    from planner.explore import axes as grid
    from planner.explore.sweep import sweep
    from planner.explore.table import METRICS

    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; choose from {', '.join(METRICS)}")
    made = [grid.parse(f"{key}={values}") if isinstance(values, str) else grid.of(key, values) for key, values in axes.items()]
    base = load(spec, set=set)
    if twice := clash((*(set or {}), *axes)):
        raise ValueError(f"{twice}; give all its values in axes")
    return sweep(lambda overrides: changed(base, overrides=overrides), made, metric=metric)


def compare(*specs: SpecLike | Plan, set: Settings = None) -> Comparison:
    """Return the metrics of plans side by side, with compute-optimal tokens and the settings that differ.

    A spec stands for all of its scenarios. Notebooks display the result as a table.

    >>> comparison = planner.compare("specs/gpt2-small.yaml", "specs/gpt2-xl.yaml")
    >>> [line.values for line in comparison.lines if line.name == "params_total"]
    [(124439808, 1557611200)]
    """
    from planner.explore.compare import Comparison

    if not specs:
        raise TypeError("compare() takes at least one spec")
    if set and any(isinstance(spec, Plan) for spec in specs):
        raise TypeError("set changes specs, not plans")
    return Comparison(tuple(one for spec in specs for one in ((spec,) if isinstance(spec, Plan) else plans(spec, set=set))))


def size(
    params: int | str | None = None,
    *,
    flops: int | str | None = None,
    memory: int | str | None = None,
    like: str | Spec = "llama",
    tokens: int | str | None = None,
) -> tuple[Configuration, ...]:
    """Return configurations like a reference model's, closest to a number of parameters or of training FLOPs, the closest first.

    With ``memory``, as ``planner.fit`` takes it, they are the largest whose training step fits, the largest first.
    Numbers may be text as in the command. Without ``tokens``, FLOPs are for 20 per parameter.

    >>> first, *others = planner.size("7B", like="llama")
    >>> first.params_total == 7 * 10**9 + first.off
    True
    """
    from planner.explore.size import path_of, shapes

    targets = {"params": (params, "parameters"), "flops": (flops, "FLOP"), "memory": (memory, "bytes")}
    given = [(of, amount, unit) for of, (amount, unit) in targets.items() if amount is not None]
    if len(given) != 1:
        raise TypeError("size() takes one of params, flops and memory")
    ((of, amount, unit),) = given
    reference = like if isinstance(like, Spec) else load(path_of(like))
    trained = None if tokens is None else _amount(tokens, "tokens")
    target = _step_memory(amount, reference.scenarios[0]) if of == "memory" else _amount(amount, unit)
    return shapes(reference, target, of=of, tokens=trained)


def diff(
    *specs: str,
    base: str | None = None,
    base_report: str | os.PathLike[str] | None = None,
    today: date | None = None,
) -> Review:
    """Review the specs around the working directory against a git revision or a saved capacity.json, as ``planner diff`` does.

    Reviews the specs in planner.yaml if none are given. ``today`` is the date for waivers (default: today, UTC). The review's ``failed`` is
    true if a finding is an error.
    """
    from planner.review.diff import Request, review
    from planner.review.findings import this_day

    request = Request(specs, base, None if base_report is None else pathlib.Path(base_report), today or this_day())
    return review(request, pathlib.Path.cwd())


def _scenario(spec: SpecLike, scenario: str, set: Settings, settings: Mapping[str, Any]) -> tuple[Spec, Scenario]:
    """Return the spec with overrides and settings, and a scenario of it."""
    known = load(spec, set=set)
    _named(known, scenario)
    if twice := [key for key in settings if f"{_section(key)}.{key}" in (set or {})]:
        raise TypeError(f"{twice[0]} is given twice: as a keyword and in set")
    if settings:
        known = changed(known, [_setting(key, value, scenario) for key, value in settings.items()])
    return known, _named(known, scenario)


def _named(spec: Spec, scenario: str) -> Scenario:
    for one in spec.scenarios:
        if one.name == scenario:
            return one
    raise ValueError(f"unknown scenario {scenario!r} of {spec.name}; its scenarios are {', '.join(one.name for one in spec.scenarios)}")


def _setting(setting: str, value: object, scenario: str) -> Difference:
    """Return the edit that gives a setting, named without its section, a value in a scenario. Raises TypeError and SpecError."""
    section = _section(setting)
    (tree,) = parse_overrides([f"{setting}={_text(value, setting)}"])
    within: Path = ("scenarios", ByName(scenario)) if section == "training" and scenario != BASE else (section,)
    return Difference((*within, setting), None, tree.items()[setting])


def _section(setting: str) -> str:
    sections = {key: section for section in _SECTIONS for key in properties(inlined()["properties"][section])}
    if setting not in sections:
        near = get_close_matches(setting, sections, 1)
        hint = f"; did you mean {near[0]}?" if near else "; other keys go in set={'section.key': value}"
        raise TypeError(f"unknown setting {setting!r}{hint}")
    return sections[setting]


def _text(value: object, what: object) -> str:
    """Return a value as JSON, which is YAML. Raises TypeError and ValueError for a value that is none."""
    try:
        return json.dumps(value, allow_nan=False, default=operator.index)  # NumPy's integers
    except (TypeError, ValueError, RecursionError) as error:
        raise type(error)(f"{what} has a value that a spec cannot have: {error}") from None


def _step_memory(given: int | str, scenario: Scenario) -> int:
    return given if isinstance(given, int) else int(devices.step_memory(given, scenario.training).value)


def _amount(given: int | str, unit: str) -> int:
    return int(quantity.parse(given, unit, bare=unit != "bytes" or not isinstance(given, str)).value)
