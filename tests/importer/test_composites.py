"""The text part of a composite config.json has the parameters of the language model and LM head that transformers builds from it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.importer.formats.composite import STATES, TIE, table
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.reader import UnsupportedConfigError

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

    transformers.logging.set_verbosity_error()
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


def test_published_sizes_of_llava(plan_model: PlanModel) -> None:
    # LLaVA-1.5-7B's text_config states only what differs from the class: Llama-2-7B, with 64 more rows of embedding and head.
    llava = {"model_type": "llava", "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064}}
    assert counted(llava, plan_model) == 6_738_415_616 + 64 * 2 * 4096


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
    with pytest.raises(UnsupportedConfigError, match="`vocab_size: 99` and `text_config.vocab_size: 32000` disagree"):
        read_huggingface({"model_type": "llava", "vocab_size": 99, "text_config": {"model_type": "llama"}})


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_the_table_is_what_the_installed_transformers_says() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tools import composites

    known = table()["types"]
    for name in random.Random(1).sample(sorted(known), SAMPLE):  # noqa: S311 - no secret
        assert composites.described(name) == known[name]
    assert dict(composites.texts()) == table()["texts"]
