"""Checks of encoders and models with one: what these do not have, and what depends on the head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from planner.spec.defaults import context_length, encoder_length, sequence_length
from planner.spec.defaults import images as images_of
from planner.spec.mixers import names
from planner.spec.problems import Problem
from planner.spec.records import Patches
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


ONE_KIND = {
    "causal": True, "head.type": "language", "head.transform": False, "mixer": "attention", "block": "sequential", "experts": "none",
    "segments": 0, "per_layer_embedding": "none", "embedding_dim": "none", "attention.window": "none", "attention.shared_kv": False,
    "attention.keys_as_values": False, "attention.differential": False, "attention.output_gate": "none", "attention.sinks": False,
    "patches": "none", "prediction": "none",
}  # fmt: skip
"""Settings of the model that the layers of an encoder and those that read it have in common."""


def encoder_decoder(document: Document) -> Problems:
    """Find what an encoder and the layers that read it cannot have: its layers are those of the model, which are equal."""
    model = document.model
    if not model.on("encoder"):
        if model.get("positions.type") == "bucketed":
            yield model.problem("positions", "encoder", "bucketed positions are modeled only with encoder", "write other positions")
        return
    for key in ("layers", "extra"):
        if model.written(key):
            yield model.problem(key, "encoder", f"{key} with encoder is not modeled yet", f"remove {key}")
    for key, usual in ONE_KIND.items():
        if (written := model.written(key)) and written.value != usual:
            yield model.problem(key, "encoder", f"{key} with encoder is not modeled yet", "remove it")
    if (positions := model.get("positions.type")) in ("rope", "alibi"):
        yield model.problem("positions", "encoder", f"positions {positions} with encoder are not modeled yet", "write other positions")
    if document.serving:
        yield document.serving.node.mark.problem("encoder", "serving of a model with an encoder is not modeled yet", "remove serving")
    if model.on("encoder.frames") and model.get("encoder.frames.length") % 2:
        message = f"encoder.frames.length {model.get('encoder.frames.length')} is odd, and the second convolution halves it"
        yield model.problem("encoder.frames.length", "encoder", message, "make it even")


ONE_STACK = {
    "causal": True, "head.type": "language", "head.transform": False, "encoder": "none", "patches": "none", "segments": 0,
    "per_layer_embedding": "none", "prediction": "none", "embedding_dim": "none", "embedding_norm": False,
}  # fmt: skip
"""Settings of a model whose tokens a tower replaces."""


def tower(document: Document) -> Problems:
    """Find what a model with a tower cannot have, and sizes of the tower that do not divide."""
    model = document.model
    if not model.on("vision"):
        return
    for key, usual in ONE_STACK.items():
        if (written := model.written(key)) and written.value != usual:
            yield model.problem(key, "vision", f"{key} with vision is not modeled yet", "remove it")
    if document.serving:
        yield document.serving.node.mark.problem("vision", "serving of a model with vision is not modeled yet", "remove serving")
    for part, whole in (("patches.size", "patches.image"), ("n_heads", "d_model")):
        if model.size(f"vision.{whole}") % model.size(f"vision.{part}"):
            message = f"vision.{part} {model.get(f'vision.{part}')} does not divide vision.{whole} {model.get(f'vision.{whole}')}"
            yield model.problem(f"vision.{part}", "divides", message, f"make {whole} a multiple")
    if (read := model.written("vision.read_layers")) and model.size("vision.read_layers") > model.size("vision.n_layers"):
        message = f"vision.read_layers {read.value} exceeds vision.n_layers {model.get('vision.n_layers')}"
        yield model.problem("vision.read_layers", "vision", message, "remove it")


def tower_training(settings: Settings, document: Document) -> Problems:
    """Find settings that are not modeled with a tower, and sequences that are shorter than their images."""
    model, implementation = document.model, settings.get("implementation")
    if not model.on("vision"):
        if settings.written("images"):
            yield settings.problem("images", "vision", "images requires model.vision", "remove it")
        return
    if implementation not in PLAIN:
        message = f"model.vision under implementation {implementation} is not modeled yet"
        yield settings.problem("implementation", "vision", message, f"write implementation: {' or '.join(PLAIN)}")
    for key, usual in (("liger", False), ("use_cache", False), ("padding", False), ("adapters", "none"), ("offload_activations", False)):
        other = settings.written(key)
        if other and other.value != usual:
            yield settings.problem(key, "vision", f"training.{key} with model.vision is not modeled yet", "remove it")
    kind = Patches(*(model.get(f"vision.patches.{one.name}") for one in fields(Patches)))
    count = images_of(settings, model)
    tokens = count * (kind.length - (0 if model.get("vision.reads_tokens") else kind.tokens))
    if tokens > (n := sequence_length(settings, model)):
        message = f"training.images {count} replace {tokens} tokens, and sequence_length is {n}"
        yield settings.problem("images", "vision", message, f"write sequence_length: {tokens} or more")


def encoder_training(settings: Settings, document: Document) -> Problems:
    """Only an encoder of text reads sequences of a chosen length."""
    model, implementation = document.model, settings.get("implementation")
    written = settings.written("encoder_length")
    if not model.on("encoder"):
        if written:
            yield settings.problem("encoder_length", "encoder", "encoder_length requires model.encoder", "remove it")
        return
    if implementation not in PLAIN:
        message = f"model.encoder under implementation {implementation} is not modeled yet"
        yield settings.problem("implementation", "encoder", message, f"write implementation: {' or '.join(PLAIN)}")
    for key, usual in (("liger", False), ("use_cache", False), ("padding", False), ("adapters", "none"), ("offload_activations", False)):
        other = settings.written(key)
        if other and other.value != usual:
            yield settings.problem(key, "encoder", f"training.{key} with model.encoder is not modeled yet", "remove it")
    if settings.get("recompute") == "full" and model.get("positions.type") == "bucketed" and not model.get("positions.per_layer"):
        yield settings.problem(
            "recompute", "encoder", "recompute: full with bucketed positions is not modeled yet", "write recompute: none"
        )
    m, longest = encoder_length(settings, model), context_length(model)
    if model.on("encoder.frames") and written and m != model.get("encoder.frames.length") // 2:
        message = f"encoder_length {m} is not half of encoder.frames.length {model.get('encoder.frames.length')}"
        yield settings.problem("encoder_length", "encoder", message, "remove it")
    elif not model.on("encoder.frames") and model.get("positions.type") == "learned" and m and m > longest:
        message = f"encoder_length {m} exceeds context_length {longest}, the size of the learned position embedding"
        yield settings.problem("encoder_length", "context-length", message, f"write at most {longest}, or raise context_length")


def implementation(settings: Settings, document: Document) -> Problems:
    """Find implementations and losses that no encoder has: it runs in plain modules of PyTorch or in classes of transformers."""
    model, chosen = document.model, settings.get("implementation")
    changed = next((key for key, usual in BESIDES.items() if model.get(key) != usual), None)
    if changed and chosen not in PLAIN:
        message = f"model.{changed} under implementation {chosen} is not modeled yet"
        yield settings.problem("implementation", "causal", message, f"write implementation: {' or '.join(PLAIN)}")
    for key, usual in (("liger", False), ("use_cache", False), ("padding", False)):
        written = settings.written(key)
        if changed and written and written.value is not usual:
            yield settings.problem(key, "causal", f"model.{changed} with training.{key} is not modeled yet", "remove it")
    if model.on("patches") and (n := settings.written("sequence_length")) and n.value != context_length(model):
        message = f"sequence_length {n.value} is not the {context_length(model)} tokens of an image"
        yield settings.problem("sequence_length", "patches", message, "remove it")
    if model.get("head.type") != "language" and settings.get("loss") != "default":
        message = f"loss {settings.get('loss')} is that of tokens, and head.type is {model.get('head.type')}"
        yield settings.problem("loss", "head-type", message, "remove it")


DOCUMENT = (encoder, heads, images, encoder_decoder, tower)
WITH_MODEL = (implementation, encoder_training, tower_training)
