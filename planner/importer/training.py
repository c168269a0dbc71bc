"""Common parts of trainers' rows: sections of a file, vocabularies of tokenizers, training settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from planner.importer.engine import Reading, Settings
from planner.importer.keys import Source, alike, apply, positive
from planner.importer.reader import Config, UnsupportedConfigError, show

NOT_COUNTED = "data, logging, checkpoints and schedules of the training"
DEVICES = "how the work is divided among devices"
UPDATES = "how the optimizer updates the weights, not what it stores"


def opened(config: Config, *path: str) -> dict[str, Any]:
    """Return a configuration with the keys of the model's section at the top and all other sections one level deep: ``optimizer.a.b``.

    Raises UnsupportedConfigError for a key that has two values.
    """
    model, rest = config, dict(config)
    for name in path:
        inner = model[name]
        rest |= {name: {}} if model is config else {path[0]: {key: value for key, value in model.items() if key != name}}
        model = inner
    rest = {key: value for key, value in rest.items() if value != {}}
    for key in model.keys() & rest.keys():
        if model[key] is not None and rest[key] is not None and model[key] != rest[key]:
            raise UnsupportedConfigError(f"`{key}: {show(rest[key])}` and `{'.'.join(path)}.{key}: {show(model[key])}` disagree")
    whole = rest | {key: value for key, value in model.items() if value is not None or key not in rest}
    return {key: leaves(value) for key, value in whole.items()}


def leaves(value: Any, depth: int = 8) -> Any:  # JSON
    """Return a mapping of mappings as one mapping with dotted keys; any other value, and what lies deeper, unchanged."""
    if not isinstance(value, Mapping) or not depth:
        return value
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        below = leaves(inner, depth - 1)
        flat |= {f"{key}.{name}": one for name, one in below.items()} if isinstance(below, dict) and below else {str(key): below}
    return flat


def tokenizers(given: str, program: str, example: str = "…") -> str:
    """Return the reason to refuse a file without the size of the vocabulary."""
    return f"{given}; {program} reads it from the tokenizer: give it with planner import --set vocab_size={example}"


def vocabulary(names: str, program: str, example: str = "…") -> Source:
    """Return the size of the vocabulary, which is missing (or -1) where the program reads it from the tokenizer."""

    def size(c: Reading) -> int:
        found = c.found(*names.split())
        if found is None or found[1] == -1:
            given = f"`{names.rsplit(maxsplit=1)[-1]}` is missing" if found is None else f"`{found[0]}: -1` is not a size"
            raise c.refusal(tokenizers(given, program, example))
        return positive(c, *found)

    return Source(size, names, absent="required, e.g. by --set vocab_size")


def noted(names: str, meanings: Mapping[Any, Any], what: str, default: Any = None) -> Source:
    """Return the meaning of a training setting, or None with a note for a value that a spec cannot express."""

    def meaning(c: Reading) -> Any:
        found = c.found(*names.split())
        if found is None:
            return default
        name, value = found
        plain = value.lower() if isinstance(value, str) else value
        for given, meant in meanings.items():
            if alike(given, plain):
                return meant
        c.notes.append(f"`{name}: {show(value)}` is not modeled; {what}")
        return None

    return Source(meaning, names, absent=f"default {default or 'that of a spec'}")


RECOMPUTES_NOTHING = "the activations are those without recomputation, an upper bound"
LIKE_ADAMW = "the optimizer's memory is AdamW's"
OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "lion": "lion", "lionw": "lion", "muon": "muon"}


def optimizer(names: str, **others: str | None) -> Settings:
    """Return the optimizer."""
    return {"training.optimizer": noted(names, {**OPTIMIZERS, **others}, LIKE_ADAMW)}


def recompute(names: str, full: Iterable[Any], none: Iterable[Any] = (False, "none"), default: str | None = None) -> Settings:
    """Return the recomputation of all layers, or of none; other kinds are noted."""
    meanings = {**dict.fromkeys(full, "full"), **dict.fromkeys(none)}
    return {"training.recompute": noted(names, meanings, RECOMPUTES_NOTHING, default)}


def dropout(names: str) -> Settings:
    """Return the dropout; of several that differ, the largest, with a note."""

    def largest(c: Reading) -> Any:
        given = {name: value for name in names.split() if (value := c.value(name)) is not None}
        for name, value in given.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1:
                raise c.refusal(f"`{name}: {show(value)}` is not a probability below 1")
        if len({float(value) for value in given.values()}) > 1:
            c.notes.append(f"{' and '.join(f'`{name}: {value}`' for name, value in given.items())}: the largest is used for all dropout")
        return max(given.values(), default=0) or None

    return {"training.dropout": Source(largest, names, absent="default 0")}


def training_tokens(*names: str) -> Settings:
    """Return the tokens of the whole training, a product of keys and the sequence length, if the file has all of them."""

    def product(c: Reading) -> int | None:
        factors = [*map(c.value, names), c["training.sequence_length"]]
        whole = all(isinstance(factor, int) and not isinstance(factor, bool) and factor > 0 for factor in factors)
        return prod(factors) if whole else None

    return {"training.tokens": Source(product, " ".join(names), absent="without one of these, no tokens")}


def exactly_divided(whole: Source, part: Source) -> Source:
    """Return a quotient of sizes, or None if it is no whole number."""
    return apply(lambda whole, part: whole // part if whole and part and whole % part == 0 else None, whole, part)
