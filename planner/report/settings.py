"""A resolved spec as dotted keys and their values, defaults included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from planner.report import units
from planner.spec.key import Key, held, keys, of_the_layer
from planner.spec.mixers import RECORDS
from planner.spec.records import Experts, Extra, FeedForward, Layer, Layout, Model, Positions, Run, Training

_MIXERS = {kind: name for name, kind in RECORDS.items()}
_PER_LAYER = ("experts", "extra")  # listed per layer: under model they would mean something else


class _Setting(NamedTuple):
    """A value as written in a spec, and whether it is a default that can be omitted."""

    text: str
    quiet: bool = False


def model(model: Model) -> dict[str, str]:
    """Return every setting of a model, by its key under ``model``, as a spec writes it.

    Settings that all layers with the part in question share are listed once, others under ``layers``.
    """
    kinds = _kinds(layer for run in model.runs for layer in run.layers)
    found: dict[str, set[str]] = {}
    for key, value in (item for kind in kinds for item in kind.items()):
        found.setdefault(key, set()).add(value)
    shared = {key: min(values) for key, values in found.items() if len(values) == 1 and key not in _PER_LAYER}
    values: dict[str, str] = {}
    for key, setting in _settings(model):
        values |= {} if setting.quiet else {key: setting.text}
        values |= shared if key == "n_layers" else {}
    if model.padded_vocab_size != model.vocab_size:
        values["vocab_size"] += f", padded to {model.padded_vocab_size}"
    if any(kind.keys() - shared.keys() for kind in kinds):
        rest = iter(kinds)
        values["layers"] = ", ".join(_run(run, [next(rest) for _ in run.layers], shared) for run in model.runs)
    return values


def training(training: Training) -> dict[str, str]:
    """Return every setting of a scenario, by its key under ``training``."""
    return {key: setting.text for key, setting in _settings(training) if not setting.quiet}


def layout(training: Training) -> dict[str, dict[str, str]]:
    """Return every setting of a scenario's cluster and layout that its engine has, by section and key; none without a cluster."""
    if training.layout is None:
        return {"cluster": {}, "layout": {}}
    cluster, laid = ({key: setting.text for key, setting in _settings(one)} for one in (training.layout.cluster, training.layout))
    others = {field.name for field, key in keys(Layout) if key.only.startswith("engine: ") and training.layout.engine not in key.only}
    laid = {key: text for key, text in laid.items() if key not in others}
    return {"cluster": {**cluster, "reserve": units.memory(training.layout.cluster.reserve_bytes)}, "layout": laid}


def _settings(record: object, group: str = "") -> Iterator[tuple[str, _Setting]]:
    """Yield the settings of a record, and those of the records in it."""
    kind = type(record)
    for name in of_the_layer(kind):
        yield name, _Setting(str(getattr(record, name)))
    for field, key in keys(kind):
        path = group + (key.path or field.name)
        if not held(kind, field):
            yield from _held_elsewhere(record, field.name, path, key)
        elif _applies(record, field.name):
            value = getattr(record, field.name)
            if key.kind is None:
                yield path, _Setting(_text(value, key), key.quiet and value == field.default)
            elif value is not None:
                yield from _settings(value, f"{path}.")
            elif isinstance(record, Layer):
                yield from _lacking(record, path)


def _held_elsewhere(record: object, name: str, path: str, key: Key) -> Iterator[tuple[str, _Setting]]:
    """Yield the setting of a key that has no field of its own."""
    match record, name:
        case FeedForward(), "type":
            yield path, _Setting("rwkv" if record.channel_mix else "gated" if record.gated else "plain")
        case Experts(), "type":
            yield path, _Setting("gated" if record.gated else "plain")
        case Layer(), "mixer":
            names = [*(["attention"] if record.attention else []), *(_MIXERS[type(mixer)] for mixer in record.mixers)]
            text = f"[{', '.join(names)}]" if len(names) > 1 else (names or ["none"])[0]
            yield path, _Setting(text, text == key.default)
        case Layer(), _:
            for mixer in record.mixers:
                if type(mixer) is key.kind:
                    yield from _settings(mixer, f"{path}.")


def _lacking(layer: Layer, part: str) -> Iterator[tuple[str, _Setting]]:
    """Yield the setting of a layer that lacks a part."""
    if part == "experts":
        yield part, _Setting("none", quiet=True)
    elif part == "feed_forward" and not layer.experts:
        yield f"{part}.type", _Setting("none")


def _applies(record: object, name: str) -> bool:
    """Return whether a setting applies, given the others of its record."""
    match record, name:
        case FeedForward(), "gate_bias":
            return record.gated
        case Positions(), "offset" | "frozen" | "rotary_dim" | "buckets" | "per_layer":
            types = {"rotary_dim": "rope", "buckets": "bucketed", "per_layer": "bucketed"}
            return record.type == types.get(name, "learned")
        case Experts(), "shared_d_ff" | "shared_gate":
            return record.shared_d_ff is not None
        case Model(), "runs":
            return False  # listed as the settings of the layers
        case Model(), "extra":
            return bool(record.extra)
    return True


def _text(value: object, key: Key) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "none" if key.none else key.derived or "not given"
        case Fraction():
            return units.decimal(value)
        case tuple():
            return _extra(value) if any(isinstance(one, Extra) for one in value) else _words(value, key)
    return str(value)


def _words(words: tuple[str, ...], key: Key) -> str:
    if not words:
        return key.derived or "none"
    return words[0] if len(words) == 1 else f"[{', '.join(words)}]"


def _layer(layer: Layer) -> dict[str, _Setting]:
    settings = dict(_settings(layer))
    if layer.experts:
        beside = layer.feed_forward is not None
        settings["experts.beside_feed_forward"] = _Setting("true" if beside else "false", not beside)
    if layer.extra:
        settings["extra"] = _Setting(_extra(layer.extra))
    return settings


def _kinds(layers: Iterable[Layer]) -> list[dict[str, str]]:
    """Return each layer's settings, without those that are quiet in all of them."""
    kinds = [_layer(layer) for layer in layers]
    loud = {key for kind in kinds for key, setting in kind.items() if not setting.quiet}
    loud |= {"experts"} if "experts.count" in loud else set()
    return [{key: setting.text for key, setting in kind.items() if key in loud} for kind in kinds]


def _extra(tensors: tuple[Extra, ...]) -> str:
    texts = (f"{{name: {each.name}, shape: {list(each.shape)}, component: {each.component}, uses: {each.uses}}}" for each in tensors)
    return f"[{', '.join(texts)}]"


def _run(run: Run, kinds: list[dict[str, str]], shared: dict[str, str]) -> str:
    own = ({key: value for key, value in kind.items() if key not in shared} for kind in kinds)
    layers = ", ".join("{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}" for values in own)
    return f"{run.count} × {layers}" if len(run.layers) == 1 else f"{run.count} × [{layers}]"
