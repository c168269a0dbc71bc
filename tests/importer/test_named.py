"""Files of fine-tuning programs, which name a model of the Hub and state how it is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli.program import main
from planner.importer.convert import as_spec
from planner.importer.formats import FORMATS
from planner.importer.listing import keys_text
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.recognize import read_config
from planner.importer.syntax import parsed
from planner.spec.nodes import Source

# The settings of axolotl's examples/llama-3/fft-8b.yaml of 2026. bf16: auto loads the weights in bfloat16.
AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3.1-8B
model_type: LlamaForCausalLM
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
val_set_size: 0.05
sequence_len: 8192
sample_packing: true
wandb_project:
gradient_accumulation_steps: 8
micro_batch_size: 1
num_epochs: 1
optimizer: paged_adamw_8bit
lr_scheduler: cosine
learning_rate: 2e-5
bf16: auto
tf32: false
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
attn_implementation: flash_attention_2
special_tokens:
  pad_token: <|end_of_text|>
"""
# LLaMA-Factory's examples/train_full/llama3_full_sft.yaml: bf16 means autocast over weights that are cast to float32.
LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
dataset: identity,alpaca_en_demo
template: llama3
cutoff_len: 2048
max_samples: 1000
preprocessing_num_workers: 16
output_dir: saves/llama3-8b/full/sft
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
"""
# torchtune's recipes/configs/llama3_2/1B_full_single_device.yaml: dtype bf16 is everything in bfloat16.
TORCHTUNE = """\
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/Llama-3.2-1B-Instruct/original/tokenizer.model
  max_seq_len: null
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  packed: False
seed: null
shuffle: True
model:
  _component_: torchtune.models.llama3_2.llama3_2_1b
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_files: [model.safetensors]
batch_size: 4
epochs: 1
optimizer:
  _component_: bitsandbytes.optim.PagedAdamW8bit
  lr: 2e-5
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
gradient_accumulation_steps: 1
optimizer_in_bwd: False
compile: False
device: cuda
enable_activation_checkpointing: False
dtype: bf16
"""
# TRL's examples/cli_configs/example_config.yaml: the rest are the defaults of SFTConfig and ModelConfig.
TRL = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: stanfordnlp/imdb
report_to: none
learning_rate: 0.0001
lr_scheduler_type: cosine
"""


def read(text: str, **changed: object) -> Imported:
    return read_config(json.dumps({**parsed(text, "x.yaml"), **changed}) if changed else text, "x.yaml")


def refusal(text: str, **changed: object) -> str:
    with pytest.raises(UnsupportedConfigError) as raised:
        read(text, **changed)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "model", "training"),
    [
        (AXOLOTL, "llama-3.1-8b", {
            "batch_size": 1, "sequence_length": 8192, "gradient_accumulation": 8, "precision": "bf16", "optimizer": "adamw-8bit",
            "paged": True, "recompute": "full", "implementation": "transformers",
        }),
        (LLAMA_FACTORY, "llama-3-8b", {
            "batch_size": 1, "sequence_length": 2048, "gradient_accumulation": 2, "precision": "bf16-autocast", "optimizer": "adamw",
            "optimizer_kernel": "fused", "recompute": "full", "reentrant": True, "implementation": "transformers",
        }),
        (TORCHTUNE, "llama-3.2-1b", {
            "batch_size": 4, "gradient_accumulation": 1, "precision": "bf16", "optimizer": "adamw-8bit", "paged": True,
            "implementation": "pytorch",
        }),
        (TRL, "qwen2.5-0.5b", {
            "batch_size": 8, "sequence_length": 1024, "gradient_accumulation": 1, "precision": "bf16-autocast", "optimizer": "adamw",
            "optimizer_kernel": "fused", "recompute": "full", "implementation": "transformers", "padding": True,
        }),
    ],
    ids=["axolotl", "LLaMA-Factory", "torchtune", "TRL"],
)  # fmt: skip
def test_the_published_examples(text: str, model: str, training: dict[str, Any]) -> None:
    imported = read(text)
    assert imported.extends == model
    assert imported.training == training
    assert not imported.not_understood


