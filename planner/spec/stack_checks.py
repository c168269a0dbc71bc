"""Checks of encoders: what no encoder has, and what depends on the head."""

from __future__ import annotations

from collections.abc import Iterator

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
    if model.get("head.type") != "language" and settings.get("loss") != "default":
        message = f"loss {settings.get('loss')} is that of tokens, and head.type is {model.get('head.type')}"
        yield settings.problem("loss", "head-type", message, "remove it")


DOCUMENT = (encoder, heads)
WITH_MODEL = (implementation,)
