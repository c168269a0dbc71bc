"""The text part of a composite config.json has the parameters of the language model and LM head that transformers builds from it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.importer.formats.composite import STATES, TIE, table
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.reader import UnsupportedConfigError
from planner.importer.types import vision
from planner.spec.problems import SpecError
from tests.importer.test_changed_keys import changes

PlanModel = Callable[..., Plan]
Config = dict[str, Any]

# Small sizes in the shape of published files: the text part inside, or flat beside the others, with few keys.
FILE = Path(__file__).parent.parent / "data" / "composites.jsonl"
CONFIGS: list[Config] = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
SAMPLE = 4  # configurations whose tying is tried in all states
NOT_LANGUAGE = "embed_tokens_extend"  # the towers of Phi-4-multimodal, which are inside its decoder


def copy(config: Config) -> Config:
    """Return a copy for transformers, which changes what it reads."""
    copied: Config = json.loads(json.dumps(config))
    return copied


def language_params(config: Config) -> int:
    """Return the parameters of the decoder and of the LM head that transformers makes, a tied one once."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    hf_config = transformers.AutoConfig.for_model(**copy(config))
    with_images = config["model_type"] in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    automatic: Any = transformers.AutoModelForImageTextToText if with_images else transformers.AutoModelForMultimodalLM
    with torch.device("meta"):
        model = automatic.from_config(hf_config)
    parts = (model.get_decoder(), model.get_output_embeddings())
    named = {id(one): one for part in parts for name, one in part.named_parameters() if NOT_LANGUAGE not in name}
    return sum(one.numel() for one in named.values())


def counted(config: Config, plan_model: PlanModel) -> int:
    imported = read_huggingface(config)
    return plan_model(imported.model, **imported.training).parameters.total


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["model_type"])
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_text_part_has_the_parameters_of_its_class(config: Config, plan_model: PlanModel) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert counted(copy(config), plan_model) == language_params(config)


def tyings(config: Config) -> Iterator[Config]:
    """Yield a configuration with each pair of states of the key at the top and in the text part."""
    part = table()["types"][config["model_type"]]["part"]
    for top in STATES:
        for inside in STATES:
            changed = {key: value for key, value in copy(config).items() if key != TIE}
            changed |= {} if top is None else {TIE: top}
            text = {key: value for key, value in changed[part].items() if key != TIE}
            yield changed | {part: text if inside is None else text | {TIE: inside}}


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_head_is_tied_as_in_the_class_or_the_config_is_refused(plan_model: PlanModel) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    nested = [config for config in CONFIGS if table()["types"].get(config["model_type"], {}).get("part") in config]
    for base in random.Random(0).sample(nested, SAMPLE):  # noqa: S311 - no secret
        for config in tyings(base):
            try:
                ours = counted(config, plan_model)
            except UnsupportedConfigError as error:
                assert TIE in str(error)  # noqa: PT017 - a refusal, not a failure
                continue
            assert ours == language_params(config), config


MISTRAL3 = {"model_type": "mistral3", "text_config": {"model_type": "mistral", "hidden_size": 48, "num_attention_heads": 6}}


def test_a_head_that_the_file_does_not_state_and_the_classes_do_is_refused() -> None:
    # Mistral3Config ties by default, MistralConfig does not (transformers 5.24).
    with pytest.raises(UnsupportedConfigError, match=f"set `{TIE}` at the top and in `text_config`"):
        read_huggingface(MISTRAL3)
    # transformers 4 built the text model by text_config alone: the published weights of Mistral-Small-3.1 have an LM head.
    assert read_huggingface(MISTRAL3 | {"transformers_version": "4.50.0.dev0"}).model["head"] == {"tied": False}
    assert read_huggingface(MISTRAL3 | {TIE: True}).model["head"] == {"tied": True}


def test_the_other_parts_are_named_from_the_file_or_its_class() -> None:
    llava = {"model_type": "llava", "text_config": {"model_type": "llama"}}
    assert read_huggingface(llava).omits == ("vision tower and projector",)
    assert read_huggingface(llava | {"vision_config": {}, "audio_config": {}}).omits == ("vision tower, audio tower and projector",)
    omni = {"model_type": "qwen2_5_omni", "thinker_config": CONFIGS_BY_TYPE["qwen2_5_omni_thinker"], "talker_config": {"hidden_size": 9}}
    assert read_huggingface(omni).omits == ("vision tower, audio tower and projector", "talker and projector")


CONFIGS_BY_TYPE = {config["model_type"]: config for config in CONFIGS}


QWEN2_VL = {
    "hidden_size": 3584, "intermediate_size": 18944, "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "sliding_window": 32768, "use_sliding_window": False, "vocab_size": 152064, "vision_start_token_id": 151652,
    "image_token_id": 151655, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vision_config": {"depth": 32},
    "tie_word_embeddings": False,
}  # fmt: skip
# The keys of published files that matter to the counts, and the parameters of the text model and LM head.
PUBLISHED: list[tuple[Config, int]] = [
    # LLaVA-1.5-7B: Llama-2-7B's 6,738,415,616, whose sizes are the class's, and 64 more rows of embedding and head
    (
        {"model_type": "llava", "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064}},
        6_738_415_616 + 64 * 2 * 4096,
    ),
    # Qwen2-VL-7B and Qwen2.5-VL-7B: Qwen2-7B
    ({"model_type": "qwen2_vl", **QWEN2_VL}, 7_615_616_512),
    ({"model_type": "qwen2_5_vl", **QWEN2_VL}, 7_615_616_512),
    # Llama-3.2-11B-Vision: Llama-3-8B, 8 rows for image tokens, and 8 layers with norms of queries and keys and two gates
    (
        {"model_type": "mllama", "text_config": {"model_type": "mllama_text_model", "vocab_size": 128256}},
        8_030_261_248 + 8 * 4096 + 8 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096 + 2 * 128 + 2),
    ),
    # PaliGemma-3B: Gemma-2B's 2,506,172,416, and 1,216 more rows of the tied embedding
    (
        {
            "model_type": "paligemma",
            "text_config": {
                "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8, "num_hidden_layers": 18,
                "num_image_tokens": 256, "num_key_value_heads": 1, "vocab_size": 257216,
            },
        },
        2_506_172_416 + 1216 * 2048,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "params"), PUBLISHED, ids=lambda one: one["model_type"] if isinstance(one, dict) else "")
