"""A spec's figures as formulas for each choice of precision, recomputation and optimizer, and where these formulas apply.

Sizes such as B or d_model are symbols of the formulas. Other settings change the structure of the trace, so each choice has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import eq, lt
from typing import NamedTuple, get_args

from planner.capacity.figures import Plan
from planner.capacity.parts import Parts, Samples, has_parts, throughout, walked
from planner.capacity.plan import plan, with_optimizers
from planner.capacity.symbolic import derived_sizes
from planner.capacity.symbols import SymbolicModel, different_devices, symbolize
from planner.spec.edits import changed
from planner.spec.problems import SpecError
from planner.spec.records import Model, Optimizer, Precision, Recompute, Scenario, Spec, Training
from planner.trace.setup import is_one
from planner.trace.sizes import Choice, Size, evaluate, hinted, itself, symbol, symbols
from planner.trace.unsupported import UnsupportedError

_WIDEST = 512  # sizes for which the choices of structure that are no comparisons are tried, e.g. of a kernel by head_dim
# One of each kind of state: the formulas of all would take some seconds.
_OPTIMIZERS: tuple[Optimizer, ...] = ("adamw", "sgd", "sgd-momentum", "adamw-8bit", "adafactor", "lion", "muon")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "precision": get_args(Precision),
    "recompute": get_args(Recompute),
    "optimizer": _OPTIMIZERS,
}
"""The settings of training that change the structure, and the values that can be chosen besides the spec's own."""
INPUTS: Mapping[str, str] = {
    "B": "training.batch_size",
    "n": "training.sequence_length",
    "n_layers": "model.n_layers",
    "d_model": "model.d_model",
    "n_heads": "model.n_heads",
    "tokens": "training.tokens",
}
"""The symbols that can be changed, and their keys."""

Chosen = tuple[str, ...]
"""A value of each of ``CHOICES``."""


class Rule(NamedTuple):
    """A condition on sizes: ``left`` ``relation`` ``right``, and the message if it is not met."""

    left: Size
    relation: str  # "<=", "==" or "!="
    right: Size
    message: str


class Guard(NamedTuple):
    """A condition under which formulas apply: a relation of two sizes, or ``in``, the values of a size as bits from 1 on."""

    relation: str
    left: Size
    right: Size | str


@dataclass(frozen=True, slots=True)
class Formulas:
    """The figures of a spec's base scenario for each valid combination of choices.

    ``noted`` has the choices that the trace made by sizes, by precision and recomputation: with other sizes that lead to other choices, the
    formulas do not apply. Sizes that break a rule are refused by the spec language.
    """

    values: Mapping[str, int]
    derived: Mapping[str, Size]
    inputs: Mapping[str, str]  # of INPUTS, those that change nothing but their symbol and derived sizes
    plans: Mapping[Chosen, Plan]  # of expressions
    noted: Mapping[Chosen, list[Choice]]  # by precision and recomputation
    rules: tuple[Rule, ...]
    chosen: Chosen
    presets: Mapping[str, tuple[Chosen, Mapping[str, int]]]  # scenarios that differ in choices and inputs only
    samples: Mapping[Chosen, Samples]  # of memory by part, by precision and recomputation, if they are known
    throughout: Mapping[Chosen, tuple[Parts, Size]]  # by part, and the temporary bytes of the update


def formulas_by_choice(spec: Spec) -> Formulas | None:
    """Return the formulas of a spec, None if its settings cannot change or its layout has no formulas."""
    training = spec.scenarios[0].training
    if spec.written is None:
        return None
    try:
        own = symbolize(spec.model, training)
    except UnsupportedError:
        return None
    plans: dict[Chosen, Plan] = {}
    noted: dict[Chosen, list[Choice]] = {}
    samples: dict[Chosen, Samples] = {}
    around: dict[Chosen, tuple[Parts, Size]] = {}
    for precision in CHOICES["precision"]:
        optimizers = dict(_optimizers(spec, precision))
        for recompute in CHOICES["recompute"]:
            if made := _plans(spec, precision, recompute, optimizers):
                plans |= {(precision, recompute, optimizer): one for optimizer, one in made.plans.items()}
                noted[precision, recompute] = made.choices
                if made.samples:
                    samples[precision, recompute] = made.samples
                    around |= {(precision, recompute, optimizer): one for optimizer, one in made.throughout.items()}
    chosen = _chosen(training)
    if chosen not in plans:
        return None
    derived = derived_sizes(spec, own.values)
    inputs = {name: key for name, key in INPUTS.items() if name in own.values and changes_alone(spec, own, derived, name)}
    must = tuple(rules(spec.model, own.values, derived))
    return Formulas(own.values, derived, inputs, plans, noted, must, chosen, _presets(spec, own, inputs, plans), samples, around)


