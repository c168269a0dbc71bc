"""Checks of encoders: what no encoder has, and what depends on the head."""

from __future__ import annotations

from collections.abc import Iterator

from planner.spec.defaults import context_length
from planner.spec.mixers import names
from planner.spec.problems import Problem
from planner.spec.settings import Document, Settings

Problems = Iterator[Problem]

PLAIN = ("pytorch", "pytorch-eager", "transformers", "transformers-eager")  # implementations that run encoders
BESIDES = {"causal": True, "segments": 0, "head.type": "language", "head.transform": False}


def encoder(document: Document) -> Problems:
    """Without a causal mask, layers attend to all tokens: nothing in them depends on an order in which tokens are read."""
    model = document.model
    if model.get("causal"):
        return
    for settings in (layer for group in document.groups for layer in group.layers):
        if others := [name for name in names(settings) if name != "attention"]:
            yield settings.problem("mixer", "causal", f"causal: false is not supported with mixer {others[0]}", "write mixer: attention")
        if settings.get("attention.chunked"):
            yield settings.problem("attention.chunked", "causal", "causal: false is not supported with attention.chunked", "remove it")
        if settings.get("positions.type") == "alibi":
            message = "causal: false is not supported with positions alibi, whose bias is that of a causal mask"
            yield settings.problem("positions", "causal", message, "write other positions")


def heads(document: Document) -> Problems:
    """Prediction layers and serving require logits of tokens; a projection has an embedding of another width."""
    model = document.model
    no_tokens = not model.get("causal") or model.get("head.type") != "language"
    if no_tokens and document.serving:
        message = "serving requires a causal model with an LM head, which generates tokens"
        yield document.serving.node.mark.problem("causal", message, "remove serving")
    if model.on("prediction") and (no_tokens or model.get("head.transform")):
        message = "prediction layers require a causal model whose LM head has no transform"
        yield model.problem("prediction", "causal", message, "remove prediction")
    if model.get("embedding_projection") == "embedded" and not model.written("embedding_dim"):
        message = "embedding_projection requires embedding_dim"
        yield model.problem("embedding_projection", "embedding-projection", message, "write embedding_dim, or remove it")


def images(document: Document) -> Problems:
    """Tokens have a vocabulary and a length; the patches of an image have neither, and require an encoder with classes or without head."""
    model = document.model
    if not model.on("patches"):
        if model.written("patches") and not (model.written("vocab_size") and model.written("context_length")):
            yield model.problem("patches", "patches", "a model without patches requires vocab_size and context_length", "write them")
        return
    for key in ("vocab_size", "context_length", "segments", "embedding_dim", "embedding_scale"):
        if written := model.written(key):
            yield written.mark.problem("patches", f"{key} is not supported with patches, which have no token ids", "remove it")
    for key, value in (("causal", False), ("head.type", "classes"), ("positions.type", "learned")):
        if model.get(key) not in (value, "none"):
            yield model.problem("patches", "patches", f"patches require {key}: {str(value).lower()}", f"write {key}: {str(value).lower()}")
    if model.size("patches.image") % model.size("patches.size"):
        message = f"patches.size {model.get('patches.size')} does not divide patches.image {model.get('patches.image')}"
        yield model.problem("patches.size", "divides", message, "make image a multiple of size")


def implementation(settings: Settings, document: Document) -> Problems:
    """Find implementations and losses that no encoder has: it runs in plain modules of PyTorch or in classes of transformers."""
    model, chosen = document.model, settings.get("implementation")
    changed = next((key for key, usual in BESIDES.items() if model.get(key) != usual), None)
    if changed and chosen not in PLAIN:
        message = f"model.{changed} under implementation {chosen} is not modeled yet"
        yield settings.problem("implementation", "causal", message, f"write implementation: {' or '.join(PLAIN)}")
    for key, usual in (("liger", False), ("kv_cache", False), ("padding", False)):
        written = settings.written(key)
        if changed and written and written.value is not usual:
            yield settings.problem(key, "causal", f"model.{changed} with training.{key} is not modeled yet", "remove it")
    if model.on("patches") and (n := settings.written("sequence_length")) and n.value != context_length(model):
        message = f"sequence_length {n.value} is not the {context_length(model)} tokens of an image"
        yield settings.problem("sequence_length", "patches", message, "remove it")
    if model.get("head.type") != "language" and settings.get("loss") != "default":
        message = f"loss {settings.get('loss')} is that of tokens, and head.type is {model.get('head.type')}"
        yield settings.problem("loss", "head-type", message, "remove it")


DOCUMENT = (encoder, heads, images)
WITH_MODEL = (implementation,)
