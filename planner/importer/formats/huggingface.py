"""A parsed ``config.json`` to the ``model`` mapping of a spec."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from planner.importer.engine import read
from planner.importer.format import Format
from planner.importer.formats.composite import other_parts, text_part
from planner.importer.formats.towers import vision
from planner.importer.reader import Config, Imported, UnsupportedConfigError, show, show_key
from planner.importer.stored import stored
from planner.importer.types import FAMILIES, REFUSED, SUPPORTED
from planner.spec.records import ModelType

_CLASS = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|TextModel|Model|TextConfig|Config)$")
_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ChatGLMModel")  # endings of classes with an LM head


def read_huggingface(config: Config) -> Imported:
    """Return the ``model`` mapping of a spec for a parsed ``config.json``.

    Of a composite config (text and images) the text part is read, and the tower of a LLaVA. Keys that a spec cannot express and that change
    no count (dropout, initialization, token ids, scaling factors) are omitted. Raises UnsupportedConfigError, which names ``model_type``,
    key and reason.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedConfigError("config.json has no `model_type`, so its other keys cannot be interpreted")
    whole = config
    part = None if model_type in FAMILIES or model_type in REFUSED else text_part(config, model_type)
    if part:
        config, model_type = part.config, str(part.config["model_type"])
    if model_type not in FAMILIES:
        raise UnsupportedConfigError(unsupported(model_type))
    tower = vision(whole, str(whole["model_type"])) if part else None
    if part and tower:
        part = replace(part, notes=part.notes[1:], omits=())
    towers = {} if part else {key: config[key] for key in ("vision_config", "audio_config") if isinstance(config.get(key), Mapping)}
    imported = read(FAMILIES[model_type], {key: value for key, value in config.items() if key not in towers}, model_type)
    notes, omits = (part.notes, part.omits) if part else ((), other_parts(towers))
    modeled = {"model_type": model_type} if model_type in get_args(ModelType) else {}  # by the implementations of transformers
    weights = stored(whole, config)
    return replace(
        imported,
        model={**modeled, **imported.model, **({"vision": tower} if tower else {})},
        composite=str(whole["model_type"]) if tower else "",
        further=weights.training,
        notes=(*(_other_heads(whole) if imported.model.get("causal", True) else ()), *notes, *imported.notes, *weights.notes),
        omits=(*omits, *imported.omits, *weights.omits),
    )


def _other_heads(config: Config) -> tuple[str, ...]:
    """Return a note about an architecture of the file that is no language model: it has another head, or none."""
    named = config.get("architectures")
    others = [name for name in named if isinstance(name, str) and not name.endswith(_GENERATES)] if isinstance(named, list) else []
    return (f"planned with an LM head, which {show_key(others[0])} does not have",) if others else ()


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


FORMAT = Format(
    "Hugging Face",
    "config.json of a model",
    "transformers 5.24: models/*/configuration_*.py and modeling_*.py, or the code published with the weights",
    lambda given: "model_type" in given.config,
    lambda given: read_huggingface(given.config),
    FAMILIES,
    "`model_type`",
)
