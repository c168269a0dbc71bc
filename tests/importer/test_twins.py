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
    "baichuan", "chatglm", "deepseek", "internlm", "internlm2", "kimi_k2", "mimo", "minicpm", "minimax_m1", "minimax_text_01", "molmo",
    "nemotron-nas", "orion", "qwen",
}  # fmt: skip
# Text models that transformers only builds together with a model of images or sound: tests/importer/test_composites.py.
PARTS = {
    "ernie4_5_vl_moe_text", "glm4v_moe_text", "glm4v_text", "glm_ocr_text", "mllama_text_model", "molmo2_text", "phi4_multimodal",
    "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text", "qwen3_omni_moe_text", "qwen3_vl_moe_text", "qwen3_vl_text", "step3p5",
}  # fmt: skip
NOT_AUTOMATIC = {"mistral4": "Mistral4ForCausalLM"}  # the text model of another


def built(hf_config: Any) -> int:  # noqa: ANN401 - a configuration of transformers, which has no types here
    """Return the number of parameters that the class of transformers makes."""
    import torch
    import transformers

    automatic: Any = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        if hf_config.architectures:  # of encoders, which have several heads
            module = getattr(transformers, hf_config.architectures[0])(hf_config)
        elif hf_config.model_type in NOT_AUTOMATIC:
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
    assert set(TWINS) | WITHOUT_CLASS | PARTS == set(SUPPORTED)
    assert not set(TWINS) & WITHOUT_CLASS
