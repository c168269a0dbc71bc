"""A small config.json of each type has the parameters of its transformers class, as is and with all defaults written out."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.types import SUPPORTED

PlanModel = Callable[..., Plan]
Config = dict[str, Any]

# Odd small sizes, different for all matrices; with few keys, so that the class's defaults apply, and with each switch flipped.
FILE = Path(__file__).parent.parent / "data" / "twins.jsonl"
CONFIGS: list[Config] = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
TWINS = {model_type: list(configs) for model_type, configs in groupby(CONFIGS, key=lambda config: config["model_type"])}
# Published with their own code; kimi_k2 is DeepSeek-V3, and two are MiniMax under other names.
WITHOUT_CLASS = {
    "baichuan", "chatglm", "deepseek", "internlm", "internlm2", "kimi_k2", "minicpm", "minimax_m1", "minimax_text_01", "orion", "qwen",
}  # fmt: skip
# Text models that transformers only builds together with a vision model.
PARTS = {
    "glm4v_moe_text": "Glm4vMoeTextModel",
    "qwen2_5_vl_text": "Qwen2_5_VLTextModel",
    "qwen2_vl_text": "Qwen2VLTextModel",
    "qwen3_vl_moe_text": "Qwen3VLMoeTextModel",
    "qwen3_vl_text": "Qwen3VLTextModel",
}
NOT_AUTOMATIC = {"mistral4": "Mistral4ForCausalLM"}  # the text model of another


def built(hf_config: Any) -> int:  # noqa: ANN401 - a configuration of transformers, which has no types here
    """Return the number of parameters that the class of transformers makes."""
    import torch
    import transformers

    automatic: Any = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        if hf_config.model_type in NOT_AUTOMATIC:
            module = getattr(transformers, NOT_AUTOMATIC[hf_config.model_type])(hf_config)
        else:
            module = automatic.from_config(hf_config)
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("model_type", TWINS)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_config_has_the_parameters_of_its_class(model_type: str, plan_model: PlanModel) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def counted(config: Config) -> int:
        imported = read_huggingface(config)
        return plan_model(imported.model, **imported.training).parameters.total

    for config in TWINS[model_type]:
        hf_config = transformers.AutoConfig.for_model(**config)
        right = built(hf_config)
        assert counted(config) == right, config
        assert counted(hf_config.to_dict()) == right, config


def test_every_type_is_compared_with_transformers_or_has_no_class() -> None:
    assert set(TWINS) | WITHOUT_CLASS | set(PARTS) == set(SUPPORTED)
    assert not set(TWINS) & WITHOUT_CLASS


@pytest.mark.parametrize("model_type", PARTS)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_text_part_has_the_parameters_of_its_class_and_an_lm_head(model_type: str, plan_model: PlanModel) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 97}
    experts = {"num_experts": 5, "n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
    config = small | {"intermediate_size": 80, "tie_word_embeddings": False} | (experts if "moe" in model_type else {})
    if model_type == "glm4v_moe_text":
        del config["num_experts"]
    else:
        config.pop("n_routed_experts", None)
    with torch.device("meta"):
        module = getattr(transformers.models, model_type.removesuffix("_text"))
        module = getattr(module, f"modeling_{model_type.removesuffix('_text')}")
        module = getattr(module, PARTS[model_type])(transformers.AutoConfig.for_model(model_type, **config))
    right = sum(parameter.numel() for parameter in module.parameters()) + 97 * 48
    assert plan_model(read_huggingface({"model_type": model_type, **config}).model).parameters.total == right
