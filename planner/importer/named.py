"""Files of fine-tuning programs: they name a model of the Hugging Face Hub and state how it is trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.importer.engine import Reading, Row, Settings, row, values_of
from planner.importer.format import Format, Given
from planner.importer.keys import Source, alike, code
from planner.importer.liger import fitting
from planner.importer.reader import Config, Imported, UnsupportedConfigError, show
from planner.spec import catalogue
from planner.spec.nodes import Node
from planner.spec.problems import quote
from planner.spec.records.training import FUSED
from planner.spec.source import read_source
from planner.spec.yaml12 import parse

# Reasons to ignore a key.
DATA = "the data, and how samples are made of them"
RUNS = "how the program runs, logs, evaluates and saves"
TUNES = "learning rate, loss terms and other values of the optimization"
ADAPTS = "settings of adapters or of packed weights that change no size, or are read only if they are on"
LEFT_OUT = "planned without it, as the results state"

# What the figures leave out where a key is on. The results list it.
KERNELS = "kernels other than the implementation's"
DEVICES = "division among devices, offloading, and the data types that come with them; the figures are of one device without them"
OFFLOADED = "offloading of activations to the host"
COMPILED = "compilation"
TOKENS = "embedding rows of added tokens"
AUTOCAST = "autocast over bfloat16 weights, which computes some operators, such as layer norm, in float32"
LENGTH = "samples longer than the catalog's sequence length, since the file sets no limit"
CHUNKED = "a loss computed in chunks; the logits are counted as the implementation holds them"

# Notes.
PACKED = "packed samples attend only to themselves; attention is counted over whole sequences"

# Reasons to reject a key that is on.
ADAPTER = "adapters are not planned yet"
QUANTIZED = "quantized weights are not planned yet"
PARTIAL = "training of a part of the weights is not planned yet"
OBJECTIVE = "only training on the next token is planned"
CHANGED = "changes of the published model are not read"
STATES = "the states of this optimizer are not planned"

_OFF: tuple[object, ...] = (False, 0, 0.0, "", "none", "no", "off", "false", [], {})


@dataclass(frozen=True, slots=True)
class Program:
    """A fine-tuning program: its training settings, and other keys by what is done if they are on."""

    name: str
    row: Row
    model: Callable[[Config], object]  # the model's name on the Hub
    refused: Mapping[str, str]  # the reason
    omitted: Mapping[str, str]  # what the figures leave out
    problem: Callable[[Reading], str]  # a further reason to reject a file, or an empty text


def program(
    name: str,
    key: str,
    *settings: Mapping[str, Any],
    refused: Mapping[str, str],
    omitted: Mapping[str, str],
    ignored: Mapping[str, str],
    model: Callable[[Config], object] | None = None,
    problem: Callable[[Reading], str] = lambda c: "",  # noqa: ARG005 - the interface of others
) -> Program:
    """Return a program, whose files name the model under a key.

    ``refused``, ``omitted`` and ``ignored`` have space-separated keys by reason.
    """
    off, without = _by_key(refused), _by_key(omitted)
    only = {key: Source(lambda _: _OFF, text=f"off ({reason})") for key, reason in off.items()}
    known = row(*settings, only=only, ignored={"the model's name": key, **ignored, LEFT_OUT: " ".join(without)})
    return Program(name, known, model or (lambda config: config[key]), off, without, problem)


def _by_key(keys: Mapping[str, str]) -> dict[str, str]:
    return {key: reason for reason, listed in keys.items() for key in listed.split()}


def format_of(one: Program, files: str, source: str, recognizes: Callable[[Given], bool], marks: str) -> Format:
    """Return the format of a program's files."""
    return Format(one.name, files, source, recognizes, lambda given: _read(one, given.config), {one.name.lower(): one.row}, marks)


def names_model(key: str, marks: Iterable[str]) -> Callable[[Given], bool]:
    """Return whether a file names a model under a key, and has one of the keys that only the program has."""
    return lambda given: isinstance(given.config.get(key), str) and not given.config.keys().isdisjoint(marks)


def is_on(value: object) -> bool:
    """Whether a switch is on."""
    return value is not None and not any(alike(value, off) for off in _OFF)


def offloading(name: str) -> Settings:
    """Return the setting of a switch that copies saved tensors to the host, which is planned if every layer is recomputed."""

    def offloads(c: Reading) -> bool | None:
        if not is_on(c.value(name)):
            return None
        if c["training.recompute"] == "full":
            return True
        c.omits.append(f"{OFFLOADED} ({name})")
        return None

    return {"training.offload_activations": code(offloads, name)}


def _read(one: Program, config: Config) -> Imported:
    name = _model(one, config)
    c = Reading(one.row, config, one.name)
    for key, reason in one.refused.items():
        if is_on(value := c.at(key)):
            raise _refusal(c, f"`{key}: {show(value)}`: {reason}", name)
    if reason := one.problem(c):
        raise _refusal(c, reason, name)
    values = values_of(c)
    training = {setting.removeprefix("training."): value for setting, value in values.items() if setting.startswith("training.")}
    without: dict[str, list[str]] = {}
    for key, what in one.omitted.items():
        if (is_on(value := c.at(key)) and value != 1) or value is True:
            without.setdefault(what, []).append(key)
    if training["implementation"] in FUSED and _is_eager(name):
        training["implementation"] += "-eager"  # no fused kernel of PyTorch soft-caps scores
        without.setdefault(KERNELS, []).append("attention")
    training, replaced = fitting(training, _class(name))
    if replaced:
        without.setdefault(KERNELS, []).append(replaced)
    omits = (*(f"{what} ({', '.join(keys)})" for what, keys in without.items()), *dict.fromkeys(c.omits))
    origins = {setting: tuple(keys) for setting, keys in c.origins.items()}
    notes = ("the file names the model, which is the catalog's; only its training settings are read", *c.notes)
    return Imported({}, one.name, origins, frozenset(c.defaults), c.unknown(), notes, training, (*_parts(name), *omits), name)


def _refusal(c: Reading, reason: str, name: str) -> UnsupportedConfigError:
    return c.refusal(f"{reason}; the model alone: planner show {name}")


def _model(one: Program, config: Config) -> str:
    """Return the name in the catalog of the model that the file names. Raises UnsupportedConfigError."""
    named = str(one.model(config))
    name = catalogue.hub_names().get(named.lower())
    if name is None:
        near = catalogue.meant(named)
        similar = f" (similar: {', '.join(near)})" if near else ""
        raise UnsupportedConfigError(
            f"{one.name} config: the catalog has no {quote(named)}{similar}, and nothing is downloaded; import its config.json"
        )
    return name


def _base(name: str) -> Node:
    tree, _ = parse(read_source(os.fspath(catalogue.paths()[name])))
    return tree


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a published model that its spec in the catalog does not count."""
    written = _base(name).get("omits")
    return tuple(str(part.value) for part in written.elements()) if written else ()


def _class(name: str) -> str:
    """Return the class of a published model, or an empty text."""
    written = _base(name).items()["model"].get("model_type")
    return str(written.value) if written else ""


def class_of(named: object) -> str:
    """Return the class of the model with a name on the Hub, or an empty text for one that the catalog does not have."""
    name = catalogue.hub_names().get(str(named).lower())
    return _class(name) if name else ""


def _is_eager(name: str) -> bool:
    return "implementation" in _base(name).items()["training"].items()
