"""A spec's figures as formulas over the sizes of its layout and its model, for each structure of layouts near its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import cast, get_args

from planner import devices
from planner.capacity.choices import CHOICES, INPUTS, Guard, changes_alone, guards, rules, with_settings
from planner.capacity.figures import Parameters, Plan
from planner.capacity.layout_conditions import Test, required
from planner.capacity.layout_symbols import SIZES, data_degree, size_of, structure_of, with_sizes
from planner.capacity.layouts import refuse_unmodeled
from planner.capacity.parameters import parameters
from planner.capacity.plan import of_kinds
from planner.capacity.symbolic import derived_sizes
from planner.capacity.symbols import SymbolicModel, symbolize
from planner.spec.records import Layout, Model, Scenario, Spec, Training
from planner.spec.records.layout import DataParallel
from planner.trace.decoder import trace
from planner.trace.sizes import Size, maximum, symbol
from planner.trace.unsupported import UnsupportedError

LAYOUT_CHOICES: Mapping[str, tuple[str, ...]] = {
    "data_parallel": get_args(DataParallel),
    "sequence_parallel": ("false", "true"),
    "loss_parallel": ("false", "true"),
}
"""The settings of a layout that change the structure, besides its degrees."""
_DEGREES = {
    "devices": "cluster.devices",
    "tensor_parallel": "layout.tensor_parallel",
    "pipeline_parallel": "layout.pipeline_parallel",
}
_MOST = 56  # plans of kinds of devices, each of which takes time and bytes of a page
_TOGETHER = "global_batch_size"
Choice = tuple[str, ...]
"""A value of each of ``CHOICES`` and ``LAYOUT_CHOICES``."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Formulas of one structure: of each kind of device that can have the largest peak; what their symbols are, and where they apply."""

    plans: tuple[Plan, ...]
    definitions: Mapping[str, Size]  # over the inputs
    guards: tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class LayoutFormulas:
    """The figures of a spec's base scenario for each choice: those of the first variant whose guards hold.

    ``values`` has the spec's own layout by the names of ``SIZES``, besides the symbols of the model.
    """

    values: Mapping[str, int]
    derived: Mapping[str, Size]
    inputs: Mapping[str, str]
    parameters: Parameters
    variants: Mapping[Choice, tuple[Variant, ...]]
    required: Mapping[Choice, tuple[tuple[Test, str], ...]]  # by the choices of LAYOUT_CHOICES
    chosen: Choice
    presets: Mapping[str, tuple[Choice, Mapping[str, int]]]


