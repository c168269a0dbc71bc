"""The text part of a composite ``config.json`` (text and images or sound).

What a type's class makes of absent keys is in a table, written from transformers by ``tools/composites.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from planner.importer.engine import Row
from planner.importer.keys import Source, sources_of
from planner.importer.reader import Config, UnsupportedConfigError, show
from planner.importer.types import FAMILIES

TABLE = "composites.json"
STATES = (None, True, False)  # of a key: absent, or a value
TIE = "tie_word_embeddings"
_PARTS = ("text_config", "llm_config", "language_config")  # of types without a class
# Types whose published files have the keys of the text part at the top, with the type of that part.
_FLAT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "fuyu": "persimmon", "paddleocr_vl": "ernie4_5"}
# Types with a model inside that has the text part.
_OUTER = {
    "qwen2_5_omni": ("thinker_config", "qwen2_5_omni_thinker"),
    "qwen3_omni_moe": ("thinker_config", "qwen3_omni_moe_thinker"),
}
_HEAD_OF_TOP = {"ovis2": ("vocab_size", "hidden_size")}  # types whose LM head has the sizes at the top
# Layers of a text part that images alone use: their weights are counted.
_IDLE = {
    "ernie4_5_vl_moe_text": ("work and activations of the experts of images, whose weights are counted",),
    "mllama_text_model": ("work and activations of the layers that attend to images, whose weights are counted",),
}
_NO_PARTS = ("quantization_config", "generation_config", "attn_config", "ffn_config", "per_layer_config")


@dataclass(frozen=True, slots=True)
class TextPart:
    """The text part of a composite configuration, as a configuration of its own."""

    config: Config
    notes: tuple[str, ...]
    omits: tuple[str, ...]  # the other parts


@cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """Return the table of types and texts."""
    made: Mapping[str, Mapping[str, Any]] = json.loads((Path(__file__).parent / TABLE).read_text(encoding="utf-8"))
    return made


def text_part(config: Config, model_type: str) -> TextPart | None:
    """Return the text part of a composite configuration; None if it has none. Raises UnsupportedConfigError."""
    name = show(model_type)[1:-1]
    if model_type in _OUTER:
        key, inner_type = _OUTER[model_type]
        inner = config.get(key)
        if not isinstance(inner, Mapping) or (made := text_part(inner, inner_type)) is None:
            raise UnsupportedConfigError(f"{name} config: `{key}` is missing, and only its text part can be read")
        return replace(made, omits=(*made.omits, *other_parts({other: value for other, value in config.items() if other != key})))
    known = table()["types"].get(model_type, {})
    path = known.get("part") or next((key for key in _PARTS if isinstance(config.get(key), Mapping)), "")
    given = config.get(path)
    if isinstance(given, Mapping):
        text, notes = _inner(config, given, known, name, path)
    elif model_type in _FLAT:
        text = {key: value for key, value in config.items() if not _is_part(key, value)} | {"model_type": _FLAT[model_type]}
        notes = [f"only the text model of a {name} config is imported"]
    elif known:
        raise UnsupportedConfigError(f"{name} config: `{path}` is missing, and only the text part can be read")
    else:
        return None
    omits = other_parts(config, path) or _parts(known.get("others", ()))
    return TextPart(text, tuple(notes), (*omits, *_IDLE.get(str(text["model_type"]), ())))


def _inner(config: Config, given: Config, known: Mapping[str, Any], name: str, path: str) -> tuple[Config, list[str]]:
    """Return the text part inside a composite with the values of absent keys, and notes about both."""
    text, own = dict(given), given.get("model_type")
    text_type = known.get("type") if known.get("fixed") or own in (None, f"{name}_text") else own
    if not isinstance(text_type, str):
        raise UnsupportedConfigError(f"{name} config: `{path}` has no `model_type`, so its keys cannot be interpreted")
    if lacking := [key for key in _HEAD_OF_TOP.get(name, ()) if config.get(key) is None]:
        raise UnsupportedConfigError(f"{name} config: `{lacking[0]}` is missing at the top, and the LM head has this size")
    text["model_type"] = text_type
    notes = [f"only the text model is imported, `{path}` of a {name} config"]
    row = FAMILIES.get(text_type)
    if row is None:
        return text, notes
    defaults = dict(_defaults(row, text, known))
    text |= defaults
    _check_agreement(config, text, row, name, path)
    if defaults:
        listed = ", ".join(f"{key} {value}" for key, value in defaults.items())
        notes.append(f"missing from the file, so the class's defaults apply: {listed}")
    if TIE in row.single and (tied := _tied(config, text, known.get("ties"), name, path)) is not None:
        text[TIE] = tied
    return text, notes


def _defaults(row: Row, text: Config, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the class's values of keys that the text part lacks: those that a row requires, or whose default the composite changes."""
    of_type = known.get("defaults", {}) if text["model_type"] == known.get("type") else {}
    values = {**table()["texts"].get(text["model_type"], {}), **of_type}
    for source in sources_of(row.settings):
        names = [one.names for one in (source, *source.inner) if isinstance(one, Source) and one.absent]
        if (source.absent.startswith("required") or set(names) & of_type.keys()) and not any(name in text for name in names):
            yield from ((name, values[name]) for name in names if name in values and source.single)