def _chosen(training: Training) -> Chosen:
    return tuple(str(getattr(training, name)) for name in CHOICES)


def with_settings(spec: Spec, settings: Mapping[str, object]) -> Spec | None:
    """Return the spec with other settings, None if it is invalid."""
    try:
        return changed(spec, overrides=[f"{key}={value}" for key, value in settings.items()])
    except (SpecError, ValueError):
        return None


def _optimizers(spec: Spec, precision: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the optimizers that are valid with a precision, each with the fields of training that it changes."""
    base = with_settings(spec, {"training.precision": precision})
    if base is None:
        return
    before = base.scenarios[0].training
    yield before.optimizer, {}
    for optimizer in CHOICES["optimizer"] if _one_walk(spec) else ():
        other = with_settings(spec, {"training.precision": precision, "training.optimizer": optimizer})
        if other and optimizer != before.optimizer:
            after = other.scenarios[0].training
            pairs = ((one.name, getattr(before, one.name), getattr(after, one.name)) for one in fields(before))
            yield optimizer, {name: new for name, old, new in pairs if old != new}


def _one_walk(spec: Spec) -> bool:
    """Return whether all optimizers have the same passes, on one device."""
    training = spec.scenarios[0].training
    return not (training.layout or training.optimizer_in_backward or spec.model.prediction)


@dataclass(frozen=True, slots=True)
class _Made:
    """The plans of a precision and a recomputation by optimizer, and their memory by part."""

    choices: list[Choice]
    plans: dict[str, Plan]
    samples: Samples | None
    throughout: dict[str, tuple[Parts, Size]]


def _plans(spec: Spec, precision: str, recompute: str, optimizers: Mapping[str, Mapping[str, object]]) -> _Made | None:
    """Return the plan with each optimizer, None for an invalid combination or one that is not modeled."""
    other = with_settings(spec, {"training.precision": precision, "training.recompute": recompute}) if optimizers else None
    if other is None:
        return None
    training = other.scenarios[0].training
    names = symbolize(other.model, training)
    try:
        made = plan(replace(other, model=names.model, serving=None), Scenario("base", names.training))
    except UnsupportedError:
        return None
    if not _one_walk(spec):
        return _Made(names.choices, {training.optimizer: made}, None, {})
    plans: dict[str, Plan] = {}
    around: dict[str, tuple[Parts, Size]] = {}
    trainings = [replace(names.training, **fields) for fields in optimizers.values()]  # type: ignore[arg-type]  # of its own
    samples = None
    for one, (memory, held, a_step) in zip(trainings, with_optimizers(names.model, trainings), strict=True):
        plans[one.optimizer] = replace(made, training=one, memory=memory)  # type: ignore[arg-type]  # a plan of expressions
        around[one.optimizer] = throughout(held, a_step), a_step.temporaries[0]
        if samples is None and has_parts(training):
            samples = walked(names.model, names.training, preallocated=held.preallocated)
    return _Made(names.choices, plans, samples, around)


def changes_alone(
    spec: Spec,
    own: SymbolicModel,
    derived: Mapping[str, Size],
    name: str,
    over_symbols: Callable[[Model, Training], SymbolicModel] = symbolize,
) -> bool:
    """Return whether an input changes nothing but its symbol and derived sizes: the spec with another value is tried."""
    value = own.values[name]
    tried = value // 2 if name == "n" and value > 1 else 2 * value  # n may end at the learned positions
    other = with_settings(spec, {INPUTS[name]: tried})
    if other is None:
        return False
    names = over_symbols(other.model, other.scenarios[0].training)
    return (names.model, names.training, names.values) == (own.model, own.training, moved(own.values, derived, {name: tried}))


def moved(values: Mapping[str, int], derived: Mapping[str, Size], inputs: Mapping[str, int]) -> dict[str, int]:
    """Return the values of the symbols with other inputs."""
    made = {**values, **inputs}
    return made | {name: evaluate(size, made) for name, size in derived.items()}


def _presets(
    spec: Spec, own: SymbolicModel, inputs: Mapping[str, str], plans: Mapping[Chosen, Plan]
) -> dict[str, tuple[Chosen, Mapping[str, int]]]:
    """Return the scenarios whose plan is that of other choices and inputs."""
    found: dict[str, tuple[Chosen, Mapping[str, int]]] = {}
    for scenario in spec.scenarios[1:]:
        if any(different_devices(scenario.training)):
            continue  # which have no formulas
        names, chosen = symbolize(spec.model, scenario.training), _chosen(scenario.training)
        different = {name: value for name, value in names.values.items() if value != own.values.get(name)}
        if chosen in plans and different.keys() <= inputs.keys() and names.training == plans[chosen].training:
            found[scenario.name] = chosen, different
    return found


def rules(model: Model, values: Mapping[str, int], derived: Mapping[str, Size]) -> Iterator[Rule]:
    """Yield what a spec must meet, and that sizes which only happen to be different stay so: equal ones are one symbol."""
    if model.positions.type == "learned":
        yield Rule(symbol("n"), "<=", symbol("context_length"), "sequence_length exceeds context_length, the learned positions")
    if "head_dim" in derived:
        heads, width = symbol("n_heads"), symbol("d_model")
        yield Rule(width // heads * heads, "==", width, "n_heads does not divide d_model")
    for rotated in ("rotary_dim", "head_dim") if any(layer.positions.type == "rope" for run in model.runs for layer in run.layers) else ():
        if rotated in values:
            yield Rule(symbol(rotated) // 2 * 2, "==", symbol(rotated), f"{rotated} must be even")
            break
    if "rotary_dim" in values and "head_dim" in values:
        yield Rule(symbol("rotary_dim"), "<=", symbol("head_dim"), "rotary_dim exceeds head_dim")
    if "n_kv_heads" in values and "n_heads" in values:
        shared, heads = symbol("n_kv_heads"), symbol("n_heads")
        yield Rule(heads // shared * shared, "==", heads, "n_kv_heads does not divide n_heads")
    for one, other in (("n_heads", "n_kv_heads"), ("head_dim", "rotary_dim")):
        if one in values and other in values:
            yield Rule(symbol(one), "!=", symbol(other), f"equal {one} and {other} call for other formulas")


def guards(noted: Iterable[Choice], movable: Collection[str]) -> Iterator[Guard]:
    """Yield each condition under which formulas apply whose trace made these choices, if one of the movable symbols is in it."""
    seen: set[Guard] = set()
    for choice in noted:
        if any(name in movable for size in choice.sizes for name in symbols(size)):
            for guard in _guards(choice):
                if guard not in seen:
                    seen.add(guard)
                    yield guard


def _guards(choice: Choice) -> Iterator[Guard]:
    distinct = list(dict.fromkeys(choice.sizes))
    if choice.function is lt:
        yield Guard("<" if choice.made else ">=", *choice.sizes)
    elif choice.function is eq and len(distinct) > 1:
        yield Guard("==" if choice.made else "!=", *distinct)
    elif choice.function is is_one:
        yield Guard("==" if choice.made else "!=", distinct[0], 1)
    elif len(distinct) == 1 and choice.function is not itself and hinted(distinct[0]) <= _WIDEST:
        tried = (choice.function(*[size] * len(choice.sizes)) == choice.made for size in range(1, _WIDEST + 1))
        yield Guard("in", distinct[0], "".join("01"[same] for same in tried))
    else:
        yield from (Guard("==", size, hinted(size)) for size in distinct)