def test_the_spec_extends_the_model_and_can_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sft.yaml").write_text(LLAMA_FACTORY, encoding="utf-8")
    assert main(["import", str(tmp_path / "sft.yaml"), "-o", str(tmp_path / "mine.yaml")]) == 0
    assert "not counted: division among devices" in capsys.readouterr().err
    text = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert "extends: catalog/llama-3-8b\n" in text
    assert "  gradient_accumulation: 2  # gradient_accumulation_steps\n" in text
    assert "  optimizer: adamw  # not in the file; default of LLaMA-Factory\n" in text
    spec = planner.load(tmp_path / "mine.yaml")
    plan = planner.plan(spec)
    assert plan.parameters.total == 8_030_261_248
    # Weights, gradients and two moments in float32.
    assert sum(state.total_bytes for state in plan.memory.states) == 16 * 8_030_261_248
    assert any("(deepspeed)" in part for part in spec.omits)


def test_a_json_file_is_planned_directly() -> None:
    text = json.dumps({"model_name_or_path": "Qwen/Qwen3-4B-Instruct-2507", "max_length": 4096, "packing": True})
    assert "extends: catalog/qwen3-4b\n" in as_spec(Source("sft.json", text)).text
    assert as_spec(Source("sft.json", text)).file == "sft.json"


