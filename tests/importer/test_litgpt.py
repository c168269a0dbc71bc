"""LitGPT's configurations: the parameters of its classes, its windows and soft caps, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.capacity.figures import Plan
from planner.importer.reader import UnsupportedConfigError
from planner.importer.recognize import read_config
from planner.importer.write import spec_text

PlanModel = Callable[..., Plan]
Config = dict[str, Any]

SMALL: Config = {"block_size": 64, "n_layer": 4, "n_embd": 48, "n_head": 6, "vocab_size": 97, "padding_multiple": 8}
RMS: Config = {"norm_class_name": "RMSNorm"}
EXPERTS: Config = {
    **RMS, "mlp_class_name": "LLaMAMoE", "intermediate_size": 80, "moe_intermediate_size": 20, "n_expert": 4, "n_expert_per_token": 2,
    "n_shared_expert": 1,
}  # fmt: skip
GROUPS: Config = {"n_expert_groups": 2, "n_topk_groups": 1, "n_topk_scores_per_group": 1}
AFTER: Config = {
    "norm_1": False, "norm_2": False, "post_attention_norm": True, "post_mlp_norm": True, "parallel_residual": False,
}  # fmt: skip
GEMMA: Config = {
    **RMS, "name": "Gemma-2", "n_query_groups": 2, "head_size": 10, "mlp_class_name": "GemmaMLP", "norm_qk": True, "bias": False,
    "attn_bias": True,
}  # fmt: skip


def read(config: Config) -> Any:  # noqa: ANN401 - an import
    return read_config(json.dumps(SMALL | config), "lit_config.json")


# The parameters of litgpt 0.5.13's class GPT, built from its class Config on the meta device.
@pytest.mark.parametrize(
    ("config", "right"),
    [
        ({}, 123_168),
        ({"name": "OLMo-1B-hf"}, 122_304),  # norms without weights, by the name: 9 norms of 2·48 fewer
        ({"hf_config": {"org": "allenai", "name": "OLMo-1B-hf"}}, 122_304),
        ({"bias": None}, 121_440),  # null is false
        (AFTER, 123_168),
        (GEMMA, 152_208),
        ({**RMS, "norm_qk": True, "norm_qk_type": "olmo2"}, 123_120),
        ({"shared_attention_norm": True, "lm_head_bias": True, "padded_vocab_size": 100}, 122_500),
        (EXPERTS, 108_176),  # experts have biases, too
        ({**EXPERTS, **GROUPS, "first_k_dense_replace": 1, "bias": False}, 102_576),
        ({"_mlp_class": "LLaMAMLP", "_norm_class": "RMSNorm", "intermediate_size": 80, "bias": False}, 93_360),  # lit-gpt in 2023
    ],
)  # fmt: skip
def test_a_configuration_has_the_parameters_of_litgpts_class(config: Config, right: int, plan_model: PlanModel) -> None:
    imported = read(config)
    assert plan_model(imported.model, **imported.training).parameters.total == right


# litgpt 0.5.13: layers marked with a 1 have a window; without a list, all. 0.5.0: `interleaved` is every second layer, from the first on.
@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({"sliding_window_indices": [1, 1, 0, 1, 0]}, [16, 16, None, 16]),
        ({}, [16, 16, 16, 16]),
        ({"sliding_window_layer_placing": "interleaved"}, [16, None, 16, None]),
        ({"sliding_window_layer_placing": 2}, [16, None, 16, None]),
        ({"sliding_window_layer_stride": 3}, [16, None, None, 16]),
        ({"sliding_window_size": None, "sliding_window_indices": [1, 1, 0, 1]}, [None] * 4),
    ],
)  # fmt: skip
def test_a_window_is_in_the_layers_that_litgpt_gives_it(config: Config, windows: list[int | None], tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(spec_text(read({"sliding_window_size": 16} | config), "small"), encoding="utf-8")
    runs = planner.load(path).model.runs
    attentions = [layer.attention for run in runs for layer in run.layers * run.count]
    assert [attention and attention.window for attention in attentions] == windows


def test_soft_caps_are_read_and_the_scores_capped_in_separate_operators() -> None:
    imported = read({"attention_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})
    assert (imported.model["attention"]["logit_softcap"], imported.model["head"]["logit_softcap"]) == (50.0, 30.0)
    assert imported.training["implementation"] == "pytorch-eager"


def test_the_norm_is_chosen_by_the_name_as_in_litgpt() -> None:
    assert read(GEMMA).model["norm"]["unit_offset"] is True
    assert "unit_offset" not in read(GEMMA | {"name": "gemma"}).model["norm"]
    assert read({"name": "OLMo-1B-hf"}).model["norm"]["weight"] is False


# The router of experts in groups: sigmoid scores and a correction bias (GroupedTopkRouter); otherwise softmax over the chosen ones.
def test_groups_of_experts_have_deepseeks_router() -> None:
    assert read(EXPERTS).model["experts"]["scoring"] == "softmax"
    experts = read({**EXPERTS, **GROUPS}).model["experts"]
    assert (experts["scoring"], experts["correction_bias"], experts["normalize"]) == ("sigmoid", "buffer", False)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"latent_attention": {"q_lora_rank": 8}}, "`latent_attention: {'q_lora_rank': 8}` is not supported"),
        ({"norm_qk": True}, "`norm_qk` with LayerNorm"),
        ({"norm_1": False}, "norms before or after only one of attention and feed-forward"),
        ({"shared_attention_norm": True, "parallel_residual": False}, "`shared_attention_norm` without `parallel_residual`"),
        ({"mlp_class_name": "LLaMAMLP"}, "`intermediate_size` is missing"),
        ({"sliding_window_size": 16, "sliding_window_indices": [1, 0]}, "must be a list with an entry for each of 4 layers"),
        ({"sliding_window_size": 16, "sliding_window_layer_placing": "others"}, "`sliding_window_layer_placing: 'others'` is not"),
        ({"norm_class_name": "RMSNorm", "_norm_class": "LayerNorm"}, "disagree"),
        ({**EXPERTS, "n_expert_per_token": 5}, "`n_expert_per_token: 5` is more than the 4 experts"),
        ({"n_kv_lora": 8}, "unsupported key `n_kv_lora: 8`, which may change the parameter count"),
    ],
)  # fmt: skip
def test_what_may_change_a_count_and_is_not_read_is_refused(config: Config, message: str) -> None:
    config = {"rotary_percentage": 0.25} | config
    with pytest.raises(UnsupportedConfigError) as refused:
        read(config)
    assert message in str(refused.value)


def test_a_key_that_changes_no_count_is_only_listed() -> None:
    assert read({"rope_adjustments": {"factor": 8.0}, "nef": True}).not_understood == ("nef",)


# config_hub/pretrain/tinystories.yaml of litgpt 0.5.13, without settings that change nothing.
STORIES = """\
model_name: stories15M
model_config:
  name: stories15M
  hf_config: {}
  block_size: 256
  padded_vocab_size: 32000
  n_layer: 6
  n_head: 6
  n_query_groups: 6
  n_embd: 288
  head_size: 48
  rotary_percentage: 1.0
  parallel_residual: false
  bias: false
  norm_class_name: RMSNorm
  mlp_class_name: LLaMAMLP
  intermediate_size: 768
