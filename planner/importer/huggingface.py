"""A parsed ``config.json`` to the ``model`` mapping of a spec."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from planner.importer.engine import read
from planner.importer.reader import Config, Imported, UnsupportedConfigError, show
from planner.importer.types import FAMILIES, REFUSED, SUPPORTED
from planner.spec.records import ModelType

_TEXT_PARTS = ("text_config", "llm_config", "language_config")

# The text part of a composite config leaves out what is its class's default: sizes of one model of the family.
_TEXT_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "gemma3n_text": {
        "vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35, "num_attention_heads": 8,
        "num_key_value_heads": 2,
    },
    "gemma4_text": {
        "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "llama4_text": {
        "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "num_hidden_layers": 48, "num_attention_heads": 40,
        "num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 1,
    },
    "mistral": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "llama": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    },
}  # fmt: skip
# What the text part of a composite is where it does not say so itself.
_TEXT_TYPES = {"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "llama4": "llama4_text", "llava": "llama"}


def read_huggingface(config: Config) -> Imported:
    """Return the ``model`` mapping of a spec for a parsed ``config.json``, and what was read, left out and not understood.

    A composite config (text and images) is read by its text part. What no spec can hold and no count depends on (dropout, initialisation,
    token ids, scalings) is left out. Raises UnsupportedConfigError, which names the ``model_type``, the key and the reason.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedConfigError("config.json has no `model_type`, so its other keys cannot be interpreted")
    part = next((key for key in _TEXT_PARTS if isinstance(config.get(key), Mapping)), None)
    notes: list[str] = []
    if part and model_type not in FAMILIES:
        config, notes = _text_part(config, model_type, part)
        model_type = str(config["model_type"])
    if model_type not in FAMILIES:
        raise UnsupportedConfigError(unsupported(model_type))
    imported = read(FAMILIES[model_type], config, model_type)
    modeled = {"model_type": model_type} if model_type in get_args(ModelType) else {}  # by the implementations of transformers
    return replace(imported, model={**modeled, **imported.model}, notes=(*notes, *imported.notes))


def unsupported(model_type: str) -> str:
    """Return why a type cannot be imported."""
    if model_type in REFUSED:
        return f"model_type {show(model_type)} is not supported: it {REFUSED[model_type]}"
    near = difflib.get_close_matches(model_type[:50], SUPPORTED, 3)
    hint = f"; similar names, which are other architectures: {', '.join(near)}" if near else ""
    return f"model_type {show(model_type)} is not supported{hint}; `planner import --keys all` lists the supported ones"


def _text_part(config: Config, model_type: str, part: str) -> tuple[Config, list[str]]:
    """Return the text part of a composite config, completed, and what there is to say about that."""
    text: dict[str, Any] = dict(config[part])
    if not isinstance(text.get("model_type"), str):
        if model_type not in _TEXT_TYPES:
            raise UnsupportedConfigError(f"{show(model_type)} config: `{part}` has no `model_type`, so its keys cannot be interpreted")
        text["model_type"] = _TEXT_TYPES[model_type]
    notes = [f"only the text model is imported, `{part}` of a {show(model_type)[1:-1]} config; encoders of images or sound are not counted"]
    defaults = {key: value for key, value in _TEXT_DEFAULTS.get(text["model_type"], {}).items() if key not in text}
    if defaults:
        listed = ", ".join(f"{key} {value}" for key, value in defaults.items())
        notes.append(f"missing from the file, so the class's defaults apply: {listed}")
    if "tie_word_embeddings" in config and "tie_word_embeddings" not in text:
        defaults["tie_word_embeddings"] = config["tie_word_embeddings"]
    return {**text, **defaults}, notes
