"""Encoders: settings that no encoder has, and settings that require one, are refused with the location."""

from __future__ import annotations

import pytest

from planner.spec import load_text
from planner.spec.problems import SpecError

MODEL = "name: x\nmodel: {vocab_size: 97, context_length: 32, d_model: 32, n_layers: 2, n_heads: 4, causal: false}\n"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.positions=alibi", "causal: false is not supported with positions alibi"),
        ("model.mixer=mamba", "causal: false is not supported with mixer mamba"),
        ("model.prediction.count=1", "prediction layers require a causal model"),
        ("serving.output=4", "serving requires a causal model with an LM head"),
        ("training.implementation=megatron", "model.causal under implementation megatron is not modeled yet"),
        ("training.kv_cache=true", "model.causal with training.kv_cache is not modeled yet"),
        ("training.padding=true", "model.causal with training.padding is not modeled yet"),
        ("model.embedding_projection=embedded", "embedding_projection requires embedding_dim"),
        ("model.head.pooler=tanh", "head.pooler requires head.type: classes or none, not language"),
    ],
)
def test_what_no_encoder_has_is_refused(override: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_text(MODEL, [override])


IMAGES = "name: x\nmodel: {d_model: 32, n_layers: 2, n_heads: 4, causal: false, patches: {image: 12, size: 4}, head: {type: classes}}\n"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.patches.size=5", "patches.size 5 does not divide patches.image 12"),
        ("model.vocab_size=97", "vocab_size is not supported with patches"),
        ("model.head.type=language", "patches require head.type: classes"),
        ("model.causal=true", "patches require causal: false"),
        ("training.sequence_length=9", "sequence_length 9 is not the 10 tokens of an image"),
        ("model.patches=none", "a model without patches requires vocab_size and context_length"),
    ],
)
def test_what_images_do_not_have_is_refused(override: str, message: str) -> None:
    assert load_text(IMAGES).model.context_length == 10  # 3 · 3 patches and the class token
    with pytest.raises(SpecError, match=message):
        load_text(IMAGES, [override])


def test_text_requires_a_vocabulary() -> None:
    with pytest.raises(SpecError, match="missing required key 'vocab_size' in model"):
        load_text("name: x\nmodel: {context_length: 32, d_model: 32, n_layers: 2, n_heads: 4}\n")


def test_a_loss_of_tokens_requires_logits_of_tokens() -> None:
    with pytest.raises(SpecError, match=r"loss cross_entropy is that of tokens, and head\.type is classes"):
        load_text(MODEL, ["model.head.type=classes", "training.loss=cross_entropy"])