def _check_agreement(config: Config, text: Config, row: Row, name: str, path: str) -> None:
    """Reject a key of the model that has one value at the top and another in the text part."""
    for key in row.single:
        above, value = config.get(key), text.get(key)
        if above is not None and value is not None and above != value:
            raise UnsupportedConfigError(
                f"{name} config: `{key}: {show(above)}` and `{path}.{key}: {show(value)}` disagree; make them equal "
                f"with planner import --set {key}=… or --set {path}.{key}=…"
            )


def _tied(config: Config, text: Config, ties: str | None, name: str, path: str) -> bool | None:
    """Return whether the LM head is tied; reject a value that the type's class does not follow, and classes that disagree.

    Before version 5, transformers built the text model from the text part alone.
    """
    above, inside = config.get(TIE), text.get(TIE)
    default = table()["texts"].get(str(text["model_type"]), {}).get(TIE)
    if ties is None or not isinstance(above, bool | None) or not isinstance(inside, bool | None):
        return above if inside is None else inside
    made = ties[3 * STATES.index(above) + STATES.index(inside)] == "t"
    if above is None and str(config.get("transformers_version", "")).startswith("4.") and default is False:
        return inside  # the row has the class's default
    stated = above if above is not None else inside if inside is not None else default
    if stated is None or made == stated:
        return made
    what = f"`{path}.{TIE}` of this type defaults to {str(stated).lower()}" if above is inside is None else f"`{TIE}: {stated}` is set"
    raise UnsupportedConfigError(
        f"{name} config: {what}, but transformers 5 {'ties' if made else 'does not tie'} the LM head; "
        f"set `{TIE}` at the top and in `{path}` to whether the weights are tied"
    )


def _is_part(key: object, value: object) -> bool:
    return isinstance(key, str) and key.endswith("_config") and isinstance(value, Mapping) and key not in _NO_PARTS


def other_parts(config: Config, path: str = "") -> tuple[str, ...]:
    """Name the parts of a configuration that are not read: towers, and what connects them with the text."""
    keys = [key for key, value in config.items() if _is_part(key, value) and key != path]
    return _parts(keys) if keys else ()


def _parts(keys: Iterable[str]) -> tuple[str, ...]:
    kinds = (key.removesuffix("_config").replace("_", " ") for key in keys)
    named = [f"{kind} tower" if kind in ("vision", "audio") else kind for kind in kinds if kind != "projector"]
    return (f"{', '.join(named)} and projector" if named else "projector of images or sound",)