@pytest.mark.parametrize("text", [AXOLOTL, LLAMA_FACTORY, TORCHTUNE, TRL])
def test_a_yaml_file_is_planned_directly(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sft.yaml").write_text(text, encoding="utf-8")
    assert main(["validate", str(tmp_path / "sft.yaml")]) == 0
    assert not capsys.readouterr().out.startswith("error")


def test_yaml_that_no_program_has_stays_a_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("model: {vocab_size: 8}\n", encoding="utf-8")
    assert main(["validate", str(tmp_path / "x.yaml")]) == 1
    assert "missing required key 'name'" in capsys.readouterr().err


# How each program chooses data types: see the functions' docstrings for the places in their sources.
@pytest.mark.parametrize(
    ("text", "changed", "precision"),
    [
        (AXOLOTL, {"bf16": True}, "bf16"),
        (AXOLOTL, {"bf16": "full"}, "bf16"),
        (AXOLOTL, {"bf16": False}, "fp32"),
        (AXOLOTL, {"bf16": False, "bfloat16": True}, "bf16"),
        (LLAMA_FACTORY, {"bf16": False}, "fp32"),
        (LLAMA_FACTORY, {"bf16": False, "fp16": True}, "fp16-autocast"),
        (LLAMA_FACTORY, {"bf16": False, "pure_bf16": True}, "bf16"),
        (TORCHTUNE, {"dtype": "fp32"}, "fp32"),
        (TRL, {"bf16": False}, "fp32"),
        (TRL, {"fp16": True}, "fp16-autocast"),
        (TRL, {"dtype": "bfloat16"}, "bf16"),
    ],
)
def test_precision(text: str, changed: dict[str, Any], precision: str) -> None:
    assert read(text, **changed).training["precision"] == precision


def test_autocast_over_bfloat16_weights_is_stated() -> None:
    assert any(part.startswith("autocast over bfloat16 weights") for part in read(AXOLOTL).omits)
    assert not any(part.startswith("autocast") for part in read(AXOLOTL, bf16="full").omits)
    assert not any(part.startswith("autocast") for part in read(LLAMA_FACTORY).omits)


@pytest.mark.parametrize(
    ("text", "changed", "training"),
    [
        (AXOLOTL, {"optimizer": "paged_adamw_32bit"}, {"optimizer": "adamw-32bit", "paged": True}),
        (AXOLOTL, {"optimizer": "lion_8bit"}, {"optimizer": "lion-8bit", "paged": None}),
        (AXOLOTL, {"optimizer": "adamw_torch_4bit"}, {"optimizer": "adamw-4bit", "paged": None}),
        (LLAMA_FACTORY, {"optim": "paged_ademamix_8bit"}, {"optimizer": "ademamix-8bit", "paged": True}),
        (LLAMA_FACTORY, {"use_muon": True, "optim": "paged_adamw_8bit"}, {"optimizer": "muon", "paged": None}),
        (TORCHTUNE, {"optimizer_in_bwd": True}, {"optimizer": "adamw-8bit", "paged": True, "optimizer_in_backward": True}),
        (TORCHTUNE, {"optimizer": {"_component_": "torchao.optim.AdamW4bit"}}, {"optimizer": "adamw-4bit", "optimizer_kernel": None}),
    ],
)
def test_optimizers(text: str, changed: dict[str, Any], training: dict[str, Any]) -> None:
    imported = read(text, **changed)
    assert {key: imported.training.get(key) for key in training} == training


@pytest.mark.parametrize(
    ("text", "changed", "reason"),
    [
        (AXOLOTL, {"relora": True}, "`relora: True`: adapters are not planned yet; the model alone: planner show llama-3.1-8b"),
        (AXOLOTL, {"load_in_4bit": True}, "`load_in_4bit` and `adapter: qlora` require each other"),
        (AXOLOTL, {"unfrozen_parameters": ["^lm_head"]}, "training of a part of the weights is not planned yet"),
        (AXOLOTL, {"rl": "dpo"}, "`rl: 'dpo'`: only training on the next token is planned"),
        (AXOLOTL, {"fp16": True}, "`fp16`: gradient scaling of float16 weights is not planned"),
        (AXOLOTL, {"optimizer": "galore_adamw"}, "`optimizer: 'galore_adamw'` is not supported"),
        (AXOLOTL, {"base_model": "a/b"}, "the catalog has no 'a/b', and nothing is downloaded; import its config.json"),
        (AXOLOTL, {"extra_hidden_layers": 2}, "unsupported key `extra_hidden_layers: 2`"),
        (LLAMA_FACTORY, {"finetuning_type": "oft"}, "`finetuning_type: 'oft'`: training of a part of the weights is not planned yet"),
        (LLAMA_FACTORY, {"stage": "dpo"}, "`stage: 'dpo'`: only training on the next token is planned"),
        (LLAMA_FACTORY, {"do_train": False}, "`do_train` is not on, so that nothing is trained"),
        (LLAMA_FACTORY, {"use_galore": True}, "the states of this optimizer are not planned"),
        (TORCHTUNE, {"dtype": "fp16"}, "`dtype: 'fp16'` is not supported"),
        (TORCHTUNE, {"model": {"_component_": "torchtune.models.llama3_2.qlora_llama3_2_1b"}}, "packed weights of torchao are not planned"),
        (TORCHTUNE, {"model": {"_component_": "torchtune.models.llama3_2.llama3_2_1b", "tie": 1}}, "`model.tie`: changes of the published"),
        (TORCHTUNE, {"loss": {"_component_": "torchtune.rlhf.loss.DPOLoss"}}, "`loss._component_: DPOLoss`: only training on the next"),
        (TRL, {"load_in_8bit": True}, "quantized weights are not planned yet; the model alone: planner show qwen2.5-0.5b"),
        (TRL, {"num_generations": 8}, "only training on the next token is planned"),
        (TRL, {"dtype": "auto"}, "`dtype: 'auto'` is not planned; supported: float32, bfloat16"),
    ],
)
def test_what_is_refused(text: str, changed: dict[str, Any], reason: str) -> None:
    assert reason in refusal(text, **changed)


@pytest.mark.parametrize(
    ("text", "changed", "part"),
    [
        (AXOLOTL, {"fsdp_config": {"x": 1}, "tensor_parallel_size": 2}, "one device without them (fsdp_config, tensor_parallel_size)"),
        (AXOLOTL, {"cut_cross_entropy": True}, "kernels other than the implementation's (cut_cross_entropy)"),
        (AXOLOTL, {"liger_layer_norm": True}, "kernels other than the implementation's (liger_layer_norm)"),
        (
            TRL,
            {"use_liger_kernel": True, "model_name_or_path": "microsoft/phi-2"},
            "kernels other than the implementation's (those of liger-kernel for class phi)",
        ),
        (TORCHTUNE, {}, "samples longer than the catalog's sequence length"),
        (TORCHTUNE, {"compile": True}, "compilation (compile)"),
        (TRL, {}, "a loss computed in chunks"),
        (TRL, {"max_length": None}, "samples longer than the catalog's sequence length"),
        (TRL, {"attn_implementation": "flex_attention"}, "kernels other than the implementation's (attn_implementation: flex_attention)"),
        (TRL, {"model_name_or_path": "google/gemma-3-4b-it"}, "vision tower and projector"),
    ],
)
def test_what_is_left_out_is_stated(text: str, changed: dict[str, Any], part: str) -> None:
    assert any(part in one for one in read(text, **changed).omits)


def test_switches_that_are_off_are_not_stated() -> None:
    off = {"tensor_parallel_size": 1, "deepspeed": None, "liger_rms_norm": False, "adapter": None, "load_in_8bit": False}
    assert read(AXOLOTL, **off).omits == read(AXOLOTL).omits


@pytest.mark.parametrize(
    ("text", "changed", "liger"),
    [
        # Trainer passes liger_kernel_config to the package, which drops switches that the class does not have.
        (TRL, {"use_liger_kernel": True}, True),
        (TRL, {"use_liger_kernel": True, "liger_kernel_config": {"rope": False, "geglu": True, "x": True}}, {"rope": False}),
        (TRL, {"use_liger_kernel": False, "liger_kernel_config": {"rope": False}}, None),
        (LLAMA_FACTORY, {"enable_liger_kernel": True}, True),
        # axolotl 0.18, integrations/liger/plugin.py: switches that are not on are off
        (
            AXOLOTL,
            {"liger_rms_norm": True, "liger_glu_activation": True},
            {"rope": False, "rms_norm": True, "swiglu": True, "cross_entropy": False, "fused_linear_cross_entropy": False},
        ),
        (AXOLOTL, {"liger_rms_norm": False}, None),
    ],
)
def test_the_kernels_of_liger_are_read(text: str, changed: dict[str, Any], liger: object) -> None:
    assert read(text, **changed).training.get("liger") == liger


def test_two_losses_of_liger_are_rejected() -> None:
    both = {"cross_entropy": True, "fused_linear_cross_entropy": True}
    assert "liger.cross_entropy requires" in refusal(TRL, use_liger_kernel=True, liger_kernel_config=both)


def test_accumulation_of_axolotl_can_follow_from_the_whole_batch() -> None:
    # utils/config/__init__.py: gradient_accumulation_steps or batch_size // micro_batch_size
    changed = {"gradient_accumulation_steps": None, "batch_size": 12, "micro_batch_size": 3}
    assert read(AXOLOTL, **changed).training["gradient_accumulation"] == 4


@pytest.mark.parametrize(
    ("function", "model"),
    [
        ("llama3_1.llama3_1_8b", "llama-3.1-8b"), ("qwen2_5.qwen2_5_1_5b_base", "qwen2.5-1.5b"), ("qwen3.qwen3_4b_instruct", "qwen3-4b"),
        ("qwen3.qwen3_32b", "qwen3-32b"), ("gemma.gemma_7b", "gemma-7b"), ("phi3.phi3_mini", "phi-3-mini-4k-instruct"),
        ("qwen2.qwen2_1_5b", "qwen2.5-1.5b"), ("mistral.mistral_7b", "mistral-7b-v0.1"),
    ],
)  # fmt: skip
def test_functions_of_torchtune(function: str, model: str) -> None:
    assert read(TORCHTUNE, model={"_component_": f"torchtune.models.{function}"}).extends == model


def test_soft_capped_scores_are_planned_with_eager_attention() -> None:
    assert read(TRL, model_name_or_path="google/gemma-2-9b").training["implementation"] == "transformers-eager"


def test_the_keys_of_each_program_are_printed() -> None:
    names = [name for one in FORMATS if one.name in ("axolotl", "LLaMA-Factory", "torchtune", "TRL") for name in one.rows]
    assert names == ["axolotl", "torchtune", "llama-factory", "trl"]
    for name in names:
        assert "training.batch_size" in keys_text(name)


def test_offloading_is_planned_if_every_layer_is_recomputed() -> None:
    assert read(TRL, activation_offloading=True).training["offload_activations"]
    assert read(TORCHTUNE, enable_activation_offloading=True, enable_activation_checkpointing=True).training["offload_activations"]
    kept = read(TORCHTUNE, enable_activation_offloading=True)
    assert "offload_activations" not in kept.training
    assert any("offloading of activations to the host (enable_activation_offloading)" in line for line in kept.omits)