def test_published_sizes(config: Config, params: int, plan_model: PlanModel) -> None:
    assert counted(config, plan_model) == params


def test_published_sizes_of_mimo(plan_model: PlanModel) -> None:
    # XiaomiMiMo/MiMo-7B-Base: 7,833,409,536 parameters on the Hub, its layer of multi-token prediction included.
    mimo = {
        "model_type": "mimo", "vocab_size": 151680, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
    }  # fmt: skip
    plan = plan_model(read_huggingface(mimo).model)
    assert plan.prediction is not None
    assert plan.parameters.total + plan.prediction.stored_params == 7_833_409_536


def test_published_sizes_of_molmo(plan_model: PlanModel) -> None:
    # Molmo-7B-D's text part is Qwen2-7B (7,615,616,512) with 128 more rows of the token embedding.
    molmo = {
        "model_type": "molmo", "vocab_size": 152064, "embedding_size": 152064, "hidden_size": 3584, "intermediate_size": 37888,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "qkv_bias": True, "layer_norm_type": "rms",
    }  # fmt: skip
    assert counted(molmo, plan_model) == 7_615_616_512 + 128 * 3584


def test_layers_of_deci_lm_may_lack_a_part_or_have_one_matrix_for_it(plan_model: PlanModel) -> None:
    whole = {"n_heads_in_group": 4, "no_op": False, "replace_with_linear": False}
    blocks = [
        {"attention": whole, "ffn": {"ffn_mult": 2.625}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
        {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 5.25}},
        {"attention": whole, "ffn": {"replace_with_linear": True}},
    ]
    config = {
        "model_type": "nemotron-nas", "vocab_size": 100, "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4,
        "intermediate_size": None, "num_key_value_heads": None, "block_configs": blocks,
    }  # fmt: skip
    # Widths of 2·ffn_mult·d/3, rounded up to a multiple of 256; 2 of 8 heads have keys and values; d² of one matrix; a norm of each part.
    d, attention = 1024, 2 * 1024**2 + 2 * 1024 * 256
    right = 2 * 100 * d + d + 2 * attention + 3 * d * (1792 + 768 + 3584) + 2 * d**2 + 7 * d
    assert counted(config, plan_model) == right
    with pytest.raises(UnsupportedConfigError, match="entry for each of 4 layers"):
        read_huggingface(config | {"block_configs": blocks[:3]})


@pytest.mark.parametrize("missing", ["text_config", "thinker_config"])
def test_a_composite_without_its_text_part_is_refused(missing: str) -> None:
    model_type = "qwen2_5_omni" if missing == "thinker_config" else "llava"
    with pytest.raises(UnsupportedConfigError, match=f"`{missing}` is missing"):
        read_huggingface({"model_type": model_type, "vision_config": {"hidden_size": 8}})


def test_an_outer_size_that_the_text_part_does_not_have_is_refused() -> None:
    with pytest.raises(
        UnsupportedConfigError,
        match=r"`vocab_size: 99` and `text_config.vocab_size: 32000` disagree; make them equal with planner import --set vocab_size=…",
    ):
        read_huggingface({"model_type": "llava", "vocab_size": 99, "text_config": {"model_type": "llama"}})


def test_a_projector_that_has_a_configuration_is_named_once() -> None:
    config = {"model_type": "granite_speech", "projector_config": {"hidden_size": 8}, "encoder_config": {"hidden_size": 8}}
    tied = {"tie_word_embeddings": True}
    (omitted,) = read_huggingface({**config, **tied, "text_config": {"model_type": "granite", **tied}}).omits
    assert sorted(omitted.split(" and ")) == ["encoder", "projector"]


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_the_table_is_what_the_installed_transformers_says() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tools import composites

    known = table()["types"]
    for name in random.Random(1).sample(sorted(known), SAMPLE):  # noqa: S311 - no secret
        assert composites.described(name) == known[name]
    assert dict(composites.texts()) == table()["texts"]


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_changed_key_of_a_text_part_means_what_its_class_makes_of_it(plan_model: PlanModel) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    every: list[tuple[str, Config]] = []
    for base in CONFIGS:
        known = table()["types"].get(base["model_type"], {"type": "", "part": ""})
        if known["type"] in vision.ROWS and known["part"] in base:
            part = known["part"]
            text = getattr(transformers.AutoConfig.for_model(**copy(base)), part)
            full = json.loads(text.to_json_string(use_diff=False)) | {"model_type": known["type"]}
            every += [(key, base | {part: changed}) for key, changed in changes(base[part], full) if key != TIE]
    tried = every if os.environ.get("CHANGES") == "all" else random.Random(2).sample(every, 10 * SAMPLE)  # noqa: S311 - no secret
    wrong = []
    for key, config in tried:
        try:
            ours = counted(copy(config), plan_model)
        except (UnsupportedConfigError, SpecError):
            continue
        try:
            right = language_params(config)
        except Exception:  # noqa: BLE001, S112 - whatever the class raises, it makes no model of this config
            continue
        wrong += [(key, config, ours, right)] if ours != right else []
    assert not wrong