precision: bf16-mixed
data: TinyStories
train:
  global_batch_size: 512
  micro_batch_size: 128
  max_tokens: 9700000000
  max_seq_length: 256
  tie_embeddings: true
eval: {interval: 2000}
optimizer:
  class_path: torch.optim.AdamW
  init_args: {lr: 0.0005}
devices: auto
num_nodes: 1
"""


def test_a_file_of_pretraining_has_the_parameters_of_its_model(plan_model: PlanModel) -> None:
    imported = read_config(STORIES, "tinystories.yaml")
    assert imported.not_understood == ()
    # stories15M: 32000·288, tied + 6·(4·288² + 3·288·768 + 2·288) + 288
    assert plan_model(imported.model).parameters.total == 15_191_712
    assert imported.training == {
        "batch_size": 128, "sequence_length": 256, "gradient_accumulation": 4, "tokens": 9_700_000_000, "precision": "bf16-autocast",
        "optimizer": "adamw",
    }  # fmt: skip


# TrainArgs.gradient_accumulation_iters: 512 sequences over 2 · 2 devices, 32 at a time; pretrain's own defaults are 4 and 3e12.
def test_passes_per_step_are_those_of_one_device() -> None:
    on_four = STORIES.replace("devices: auto", "devices: 2").replace("num_nodes: 1", "num_nodes: 2").replace("_size: 128", "_size: 32")
    assert read_config(on_four, "x.yaml").training["gradient_accumulation"] == 4
    training = read_config(json.dumps({"model_config": SMALL, "train": {}}), "x.json").training
    assert training == {"batch_size": 4, "gradient_accumulation": 128, "tokens": 3 * 10**12}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bf16-mixed", "transformer-engine", "`precision: 'transformer-engine'` is not supported"),
        ("AdamW", "Adagrad", "`optimizer: 'torch.optim.Adagrad'` is not supported"),
        ("tie_embeddings", "tie_heads", "unsupported key `train.tie_heads: True`"),
        (STORIES[STORIES.index("  name") : STORIES.index("precision")], "", "LitGPT has the sizes of 'stories15M' in a table"),
    ],
    ids=["precision", "optimizer", "unknown", "name"],
)
def test_a_file_of_pretraining_is_refused_by_name(old: str, new: str, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        read_config(STORIES.replace(old, new), "x.yaml")
    assert message in str(refused.value)