def layout_formulas(spec: Spec) -> LayoutFormulas | None:
    """Return the formulas of a spec with a layout, None if its settings cannot change or it has no formulas."""
    training = spec.scenarios[0].training
    layout = training.layout
    if spec.written is None or layout is None or spec.model.prediction:
        return None
    whole = _whole(spec.model, training)
    given = {str(path[-1]) for path in spec.places if path[:1] == ("training",)}
    chosen = _chosen(training)
    variants: dict[Choice, list[Variant]] = {}
    tried, count = set[Training](), 0
    for settings in _candidates(spec.model, training, layout, global_batch=_TOGETHER in given):
        other = with_settings(spec, settings)
        if other is None or count >= _MOST or other.scenarios[0].training in tried:
            continue
        tried.add(other.scenarios[0].training)
        made = _variant(other, whole)
        if made and all(one.guards != made[1].guards for one in variants.get(made[0], ())):
            variants.setdefault(made[0], []).append(made[1])
            count += len(made[1].plans)
    if chosen not in variants:
        return None
    sizes = {name: size_of(name, spec.model, training) for name in SIZES if training.tokens or name != "tokens"}
    if _TOGETHER in given:
        sizes[_TOGETHER] = training.batch_size * training.gradient_accumulation * data_degree(sizes)
    of_model = {name: value for name, value in whole.values.items() if name not in ("B", "n", "tokens", "n_layers")}
    derived = of_defaults = derived_sizes(spec, whole.values)
    symbols: dict[str, Size] = {name: symbol(name) for name in sizes}
    if _TOGETHER in given:
        derived = derived | {"gradient_accumulation": symbols[_TOGETHER] // maximum(symbols["batch_size"] * data_degree(symbols), 1)}
    inputs = dict(_inputs(spec, whole, of_defaults, given, layers=any("layers" in one.definitions for one in variants[chosen])))
    own: Mapping[str, Size] = {**symbols, _TOGETHER: symbols.get(_TOGETHER, 0)}
    movable = {*inputs, *derived}
    model = whole.model if movable & of_model.keys() else spec.model
    always = tuple(((one.relation, one.left, one.right), one.message) for one in rules(spec.model, of_model, of_defaults))
    must: dict[Choice, tuple[tuple[Test, str], ...]] = {}
    for kind, sequence, loss in product(*LAYOUT_CHOICES.values()):
        laid = replace(layout, data_parallel=cast("DataParallel", kind), sequence_parallel=sequence == "true", loss_parallel=loss == "true")
        found = required(model, replace(training, layout=laid), laid, own, _per_node(spec, layout), of_model)
        must[kind, sequence, loss] = (*found, *always)
    counted = cast("Parameters", parameters(trace(whole.model, replace(whole.training, layout=None))))
    return LayoutFormulas(
        {**whole.values, **sizes}, derived, inputs, counted, {choice: tuple(some) for choice, some in variants.items()}, must, chosen,
        dict(_presets(spec, inputs, variants)),
    )  # fmt: skip


def _whole(model: Model, training: Training) -> SymbolicModel:
    """Return the model over symbols, without its layout."""
    return symbolize(model, replace(training, layout=None))


def _per_node(spec: Spec, layout: Layout) -> int:
    """Return the devices of a full node."""
    if ("cluster", "per_node") in spec.places:
        return layout.cluster.per_node
    known = devices.find(layout.cluster.device or "")
    return known.per_node if known else devices.PER_NODE


def _divides_by_value(training: Training, layout: Layout) -> bool:
    """Return whether how a layout divides a model depends on the values of the model's sizes."""
    return training.by_megatron or layout.engine == "deepspeed" or layout.context_kind == "ulysses"


def _chosen(training: Training) -> Choice:
    layout = training.layout
    return (
        *(str(getattr(training, name)) for name in CHOICES),
        *(str(getattr(layout, name)).lower() for name in LAYOUT_CHOICES),
    )


def _candidates(model: Model, training: Training, layout: Layout, *, global_batch: bool) -> Iterator[Mapping[str, object]]:
    """Yield settings, the most useful first: one of training or of the layout's degrees changes, then several do."""
    kinds, others = _kinds(layout), [one for one in CHOICES["recompute"] if one != training.recompute]
    degrees = list(_degrees(model, training, layout, global_batch=global_batch))
    yield {}
    yield from ({"training.recompute": recompute} for recompute in others)
    yield from degrees
    yield from ({**one, "training.recompute": recompute} for recompute, one in product(others, degrees))
    yield from ({"training.optimizer": optimizer} for optimizer in CHOICES["optimizer"])
    yield from ({"training.precision": precision} for precision in CHOICES["precision"])
    yield from ({**kind, **one} for kind, one in product(kinds, degrees))


def _kinds(layout: Layout) -> list[dict[str, object]]:
    """Return how devices can share, besides their numbers."""
    parts = dict.fromkeys(((layout.sequence_parallel, layout.loss_parallel), (False, False), (True, True)))
    return [
        {
            "layout.data_parallel": kind,
            "layout.sequence_parallel": str(sequence).lower(),
            "layout.loss_parallel": str(loss).lower(),
        }
        for (sequence, loss), kind in product(parts, LAYOUT_CHOICES["data_parallel"])
    ]


def _degrees(model: Model, training: Training, layout: Layout, *, global_batch: bool) -> Iterator[dict[str, object]]:
    """Yield degrees of each structure: one device or several, of a pipeline one, two or more, and as many microbatches or more."""
    heads = {layer.attention.n_kv_heads for run in model.runs for layer in run.layers if layer.attention}
    tensor = dict.fromkeys((layout.tensor_parallel, 1, 2, *heads)) if len(heads) == 1 else dict.fromkeys((layout.tensor_parallel, 1, 2))
    stages, data = max(4, layout.pipeline_parallel), max(2, layout.data_degree)
    for more, pp, tp, dp in product((2, 1), (1, stages, 2), tensor, dict.fromkeys((data, 1))):
        for m in dict.fromkeys((more * pp, training.gradient_accumulation)):
            degrees: dict[str, object] = {
                "layout.tensor_parallel": tp,
                "layout.pipeline_parallel": pp,
                "cluster.devices": tp * pp * dp * layout.context_parallel,
            }
            passes = {_TOGETHER: m * dp * training.batch_size} if global_batch else {"gradient_accumulation": m}
            yield degrees | {f"training.{name}": size for name, size in passes.items()}


def _variant(spec: Spec, whole: SymbolicModel) -> tuple[Choice, Variant] | None:
    """Return the formulas of the structure of a spec's layout, None if it is not modeled over symbols."""
    training = spec.scenarios[0].training
    layout = training.layout
    if layout is None:
        return None
    names = whole if _divides_by_value(training, layout) else _whole(spec.model, training)
    structure = structure_of(spec.model, training, varies=True)
    sizes = {name: size_of(name, spec.model, training) for name in SIZES}
    if not _divides_by_value(training, layout):
        structure = replace(structure, model=names.model, training=replace(names.training, layout=layout))
    over = structure.over_symbols(sizes)
    try:
        refuse_unmodeled(over.model, over.training)
        plans = tuple(of_kinds(replace(spec, model=over.model), Scenario("base", over.training)))
    except (TypeError, UnsupportedError):
        return None
    symbols = {name: symbol(name) for name in SIZES}
    named, values = structure.named(symbols), structure.values(sizes)
    definitions = {name: size for name, (size, _) in named.items() if name in over.names}
    applies = [Guard(">=", size, least) if name in over.names else Guard("==", size, values[name]) for name, (size, least) in named.items()]
    exact = [*zip(structure.exact(symbols), structure.exact(sizes), strict=True)]
    if not structure.data:
        exact.append((data_degree(symbols), data_degree(sizes)))
    applies += [Guard("==", size, value) for size, value in exact]
    noted = guards([*over.choices, *names.choices], {*over.names, *INPUTS, *derived_sizes(spec, whole.values)})
    return _chosen(training), Variant(cast("tuple[Plan, ...]", plans), definitions, (*applies, *noted))


def _inputs(
    spec: Spec, whole: SymbolicModel, derived: Mapping[str, Size], given: Iterable[str], *, layers: bool
) -> Iterator[tuple[str, str]]:
    """Yield the inputs: those of ``INPUTS`` that change nothing but their symbol and derived sizes, and the sizes of the layout."""
    training = spec.scenarios[0].training
    assert training.layout is not None  # noqa: S101 - the caller has one
    for name, key in INPUTS.items():
        if name in ("B", "n"):
            yield name, key
        elif name == "tokens":
            yield from [(name, key)] if training.tokens and "steps" not in given else []
        elif name == "n_layers":
            yield from [(name, key)] if layers else []
        elif name in whole.values and not _divides_by_value(training, training.layout):
            yield from [(name, key)] if changes_alone(spec, whole, derived, name, _whole) else []
    yield from _DEGREES.items()
    passes = _TOGETHER if _TOGETHER in given else "gradient_accumulation"
    yield passes, f"training.{passes}"


def _presets(
    spec: Spec, inputs: Mapping[str, str], variants: Mapping[Choice, list[Variant]]
) -> Iterator[tuple[str, tuple[Choice, Mapping[str, int]]]]:
    """Yield the scenarios whose plan is that of other choices and inputs."""
    base = spec.scenarios[0].training
    own = {name: size_of(name, spec.model, base) for name in SIZES}
    by_key = {key.rpartition(".")[2]: name for name, key in inputs.items()}
    for scenario in spec.scenarios[1:]:
        training = scenario.training
        if training.layout is None or base.layout is None or _chosen(training) not in variants:
            continue
        sizes = {name: size_of(name, spec.model, training) for name in SIZES}
        layout = replace(base.layout, **{name: getattr(training.layout, name) for name in LAYOUT_CHOICES})
        chosen = replace(base, layout=layout, **{name: getattr(training, name) for name in CHOICES})
        changed = {by_key.get(name, ""): size for name, size in sizes.items() if size != own[name]}
        if "" not in changed and with_sizes(spec.model, chosen, sizes)[1] == training:
            yield scenario.name, (_chosen(training), changed)
