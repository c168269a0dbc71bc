"""Training steps of a small LLaVA, measured with PyTorch 2.13 and transformers 5.24 on a CPU: all figures are equal.

Images of 56 × 56 pixels in patches of 14 × 14, one per sequence; the state of the tower's last layer is read; AdamW, no dropout.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner import capacity
from planner.capacity.symbolic import formulas
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.write import spec_text
from planner.report import settings
from planner.spec import load_text
from planner.spec.problems import SpecError
from planner.spec.records import Spec
from planner.trace.sizes import evaluate
from planner.trace.unsupported import UnsupportedError

# n, widths of the text and of the tower, feed-forwards of both, and what is frozen: parameters, bytes saved by autograd, bytes allocated
# after the passes of the second step, its peak, FLOPs of both passes.
CASES: tuple[tuple[int, tuple[int, int, int, int], str, tuple[int, ...]], ...] = (
    (40, (64, 48, 176, 192), "nothing", (262400, 1451172, 4600296, 4274244, 4983656, 28775168, 56674176)),
    (40, (64, 48, 176, 192), "tower", (262400, 1105812, 3644228, 3245360, 4027588, 28775168, 46596096)),
    (40, (64, 48, 176, 192), "tower and layers", (262400, 808212, 2300148, 1674720, 2683508, 28775168, 31850496)),
    (64, (128, 96, 352, 384), "nothing", (834048, 3808532, 13817112, 13420292, 14430488, 143353344, 287510272)),
)
TRAINED = {"nothing": ["everything"], "tower": ["text", "projector"], "tower and layers": ["projector", "head"]}


def config(d_model: int, of_tower: int, d_ff: int, d_ff_of_tower: int, **more: object) -> dict[str, Any]:
    """Return a small config.json of LLaVA."""
    text = {
        "model_type": "llama", "vocab_size": 600, "hidden_size": d_model, "intermediate_size": d_ff, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    }  # fmt: skip
    tower = {
        "model_type": "clip_vision_model", "hidden_size": of_tower, "intermediate_size": d_ff_of_tower, "num_hidden_layers": 2,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "projection_dim": 16,
    }  # fmt: skip
    return {"model_type": "llava", "text_config": text, "vision_config": tower, "vision_feature_layer": -1, **more}


def spec_of(config: dict[str, Any], **training: object) -> Spec:
    text = spec_text(read_huggingface(config), "llava", comments=False)
    return load_text(text, [f"training.{key}={json.dumps(value)}" for key, value in training.items()])


TEXT = "name: text\nmodel: {vocab_size: 60, context_length: 32, d_model: 32, n_layers: 1, n_heads: 4}\n"
STEP = {"batch_size": 2, "implementation": "transformers", "precision": "fp32", "device": "cpu"}


@pytest.mark.parametrize(("n", "sizes", "frozen", "right"), CASES, ids=lambda one: str(one) if isinstance(one, (int, str)) else "")
def test_a_step_equals_the_measured_one(n: int, sizes: tuple[int, int, int, int], frozen: str, right: tuple[int, ...]) -> None:
    spec = spec_of(config(*sizes), sequence_length=n, train=TRAINED[frozen], **STEP)
    plan = capacity.plan(spec, spec.scenarios[0])
    hardware = next(count for count in plan.flops.by_convention if count.convention == "hardware")
    memory, live = plan.memory, plan.memory.live
    passes = (hardware.forward_per_step, hardware.train_per_step - hardware.forward_per_step)
    ours = (plan.parameters.total, memory.activations_bytes, live.after_forward, live.after_backward, memory.peak_bytes, *passes)
    assert ours == right


def test_llava_7b_has_the_parameters_of_its_class() -> None:
    # LlavaForConditionalGeneration on the meta device: Vicuna-7B with 64 more rows of embedding and head, CLIP ViT-L/14
    # at 336 pixels and the projector.
    tower = {
        "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "projection_dim": 768,
    }  # fmt: skip
    llava = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": tower}
    imported = read_huggingface(llava)
    spec = spec_of(llava)
    assert capacity.plan(spec, spec.scenarios[0]).parameters.total == 7_063_427_072
    assert imported.omits == ()
    assert imported.model["vision"]["read_layers"] == 23  # the state before the last layer, -2


def test_formulas_give_the_figures_of_a_plan() -> None:
    spec = spec_of(config(64, 48, 176, 192), sequence_length=40, images=2, **STEP)
    plan, made = capacity.plan(spec, spec.scenarios[0]), formulas(spec, spec.scenarios[0])
    assert evaluate(made.plan.memory.peak_bytes, made.values) == plan.memory.peak_bytes
    assert evaluate(made.plan.parameters.total, made.values) == plan.parameters.total


def test_a_default_of_images_is_a_setting_that_reports_show() -> None:
    spec = spec_of(config(64, 48, 176, 192), sequence_length=40, **STEP)
    assert settings.training(spec.scenarios[0].training)["images"] == "1"
    assert "training.images" in spec.defaulted
    assert "images" not in settings.training(load_text(TEXT).scenarios[0].training)


def test_the_import_names_the_whole_type() -> None:
    assert "configuration of type llava (text part: llama)." in spec_text(read_huggingface(config(64, 48, 176, 192)), "llava")
    alone = {**config(64, 48, 176, 192)["text_config"]}
    assert "configuration of type llama." in spec_text(read_huggingface(alone), "llama")


def test_a_frozen_tower_is_not_recomputed() -> None:
    spec = spec_of(config(64, 48, 176, 192), sequence_length=40, train=["text", "projector"], recompute="full", **STEP)
    with pytest.raises(UnsupportedError, match="recompute: full with a frozen tower"):
        capacity.plan(spec, spec.scenarios[0])
    whole = spec_of(config(64, 48, 176, 192), sequence_length=40, recompute="full", **STEP)
    assert capacity.plan(whole, whole.scenarios[0]).memory.peak_bytes


def test_images_replace_tokens_of_the_sequence() -> None:
    with pytest.raises(SpecError, match="images 2 replace 32 tokens, and sequence_length is 31"):
        spec_of(config(64, 48, 176, 192), sequence_length=31, images=2)


@pytest.mark.parametrize("key", [{"vision_feature_layer": [-2, -1]}, {"audio_config": {"hidden_size": 8}}])
def test_other_towers_are_omitted(key: dict[str, Any]) -> None:
    imported = read_huggingface(config(64, 48, 176, 192, **key))
    assert "vision" not in imported.model
    assert any("vision tower" in part for part in imported.omits)
