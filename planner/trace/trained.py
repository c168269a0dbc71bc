"""Which weights train: all, adapters, or parts of the model; frozen weights get no gradient and no optimizer state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from planner.spec.records import Adapters, Run, Training
from planner.trace.sizes import structure

EVERYTHING, ADAPTERS, ALL = "everything", "adapters", "all-linear"
PROMPTS = ("prompt", "prefix")
"""Adapters that are tokens, not parts of linears."""
LINEARS = {
    name.removesuffix("_proj"): name
    for name in ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj")
}
"""Linears of layers by their short names."""
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("embedding", "wte", "embed_in", "word_embeddings"), ("embed_tokens",)),
    "c_attn": ("qkv_proj",), "query_key_value": ("qkv_proj",), "Wqkv": ("qkv_proj",), "att_proj": ("qkv_proj",),
    "dense": ("o_proj",), "out_proj": ("o_proj",), "c_proj": ("o_proj", "down_proj"),
    "c_fc": ("up_proj",), "fc1": ("up_proj",), "fc_in": ("up_proj",), "dense_h_to_4h": ("up_proj",),
    "fc2": ("down_proj",), "fc_out": ("down_proj",), "dense_4h_to_h": ("down_proj",),
}  # fmt: skip
"""Linears by their names in other classes of transformers."""
PARTS = {"model.vision": "vision", "model.projector": "projector"}
"""Parts that train by their own names only, by the beginnings of paths; all others are text."""
_LAYERS = re.compile(r"(?:layers\.)?(\d+)(?:-(\d+))?")
_OF_LAYER = re.compile(r"(?:^|\.)layers\.(\d+|N)")


def trains(words: Iterable[str], path: str, component: str, name: str) -> bool:
    """Return whether the weight ``name`` of the module at a path trains, by the words of ``training.train``."""
    return any(_is_part(word, path, component, name) for word in words)


def _is_part(word: str, path: str, component: str, name: str) -> bool:  # noqa: PLR0911 - a return for each kind of word
    """Return whether a word means a weight. Adapters always train."""
    if word == EVERYTHING or component == ADAPTERS:
        return True
    part = next((name for prefix, name in PARTS.items() if path.startswith(prefix)), "text")
    if word in (*PARTS.values(), "text") or part != "text":
        return word == part
    if word == "bias":
        return name == "bias"
    if word == "final_norm":
        return path == "model.norm"
    if word == "layers":
        return in_layer(path)
    if numbers := layers_of(word):
        return has_layer(path, numbers)
    return word == component or path.rpartition(".")[2] in linears(word)


def linears(word: str) -> tuple[str, ...]:
    """Return the linears of a name: a short one, that of the trace, or that of a class of transformers; ``q=8`` has a rank, too."""
    word = word.partition("=")[0]
    return OTHER_NAMES.get(word) or (LINEARS.get(word, word),)


def layers_of(word: str) -> range | None:
    """Return the layers of a number or of a range such as ``layers.30-31``; None for another word."""
    found = _LAYERS.fullmatch(word)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else None


def unknown(words: Iterable[str], names: Iterable[tuple[str, str]]) -> str | None:
    """Return the first word that means none of the weights, of which each has a name and a component; None if there is no such word."""
    known = list(names)

    def means_any(word: str) -> bool:
        parts = ((*name.rpartition(".")[::2], component) for name, component in known)
        return any(_is_part(word, path, component, last) for path, last, component in parts)

    return next((word for word in words if word != ADAPTERS and not means_any(word)), None)


def in_layer(path: str) -> bool:
    """Return whether a path is of a layer."""
    return _OF_LAYER.search(path) is not None


def has_layer(path: str, numbers: range) -> bool:
    """Return whether a path is of one of the layers: those of a label are all inside or all outside (``apart``); N is of all layers."""
    found = _OF_LAYER.search(path)
    return found is not None and (0 if found[1] == "N" else int(found[1])) in numbers


def targets(kind: Adapters, path: str, name: str) -> bool:
    """Return whether a linear of a layer has an adapter."""
    if kind.type in PROMPTS:
        return False
    chosen = [numbers for word in kind.layers if (numbers := layers_of(word))]
    inside = in_layer(path) and (not chosen or any(has_layer(path, numbers) for numbers in chosen))
    return inside and any(word == ALL or name in linears(word) for word in kind.targets)


def rank_of(kind: Adapters, name: str) -> int:
    """Return the rank of a linear's adapter: its own, if a target has one, or that of all."""
    own = (word.rpartition("=")[2] for word in kind.targets if "=" in word and name in linears(word))
    return next(map(int, own), kind.rank)


def of_embedding(kind: Adapters) -> bool:
    """Return whether the token embedding has an adapter."""
    return any("embed_tokens" in linears(word) for word in kind.targets)


def apart(runs: tuple[Run, ...], training: Training) -> tuple[Run, ...]:
    """Return layer groups cut where layers begin or cease to train, or to have adapters."""
    words = (*training.train, *(training.adapters.layers if training.adapters else ()))
    cuts = sorted({edge for word in words if (numbers := layers_of(word)) for edge in (numbers.start, numbers.stop)})
    return tuple(_cut(runs, cuts)) if cuts else runs


def _cut(runs: tuple[Run, ...], cuts: list[int]) -> Iterator[Run]:
    """Yield layer groups cut before the layers of the given numbers; a group that is repeated is cut in its repetitions, too."""
    place = 0
    for run in runs:
        size = len(run.layers)
        end = place + structure(run.count) * size
        edges = [place, *(cut for cut in cuts if place < cut < end), end]
        for start, stop in pairwise(edges):
            offset = (start - place) % size
            if offset == 0 and (stop - start) % size == 0:
                yield replace(run, count=(stop - start) // size)
            else:
                yield from (replace(run, count=1, layers=(run.layers[(number - place) % size],)) for number in range(start, stop))
        place = end
