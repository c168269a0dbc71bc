"""Suggestions: names that other tools give to our keys and values, and typos."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from planner.spec.key import keys
from planner.spec.nodes import UNREADABLE
from planner.spec.records import Layer, Spec
from planner.spec.yaml12 import parse_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.spec.key import Key
    from planner.spec.nodes import Scalar

_MOST = 200  # unknown keys of one mapping that are thought about
_LONGEST = 60  # characters of a name that a slip of the finger is looked for in

_NO_FIGURE = (
    "rope_theta rope_scaling rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps eps initializer_range init_std learning_rate lr "
    "weight_decay warmup_steps beta1 beta2 seed bos_token_id eos_token_id pad_token_id torch_version transformers_version"
)

_TRUTH = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_SUFFIXES = {"k": "e3", "m": "e6", "b": "e9", "t": "e12"}
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?) ?([kKmMbBtT])")
_GROUPED = re.compile(r"\d{1,3}(?:[_, ']\d{3})+|\d+(?:_\d+)+")


def _spelling(name: str) -> str:
    """Return a name without what people vary: case, hyphens, underscores."""
    return re.sub(r"[-_ ]", "", name.lower())


def stated(kind: type[Any] = Spec, above: str = "") -> Iterator[tuple[str, Key]]:
    """Yield the keys of the language, dotted, those of a layer as the model's."""
    for field, key in keys(kind):
        path = above + (key.path or field.name)
        if field.name == "runs":
            yield from stated(Layer, above)
        yield path, key
        if key.kind:
            yield from stated(key.kind, f"{path}.")


@cache
def _foreign_keys() -> dict[str, str]:
    """Return our keys by the names that nanoGPT, transformers, litgpt, Megatron, Lightning and others give them."""
    found = {_spelling(name): ours for ours, key in stated() for name in key.aliases.split()}
    claims = dict(stated())["expect"].values
    return found | {_spelling(name): f"expect.{figure}" for figure, names in claims.items() for name in names.split()}


@cache
def _foreign_values() -> dict[str, dict[str, str]]:
    """Return for the last part of a key what others call its values; a type can be written in place of its group."""
    found: dict[str, dict[str, str]] = {}
    for path, key in stated():
        *_, group, last = ("", *path.split("."))
        found[last] = {**found.get(last, {}), **key.values}
        if last == "type":
            found[group] = {**key.values}
    return found


@cache
def _homes() -> dict[str, str]:
    """Return for the name of each of our keys the first dotted key that it ends, shallow ones first."""
    homes: dict[str, str] = {}
    for dotted in sorted((path for path, _ in stated()), key=lambda path: path.count(".")):
        homes.setdefault(dotted.rpartition(".")[2], dotted)
    return homes


def key_meant(key: str, allowed: Iterable[str], language: str = "spec") -> str:
    """Return the allowed key that an unknown one most likely means, or the dotted key that is allowed elsewhere, or ''."""
    here = list(allowed)
    if len(key) > _LONGEST:
        return ""
    if language != "spec":
        return _close(key, here, cutoff=0.6)
    foreign = _foreign_keys().get(_spelling(key), "")
    if foreign.rpartition(".")[2] in here:
        return foreign.rpartition(".")[2]
    return _homes().get(key, "") or foreign or _close(key, here, cutoff=0.6)


def keys_meant(written: Iterable[str], allowed: Iterable[str], language: str = "spec") -> set[str]:
    """Return the keys that unknown ones among those written mean, so that they are not reported as missing too."""
    here = list(allowed)
    unknown = (key for key in written if key not in here)
    return {key_meant(key, here, language) for key in islice(unknown, _MOST)}


def key_hint(key: str, allowed: Iterable[str], language: str = "spec") -> str:
    """Say what to write instead of an unknown key."""
    here = list(allowed)
    if key == "<<":
        return "merge keys are not part of YAML 1.2: write the keys out, or use extends"
    if language == "spec" and key in _NO_FIGURE.split():
        return "it does not affect the plan; remove it"
    meant = key_meant(key, here, language)
    if meant == key:
        return "write it at the top of the spec"
    return f"did you mean '{meant}'?" if meant else f"allowed here: {', '.join(here)}"


def value_hint(key: str, value: Scalar, text: str, allowed: Iterable[str]) -> str:
    """Say which of the allowed values of a key is meant, or name them all."""
    here = list(allowed)
    one_of = f"one of: {', '.join(here)}"
    if len(text) > _LONGEST:
        return one_of
    for ours, names in _foreign_values().get(key, {}).items():
        meant = [name for name in ours.split() if name in here]
        if meant and _spelling(text) in map(_spelling, names.split()):
            return "did you mean " + " or ".join(f"'{name}'" for name in meant) + "?"
    close = _close(text, here, cutoff=0.6) if isinstance(value, str) else ""
    return f"did you mean '{close}'? {one_of.capitalize()}" if close else one_of


def truth_meant(text: str) -> str:
    """Return true or false for a word of YAML 1.1 that means it, or ''."""
    return _TRUTH.get(text.lower(), text.lower() if text.lower() in ("true", "false") else "")


def number_meant(text: str) -> str:
    """Return how YAML writes the number that a text means (``1_024``, ``50,257``, ``300B``, a quoted ``768``), or ''."""
    stripped = text.strip()
    if _GROUPED.fullmatch(stripped):
        return re.sub(r"\D", "", stripped)
    if suffixed := _SUFFIXED.fullmatch(stripped):
        return suffixed[1] + _SUFFIXES[suffixed[2].lower()]
    try:
        value = parse_value(stripped) if stripped else UNREADABLE
    except ValueError:
        return ""
    return stripped if isinstance(value, int) and not isinstance(value, bool) else ""


def _close(word: str, allowed: list[str], cutoff: float) -> str:
    from difflib import get_close_matches

    spelled = {_spelling(name): name for name in allowed}
    close = get_close_matches(_spelling(word), spelled, n=1, cutoff=cutoff)
    return spelled[close[0]] if close else ""
