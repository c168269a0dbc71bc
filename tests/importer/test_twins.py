"""A small config.json of each type means what the class of transformers builds from it: with what it says, and said in full."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from planner.capacity.records import Plan
from planner.spec.importer import SUPPORTED, read_huggingface

PlanModel = Callable[..., Plan]
Config = dict[str, Any]

# Odd small sizes, so that no two matrices have the same; with little said, to lean on the class's defaults, and with each switch turned.
FILE = Path(__file__).parent.parent / "data" / "twins.jsonl"
CONFIGS: list[Config] = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
TWINS = {model_type: list(configs) for model_type, configs in groupby(CONFIGS, key=lambda config: config["model_type"])}
# Published with code of their own; kimi_k2 is DeepSeek-V3's class under another name.
WITHOUT_CLASS = {"baichuan", "deepseek", "internlm", "internlm2", "kimi_k2", "minicpm", "orion", "qwen"}
NOT_AUTOMATIC = {"mistral4": "Mistral4ForCausalLM"}  # the text model of another


@pytest.mark.parametrize("model_type", TWINS)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_config_means_what_its_class_builds(model_type: str, plan_model: PlanModel) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def counted(config: Config) -> int:
        imported = read_huggingface(config)
        return plan_model(imported.model, **imported.training).parameters.total

    for config in TWINS[model_type]:
        hf_config = transformers.AutoConfig.for_model(**config)
        with torch.device("meta"):
            if model_type in NOT_AUTOMATIC:
                module = getattr(transformers, NOT_AUTOMATIC[model_type])(hf_config)
            else:
                module = transformers.AutoModelForCausalLM.from_config(hf_config)
        right = sum(parameter.numel() for parameter in module.parameters())
        assert counted(config) == right, config
        assert counted(hf_config.to_dict()) == right, config


def test_every_type_is_tried_against_transformers_or_has_no_class() -> None:
    assert set(TWINS) | WITHOUT_CLASS == set(SUPPORTED)
    assert not set(TWINS) & WITHOUT_CLASS
