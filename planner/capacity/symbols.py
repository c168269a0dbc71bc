"""A model and its training with symbols for sizes: the same functions turn them into formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from planner.spec.records import LatentAttention, Layer, Model, ModelType, Spec, Training
from planner.trace.classes import first_alike, modeled_class
from planner.trace.sizes import Choice, symbol
from planner.trace.unsupported import UnsupportedError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = TypeVar("Part", bound="DataclassInstance | None")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class SymbolicModel:
    """A model and its training over symbols, the value of each symbol, and the choices that a trace of the model made by them."""

    model: Model
    training: Training
    values: dict[str, int]
    choices: list[Choice]


@dataclass(slots=True)
class ByStructure(Generic[Made]):
    """What is made of a model over symbols, once for all models of one structure."""

    known: dict[tuple[Model, Training], list[tuple[list[Choice], Made]]] = field(default_factory=dict)

    def of(self, names: SymbolicModel, make: Callable[[SymbolicModel], Made]) -> Made:
        """Return what ``make`` returns for a model of this structure. It must not read the values of the symbols."""
        alike = self.known.setdefault((names.model, names.training), [])
        for choices, made in alike:
            if all(choice.same_for(names.values) for choice in choices):
                return made
        alike.append((names.choices, make(names)))
        return alike[-1][1]


def _symbol(name: str, hint: int | None = None, choices: list[Choice] | None = None) -> int:
    """Return a symbol, typed as the integer of the record that it replaces: the trace accepts any size there."""
    return cast("int", symbol(name, hint, choices))


@dataclass(slots=True)
class _Names:
    """Symbols by name. If several sizes have one name, the second and later ones are numbered: d_ff, d_ff_2."""

    values: dict[str, int] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)

    def name(self, name: str, value: int, *, same_as: tuple[str, ...] = ()) -> int:
        """Return the symbol for a size, or the symbol of ``same_as`` if that has the same value, since structure may depend on it."""
        for other in (*same_as, name):
            for known, known_value in self.values.items():
                if known_value == value and known.rstrip("_0123456789") == other:
                    return _symbol(known, value, self.choices)
        number = 1
        while (known := name if number == 1 else f"{name}_{number}") in self.values:
            number += 1
        self.values[known] = value
        return _symbol(known, value, self.choices)


def symbolize(model: Model, training: Training) -> SymbolicModel:
    """Return the model and the training with a symbol for each size, but none for the degrees of a layout.

    Raises UnsupportedError for layouts in which devices differ by more than sizes.
    """
    for what in different_devices(training):
        raise UnsupportedError(f"formulas of {what} are not modeled yet")
    names = _Names()
    training = replace(
        training,
        batch_size=names.name("B", training.batch_size),
        sequence_length=names.name("n", training.sequence_length),
        encoder_length=None if training.encoder_length is None else names.name("m", training.encoder_length),
        tokens=None if training.tokens is None else names.name("tokens", training.tokens),
    )
    vocab_size = names.name("V", model.vocab_size)
    runs = tuple(replace(run, layers=tuple(_layer(layer, names) for layer in run.layers)) for run in model.runs)
    n_layers = names.name("n_layers", model.n_layers)
    rotates = any(layer.positions.type == "rope" for run in model.runs for layer in run.layers) or model.positions.type != "rope"
    if len(runs) == 1 and len(runs[0].layers) == 1:
        runs = (replace(runs[0], count=n_layers),)
    else:
        runs = tuple(replace(run, count=names.name("layers.count", run.count)) for run in runs)
    model = replace(
        model,
        vocab_size=vocab_size,
        padded_vocab_size=names.name("V_padded", model.padded_vocab_size, same_as=("V",)),
        context_length=names.name("context_length", model.context_length),
        d_model=names.name("d_model", model.d_model),
        n_layers=n_layers,
        runs=runs,
        encoder=_part(model.encoder, "encoder.", names),
        positions=replace(model.positions, rotary_dim=0 if rotates else names.name("rotary_dim", model.positions.rotary_dim)),
        model_type=_class(model, training),
    )
    return SymbolicModel(model, training, names.values, names.choices)


def different_devices(training: Training) -> Iterator[str]:
    """Yield the settings of a layout with which a device depends on the values of sizes, or whose states are modeled apart."""
    layout = training.layout
    if layout is None or layout.cluster.devices == 1:
        return
    degrees = (degree for degree in ("pipeline_parallel", "expert_parallel") if getattr(layout, degree) > 1)
    yield from degrees
    yield from [layout.data_parallel] if layout.data_parallel in ("zero1", "zero2") else []
    yield from ["layouts of megatron-core"] if training.implementation == "megatron-core" else []
    yield from ["layouts of DeepSpeed"] if layout.engine == "deepspeed" else []


def _class(model: Model, training: Training) -> ModelType | None:
    """Return one class for all whose modules are the same, unless the switches of liger-kernel depend on the class's name."""
    if not training.implementation.startswith("transformers"):
        return None
    return modeled_class(model) if training.liger else first_alike(model)


def with_symbols_for_step(spec: Spec, training: Training, n: int) -> Training:
    """Return the training with symbols for its batch size and sequence length only, and what follows from them.

    The structure is that for n tokens. A global batch size is not followed: the passes are those of the training.
    """
    B, length = _symbol("B"), _symbol("n", n)
    found = replace(training, batch_size=B, sequence_length=length)
    if encoder_length_follows(spec):
        found = replace(found, encoder_length=length)
    if training.tokens is not None and ("training", "steps") in spec.places:
        others = training.tokens // (training.batch_size * training.sequence_length)
        found = replace(found, tokens=others * B * length)
    return found


def encoder_length_follows(spec: Spec) -> bool:
    """Return whether the length of the encoder's sequences is the sequence length unless written."""
    encoder = spec.model.encoder
    return encoder is not None and encoder.frames is None and "training.encoder_length" in spec.defaulted


def _layer(layer: Layer, names: _Names) -> Layer:
    """Return the layer with a symbol for each size of each of its parts."""
    parts = {name: _part(getattr(layer, name), "", names) for name in ("attention", "feed_forward")}
    mixers = tuple(_part(mixer, f"{type(mixer).__name__}.", names) for mixer in layer.mixers)
    positions = layer.positions
    if positions.type == "rope":
        rotated = next((mixer.rope_dim for mixer in mixers if isinstance(mixer, LatentAttention)), None)
        dim = names.name("rotary_dim", positions.rotary_dim, same_as=("head_dim",)) if rotated is None else rotated
        positions = replace(positions, rotary_dim=dim)
    return replace(layer, **parts, mixers=mixers, experts=_part(layer.experts, "experts.", names), positions=positions)


def _part(part: Part, prefix: str, names: _Names) -> Part:
    """Return a record with a symbol for each integer in it that a spec states."""
    if part is None:
        return part
    sizes = {field.name: getattr(part, field.name) for field in fields(part) if field.metadata}
    named_sizes = {
        name: names.name(prefix + name, size, same_as=("n_heads",) if name == "n_kv_heads" else ())
        for name, size in sizes.items()
        if isinstance(size, int) and not isinstance(size, bool) and size
    }
    return replace(part, **named_sizes)
