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
        ("training.use_cache=true", "model.causal with training.use_cache is not modeled yet"),
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


TRANSLATOR = "name: x\nmodel: {vocab_size: 97, context_length: 32, d_model: 32, n_layers: 2, n_heads: 4, encoder: {n_layers: 3}}\n"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.layers=[{count: 2}]", "layers with encoder is not modeled yet"),
        ("model.experts={count: 4, top_k: 2, d_ff: 8}", "experts with encoder is not modeled yet"),
        ("model.attention.window=8", "attention.window with encoder is not modeled yet"),
        ("model.positions=rope", "positions rope with encoder are not modeled yet"),
        ("model.causal=false", "causal with encoder is not modeled yet"),
        ("model.encoder.frames={bins: 8, length: 31}", "encoder.frames.length 31 is odd"),
        ("serving.output=4", "serving of a model with an encoder is not modeled yet"),
        ("training.encoder_length=33", "encoder_length 33 exceeds context_length 32"),
        ("training.implementation=megatron", "model.encoder under implementation megatron is not modeled yet"),
        ("training.padding=true", "training.padding with model.encoder is not modeled yet"),
    ],
)
def test_what_is_not_modeled_with_an_encoder_is_refused(override: str, message: str) -> None:
    assert load_text(TRANSLATOR).scenarios[0].training.encoder_length == 32  # as the decoder's
    with pytest.raises(SpecError, match=message):
        load_text(TRANSLATOR, [override])


def test_an_encoder_of_audio_reads_half_its_frames() -> None:
    training = load_text(TRANSLATOR, ["model.encoder.frames={bins: 8, length: 60}"]).scenarios[0].training
    assert training.encoder_length == 30  # the second convolution has a stride of 2
    with pytest.raises(SpecError, match=r"encoder_length 31 is not half of encoder\.frames\.length 60"):
        load_text(TRANSLATOR, ["model.encoder.frames={bins: 8, length: 60}", "training.encoder_length=31"])


def test_settings_of_an_encoder_require_one() -> None:
    for override, message in (
        ("training.encoder_length=8", r"encoder_length requires model\.encoder"),
        ("model.positions=bucketed", "bucketed positions are modeled only with encoder"),
    ):
        with pytest.raises(SpecError, match=message):
            load_text(TRANSLATOR.replace(", encoder: {n_layers: 3}", ""), [override])


def test_text_requires_a_vocabulary() -> None:
    with pytest.raises(SpecError, match="missing required key 'vocab_size' in model"):
        load_text("name: x\nmodel: {context_length: 32, d_model: 32, n_layers: 2, n_heads: 4}\n")


def test_a_loss_of_tokens_requires_logits_of_tokens() -> None:
    with pytest.raises(SpecError, match=r"loss cross_entropy is that of tokens, and head\.type is classes"):
        load_text(MODEL, ["model.head.type=classes", "training.loss=cross_entropy"])
