"""Adapters and packed weights by the keys of programs that run peft and bitsandbytes.

Read from peft 0.21.2: tuners/lora/config.py, utils/constants.py (linears by class).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from planner.importer.engine import Reading
from planner.importer.keys import Source, alike, code, fraction
from planner.importer.named import class_of, is_on
from planner.importer.reader import show

_TABLES = {"embed_tokens": "embedding", "wte": "embedding", "embed_in": "embedding", "lm_head": "head", "embed_out": "head"}
Split = Callable[[object], object]
ALL = "all-linear"
UNSTATED = "the file does not state data types: weights are planned in bf16, as most checkpoints store them"
# The linears with adapters of classes of transformers, where a file names none.
_Q_AND_V = ["q_proj", "v_proj"]
_OF_CLASS = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "stablelm", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3"), _Q_AND_V),
    **dict.fromkeys(("opt", "gptj", "gpt_neo"), _Q_AND_V), "phi": [*_Q_AND_V, "fc1", "fc2"],
    "gpt_neox": ["query_key_value"], "falcon": ["query_key_value"], "bloom": ["query_key_value"],
    "gpt2": ["c_attn"], "gpt_bigcode": ["c_attn"],
}  # fmt: skip


def by_class(c: Reading, name: str, model: object) -> list[str]:
    """Return peft's choice of linears for a published model, where the key ``name`` has none. Raises UnsupportedConfigError."""
    kind = class_of(model)
    if kind not in _OF_CLASS:
        raise c.refusal(f"`{name}` is missing, and the default linears of this model's class are not read")
    return _OF_CLASS[kind]


def targets(
    name: str, missing: Callable[[Reading], object] = lambda _: None, split: Split = lambda given: given, ranks: str | None = None
) -> Source:
    """Return the linears with adapters, by their names in transformers; without the key, those that ``missing`` returns.

    ``split`` returns the names in a text. ``ranks``: the key of a mapping from names to ranks of their own.
    """

    def read(c: Reading) -> list[str] | str:
        given = split(c.value(name))
        found = missing(c) if given is None else given
        own = _own_ranks(c, ranks) if ranks else {}
        if found == ALL:
            return [ALL, *(f"{one}={rank}" for one, rank in own.items())] if own else ALL
        if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
            raise c.refusal(f"`{name}: {show(given)}` is not a list of names; patterns are not read")
        names = list(dict.fromkeys(one.rpartition(".")[2] for one in found))
        if heads := [one for one in names if _TABLES.get(one) == "head"]:
            raise c.refusal(f"`{name}` has {show(heads[0])}: adapters of the LM head are not planned yet")
        if strange := [one for one in own if one not in names]:
            raise c.refusal(f"`{ranks}` has {show(strange[0])}, which is none of the targets; patterns are not read")
        return [f"{one}={own[one]}" if one in own else one for one in names]

    return code(read, name, *([ranks] if ranks else []))


def _own_ranks(c: Reading, key: str) -> dict[str, int]:
    """Return the ranks by name."""
    given = c.value(key) or {}
    if not isinstance(given, dict) or not all(re.fullmatch(r"\w+", str(one)) and type(rank) is int for one, rank in given.items()):
        raise c.refusal(f"`{key}: {show(given)}` is not a mapping from names of linears to ranks; patterns are not read")
    return given


def listed(given: object) -> object:
    """Return the names in a comma-separated text; the word all is every linear of the layers."""
    if not isinstance(given, str):
        return given
    return ALL if given == "all" else [one.strip() for one in given.split(",")]


def layers_with(name: str) -> Source:
    """Return the layers with adapters."""

    def read(c: Reading) -> list[str] | None:
        given = c.value(name)
        numbers = [given] if isinstance(given, int) and not isinstance(given, bool) else given
        if not numbers:
            return None
        if not isinstance(numbers, list) or not all(isinstance(one, int) for one in numbers):
            raise c.refusal(f"`{name}: {show(given)}` is neither a layer number nor a list of them")
        return [str(one) for one in numbers]

    return code(read, name)


def saved(name: str, split: Split = lambda given: given) -> Source:
    """Return the parts of which a copy trains (modules_to_save)."""

    def read(c: Reading) -> list[str] | None:
        given = split(c.value(name))
        if not given:
            return None
        if not isinstance(given, list) or not all(isinstance(one, str) and one in _TABLES for one in given):
            raise c.refusal(f"`{name}: {show(given)}` has other modules than {', '.join(_TABLES)}")
        return list(dict.fromkeys(_TABLES[one] for one in given))

    return code(read, name)


def kind(dora: str, stabilized: str) -> Source:
    """Return the type of the adapters by two switches."""
    return code(lambda c: "dora" if is_on(c.value(dora)) else "rslora" if is_on(c.value(stabilized)) else "lora", dora, stabilized)


def dropout(name: str, default: float = 0) -> Source:
    """Return the dropout of the adapters' inputs, or None for 0."""

    def read(c: Reading) -> float | None:
        given = c.value(name)
        meant = c.own(default) if given is None else given
        return None if alike(meant, 0) or alike(meant, 0.0) else fraction(c, name, meant)

    return code(read, name)
