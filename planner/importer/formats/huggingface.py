"""A parsed ``config.json`` to the ``model`` mapping of a spec."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from planner.importer.engine import read
from planner.importer.format import Format
from planner.importer.reader import Config, Imported, UnsupportedConfigError, show
from planner.importer.stored import stored
from planner.importer.types import FAMILIES, REFUSED, SUPPORTED
from planner.spec.records import ModelType

_TEXT_PARTS = ("text_config", "llm_config", "language_config")

# The text part of a composite config omits values that are its class's defaults: the sizes of one model of the family.
_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "num_local_experts", "num_experts_per_tok",
)  # fmt: skip
_TEXT_DEFAULTS: Mapping[str, tuple[int, ...]] = {
    "gemma3_text": (262208, 2304, 9216, 26, 8, 4),
    "gemma3n_text": (262400, 2048, 16384, 35, 8, 2),
    "gemma4_text": (262144, 2304, 9216, 30, 8, 4),
    "llama4_text": (202048, 5120, 8192, 48, 40, 8, 16, 1),
    "mistral": (32000, 4096, 14336, 32, 32, 8),
    "llama": (32000, 4096, 11008, 32, 32),
}
# The model_type of a composite's text part without one.
_TEXT_TYPES = {"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "llama4": "llama4_text", "llava": "llama"}
_CLASS = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|TextModel|Model|TextConfig|Config)$")


def read_huggingface(config: Config) -> Imported:
    """Return the ``model`` mapping of a spec for a parsed ``config.json``.

    Only the text part of a composite config (text and images) is read. Keys that a spec cannot express and that change no count (dropout,
    initialization, token ids, scaling factors) are omitted. Raises UnsupportedConfigError, which names ``model_type``, key and reason.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedConfigError("config.json has no `model_type`, so its other keys cannot be interpreted")
    whole = config
    part = next((key for key in _TEXT_PARTS if isinstance(config.get(key), Mapping)), None)
    notes: list[str] = []
    omits: tuple[str, ...] = ()
    if part and model_type not in FAMILIES:
        omits = (_towers(config),)
        config, notes = _text_part(config, model_type, part)
        model_type = str(config["model_type"])
    if model_type not in FAMILIES:
        raise UnsupportedConfigError(unsupported(model_type))
    imported = read(FAMILIES[model_type], config, model_type)
    modeled = {"model_type": model_type} if model_type in get_args(ModelType) else {}  # by the implementations of transformers
    weights = stored(whole, config)
    return replace(
        imported,
        model={**modeled, **imported.model},
        further=weights.training,
        notes=(*notes, *imported.notes, *weights.notes),
        omits=(*omits, *imported.omits, *weights.omits),
    )


def _towers(config: Config) -> str:
    """Name what a composite config describes beside its text part."""
    kinds = [kind for kind in ("vision", "audio") if isinstance(config.get(f"{kind}_config"), Mapping)]
    if not kinds:
        return "encoders of images or sound, and projector"
    return f"{' and '.join(kinds)} {'towers' if len(kinds) > 1 else 'tower'} and projector"


def unsupported(model_type: str) -> str:
    """Return the reason why a type is not supported."""
    if model_type in REFUSED:
        return f"model_type {show(model_type)} is not supported: it {REFUSED[model_type]}"
    if _CLASS.search(model_type):
        named = _plain(_CLASS.sub("", model_type))
        meant = next((f"; the model_type of its config.json is {one}" for one in SUPPORTED if _plain(one) == named), "")
        return f"model_type {show(model_type)} is the name of a class{meant}"
    near = difflib.get_close_matches(model_type[:50], SUPPORTED, 3)
    hint = f"; similar names, which are other architectures: {', '.join(near)}" if near else ""
    return f"model_type {show(model_type)} is not supported{hint}; `planner import --keys all` lists the supported ones"


def _plain(name: str) -> str:
    return re.sub("[_-]", "", name).lower()


def _text_part(config: Config, model_type: str, part: str) -> tuple[Config, list[str]]:
    """Return the text part of a composite config with its defaults, and notes about both."""
    text: dict[str, Any] = dict(config[part])
    if not isinstance(text.get("model_type"), str):
        if model_type not in _TEXT_TYPES:
            raise UnsupportedConfigError(f"{show(model_type)} config: `{part}` has no `model_type`, so its keys cannot be interpreted")
        text["model_type"] = _TEXT_TYPES[model_type]
    row = FAMILIES.get(text["model_type"])
    for key in row.single if row else ():
        above, value = config.get(key), text.get(key)
        if above is not None and value is not None and above != value:
            raise UnsupportedConfigError(
                f"{show(model_type)} config: `{key}: {show(above)}` and `{part}.{key}: {show(value)}` disagree; remove one of them"
            )
    notes = [f"only the text model is imported, `{part}` of a {show(model_type)[1:-1]} config; the rest is not counted"]
    sizes = zip(_SIZES, _TEXT_DEFAULTS.get(text["model_type"], ()), strict=False)
    defaults: dict[str, Any] = {key: value for key, value in sizes if key not in text}
    if defaults:
        listed = ", ".join(f"{key} {value}" for key, value in defaults.items())
        notes.append(f"missing from the file, so the class's defaults apply: {listed}")
    if "tie_word_embeddings" in config and "tie_word_embeddings" not in text:
        defaults["tie_word_embeddings"] = config["tie_word_embeddings"]
    return {**text, **defaults}, notes


FORMAT = Format(
    "Hugging Face",
    "config.json of a model",
    "transformers 5.24: models/*/configuration_*.py and modeling_*.py, or the code published with the weights",
    lambda given: "model_type" in given.config,
    lambda given: read_huggingface(given.config),
    FAMILIES,
    "`model_type`",
)
