"""Checks of what a fine-tuning trains: parts of the model, adapters, and how frozen weights are stored."""

from __future__ import annotations

import re
from collections.abc import Iterator

from planner.spec.defaults import words
from planner.spec.problems import Problem, quote
from planner.spec.settings import Document, Settings

Problems = Iterator[Problem]

PLAIN = ("pytorch", "pytorch-eager", "transformers", "transformers-eager")  # implementations whose operators know what trains
ALSO = ("embedding", "head")
_WITH_RANK = re.compile(r"(?!all-linear)[^=]+=[1-9]\d{0,5}")
_LAYERS = re.compile(r"(?:layers\.)?(\d+)(?:-(\d+))?")


def adapters(settings: Settings, _: Document) -> Problems:
    """Adapters are written where they train, and only there."""
    chosen, trained = settings.on("adapters"), words(settings, key="train")
    if "adapters" in trained and not chosen:
        yield settings.problem("train", "adapters", "train: adapters requires adapters", "write adapters: {rank: 16}")
    elif chosen and "adapters" not in trained:
        message = f"adapters requires train: adapters, not {', '.join(trained)}"
        yield settings.problem("adapters", "adapters", message, "write train: adapters, or remove adapters")
    if settings.written("also_train") and not chosen:
        yield settings.problem("also_train", "adapters", "also_train requires adapters", "write the parts under train instead")
    if settings.on("base") and trained == ("everything",):
        yield settings.problem("base", "base", "base describes frozen weights, but everything trains", "remove it, or write what trains")
    elif settings.written("base") and settings.get("base.format") != "none" and trained != ("adapters",):
        message = "packed weights cannot train, and base.format requires train: adapters"
        yield settings.problem("base.format", "base", message, "write train: adapters, or remove base.format")
    kind = settings.get("adapters.type") if chosen else ""
    if kind in ("prompt", "prefix") and settings.written("also_train"):
        yield settings.problem("also_train", "prompt", f"also_train with a learned {kind} is not modeled yet", "remove also_train")
    if kind == "prefix" and settings.get("recompute") != "none":
        yield settings.problem("recompute", "prefix", "prefix tuning does not support recomputation", "write recompute: none")
    if kind == "prefix" and not settings.get("implementation").startswith("transformers"):
        message = f"prefix tuning under implementation {settings.get('implementation')} is not modeled yet"
        yield settings.problem("implementation", "prefix", message, "write implementation: transformers")


def ranks(settings: Settings, _: Document) -> Problems:
    """Targets with ranks of their own are linears with positive numbers."""
    own = [word for word in words(settings, key="adapters.targets") if "=" in word] if settings.on("adapters") else []
    if own and settings.get("adapters.type") not in ("lora", "rslora", "dora"):
        message = f"adapters.targets has {quote(own[0])}, but adapters of type {settings.get('adapters.type')} have no rank"
        yield settings.problem("adapters.targets", "ranks", message, "write the name alone")
        return
    for word in own:
        if not _WITH_RANK.fullmatch(word):
            message = f"adapters.targets has {quote(word)}, which is no linear with a rank"
            yield settings.problem("adapters.targets", "ranks", message, "write a name and a rank, such as q=8")


def tuned_implementation(settings: Settings, _: Document) -> Problems:
    """Frozen weights are modeled where operators know what trains: not in fused stacks, nor with kernels that compute gradients early."""
    if not tunes(settings):
        return
    implementation, liger = settings.get("implementation"), settings.written("liger")
    fused = {
        "liger": liger is not None and liger.value is not False,
        "float8": settings.get("float8"),
        "mixer_kernels": settings.get("mixer_kernels") != "plain",
        "loss": settings.get("loss").startswith("linear"),
    }
    if implementation not in PLAIN:
        message = f"frozen weights under implementation {implementation} are not modeled yet"
        yield settings.problem("implementation", "frozen", message, f"write implementation: {' or '.join(PLAIN)}")
    for key in (key for key, on in fused.items() if on):
        yield settings.problem(key, "frozen", f"frozen weights with {key} are not modeled yet", f"remove {key}, or what trains")


def parts_exist(settings: Settings, document: Document) -> Problems:
    """Layers that train or have adapters are layers of the model; also_train names parts outside them."""
    count = sum(group.count * len(group.layers) for group in document.groups)
    written = [(key, word) for key in ("train", "adapters.layers") for word in words(settings, key=key)]
    for key, word in written:
        found = _LAYERS.fullmatch(word)
        if found is None and key == "adapters.layers":
            message, hint = f"adapters.layers has {quote(word)}, which is no layer", "write a number, or a range such as 0-15"
            yield settings.problem(key, "layers", message, hint)
        elif found and not int(found[1]) <= int(found[2] or found[1]) < count:
            message = f"{key} has {quote(word)}, but the layers are 0 to {count - 1}"
            yield settings.problem(key, "layers", message, f"write layers of {'0' if count == 1 else f'0-{count - 1}'}")
    for word in words(settings, key="also_train"):
        if word not in ALSO:
            message = f"also_train has {quote(word)}; only copies of embedding and head are modeled"
            yield settings.problem("also_train", "also-train", message, "write embedding or head")
        elif word == "head" and document.model.get("head.tied"):
            message = "also_train has head, but the LM head shares the token embedding"
            yield settings.problem("also_train", "also-train", message, "write embedding")


def tunes(settings: Settings) -> bool:
    """Return whether some weights are frozen, or stored in another way than trained ones."""
    return words(settings, key="train") != ("everything",) or settings.on("base")


TUNING = (adapters, ranks, tuned_implementation, parts_exist)
