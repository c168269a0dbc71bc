"""Files of fine-tuning programs with adapters and packed weights."""

from __future__ import annotations

import json
from typing import Any

import pytest

import planner
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.recognize import read_config
from planner.importer.syntax import parsed

# LLaMA-Factory's examples/train_lora/llama3_lora_sft.yaml, and axolotl's examples/llama-3/lora-8b.yml.
LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
template: llama3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3-8B
load_in_8bit: false
sequence_len: 4096
adapter: lora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: adamw_bnb_8bit
bf16: auto
gradient_checkpointing: true
"""
# torchtune's recipes/configs/llama3_1/8B_lora_single_device.yaml
TORCHTUNE = """\
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  apply_lora_to_output: False
  lora_rank: 8
  lora_alpha: 16
  lora_dropout: 0.0
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 4096
batch_size: 2
optimizer:
  _component_: torch.optim.AdamW
  fused: True
loss:
  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss
gradient_accumulation_steps: 8
enable_activation_checkpointing: True
dtype: bf16
"""
TRL = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B
dataset_name: trl-lib/Capybara
use_peft: true
"""
# The in and out sizes of the linears of a layer of Llama 3 8B, of which it has 32.
SIZES = {"q": 4096 + 4096, "k": 4096 + 1024, "v": 4096 + 1024, "o": 4096 + 4096, "gate": 4096 + 14336, "up": 4096 + 14336}
SIZES["down"] = SIZES["up"]


def read(text: str, changes: dict[str, Any]) -> Imported:
    return read_config(json.dumps({**parsed(text, "x.yaml"), **changes}), "x.yaml")


def adapters(*linears: str, rank: int) -> int:
    return 32 * rank * sum(SIZES[one] for one in linears)


@pytest.mark.parametrize(
    ("text", "changes", "trained"),
    [
        (LLAMA_FACTORY, {}, 20_971_520),  # as LLaMA-Factory prints it
        (LLAMA_FACTORY, {"finetuning_type": None, "lora_target": None, "lora_rank": None}, 20_971_520),
        (LLAMA_FACTORY, {"lora_target": "q_proj,v_proj"}, adapters("q", "v", rank=8)),
        (AXOLOTL, {}, 83_886_080),  # as axolotl prints it
        (AXOLOTL, {"lora_target_linear": None, "lora_target_modules": ["q_proj", "o_proj"]}, adapters("q", "o", rank=32)),
        (AXOLOTL, {"peft_layers_to_transform": [30, 31]}, 83_886_080 // 16),
        (TORCHTUNE, {}, adapters("q", "v", "o", "gate", "up", "down", rank=8)),
        (TRL, {}, adapters("q", "v", rank=16)),  # peft's linears of class llama, TRL's rank
        (TRL, {"lora_target_modules": "all-linear", "lora_r": 8}, 20_971_520),
    ],
)
def test_adapters_of_programs(text: str, changes: dict[str, Any], trained: int) -> None:
    imported = read(text, changes)
    assert not imported.not_understood
    plan = planner.plan(planner.load({"name": "tuned", "extends": f"catalog/{imported.extends}", "training": imported.training}))
    assert plan.parameters.trained == trained


@pytest.mark.parametrize(
    ("text", "changes", "training"),
    [
        # bfloat16 weights under autocast, adapters in float32; recomputation is reentrant by default
        (LLAMA_FACTORY, {}, {"precision": "bf16-autocast", "base": {"dtype": "bf16"}, "reentrant": True}),
        (
            LLAMA_FACTORY,
            {"bf16": False, "pure_bf16": True, "use_reentrant_gc": False},
            {"precision": "bf16", "base": None, "reentrant": None},
        ),
        (LLAMA_FACTORY, {"quantization_bit": 4}, {"base": {"format": "nf4", "double_quant": True, "dtype": "bf16"}}),
        (
            LLAMA_FACTORY,
            {"quantization_bit": 4, "double_quantization": False, "bf16": False, "fp16": True},
            {"precision": "fp16-autocast", "base": {"format": "nf4", "double_quant": False, "compute_dtype": "fp16", "dtype": "fp16"}},
        ),
        (AXOLOTL, {}, {"precision": "bf16-autocast", "base": {"dtype": "bf16"}, "reentrant": True}),
        (AXOLOTL, {"gradient_checkpointing_kwargs": {"use_reentrant": False}}, {"recompute": "full", "reentrant": None}),
        (AXOLOTL, {}, {"padding": True}),
        (AXOLOTL, {"sample_packing": True}, {"padding": None}),
        (AXOLOTL, {"attn_implementation": "flash_attention_2"}, {"padding": None}),
        (LLAMA_FACTORY, {}, {"padding": None}),  # one sample
        (LLAMA_FACTORY, {"per_device_train_batch_size": 4}, {"padding": True}),
        (LLAMA_FACTORY, {"per_device_train_batch_size": 4, "packing": True}, {"padding": None}),
        (TORCHTUNE, {}, {"padding": None}),  # whose collator makes no mask
        (AXOLOTL, {"bf16": "full"}, {"precision": "bf16", "base": None}),
        (
            AXOLOTL,
            {"adapter": "qlora", "load_in_4bit": True},
            {"base": {"format": "nf4", "double_quant": True, "dtype": "bf16"}},
        ),
        (TORCHTUNE, {}, {"precision": "bf16", "implementation": "pytorch", "base": None}),
        (TRL, {}, {"precision": "bf16-autocast", "base": None, "reentrant": None}),  # float32 weights
        (TRL, {"dtype": "bfloat16"}, {"precision": "bf16-autocast", "base": {"dtype": "bf16"}}),
        (
            TRL,
            {"dtype": "bfloat16", "load_in_4bit": True},  # whose adapters TRL casts to bfloat16
            {
                "adapters": {"rank": 16, "type": "lora", "targets": ["q_proj", "v_proj"], "dropout": 0.05, "dtype": "base"},
                "base": {"format": "nf4", "double_quant": False, "dtype": "bf16"},
            },
        ),
    ],
)
def test_data_types_and_recomputation(text: str, changes: dict[str, Any], training: dict[str, Any]) -> None:
    found = read(text, changes).training
    assert {key: found.get(key) for key in training} == training


@pytest.mark.parametrize(
    ("text", "changes", "omits"),
    [
        (AXOLOTL, {}, "(those of adapters, which are on by default)"),
        (AXOLOTL, {"lora_mlp_kernel": True}, "(lora_mlp_kernel)"),
        (AXOLOTL, {"lora_mlp_kernel": False}, ""),
    ],
)
def test_kernels_of_adapters_are_omitted(text: str, changes: dict[str, Any], omits: str) -> None:
    found = [one for one in read(text, changes).omits if one.startswith("kernels")]
    assert [one.partition("implementation's ")[2] for one in found] == ([omits] if omits else [])


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (LLAMA_FACTORY, {"quantization_bit": 8}, "`quantization_bit: 8` is not planned; supported: 4 of bnb"),
        (LLAMA_FACTORY, {"quantization_bit": 4, "quantization_method": "hqq"}, "`quantization_bit: 4` of hqq is not planned"),
        (LLAMA_FACTORY, {"additional_target": "lm_head"}, "copies in float32 beside 16-bit weights are not planned"),
        (LLAMA_FACTORY, {"finetuning_type": "freeze"}, "training of a part of the weights is not planned yet"),
        (LLAMA_FACTORY, {"finetuning_type": "full", "quantization_bit": 4}, "`quantization_bit` requires `finetuning_type: lora`"),
        (LLAMA_FACTORY, {"lora_target": "q_proj,lm_head"}, "adapters of the LM head are not planned yet"),
        (AXOLOTL, {"adapter": "qlora"}, "`load_in_4bit` and `adapter: qlora` require each other"),
        (AXOLOTL, {"adapter": "llama-adapter"}, "adapters are not planned yet; lora and qlora are"),
        (AXOLOTL, {"adapter": "qlora", "load_in_4bit": True, "embeddings_skip_upcast": True}, "an embedding in float32"),
        (AXOLOTL, {"adapter": "qlora", "load_in_4bit": True, "base_model": "openai-community/gpt2"}, "several data types"),
        (AXOLOTL, {"adapter": "qlora", "load_in_4bit": True, "bf16": False}, "`load_in_4bit` with computation in float32"),
        (AXOLOTL, {"lora_r": None}, "`lora_r` is missing"),
        (AXOLOTL, {"lora_target_linear": False}, "is not a list of names"),
        (AXOLOTL, {"load_in_8bit": True}, "quantized weights are not planned yet"),
        (TORCHTUNE, {"model": {"_component_": "torchtune.models.llama3_1.qlora_llama3_1_8b"}}, "packed weights of torchao"),
        (TORCHTUNE, {"model": {"_component_": "torchtune.models.llama3_1.lora_llama3_1_8b"}}, "`model.lora_attn_modules: None`"),
        (
            TORCHTUNE,
            {"model": {"_component_": "torchtune.models.llama3_1.lora_llama3_1_8b", "lora_attn_modules": ["q_proj"], "use_dora": True}},
            "`model.use_dora`: this adapter of torchtune is not planned yet",
        ),
        (TRL, {"load_in_4bit": True}, "its adapters are in bfloat16"),
        (TRL, {"load_in_4bit": True, "use_peft": False}, "`load_in_4bit` without `use_peft` trains nothing"),
        (TRL, {"lora_target_parameters": ["experts.down_proj"]}, "adapters are not planned yet"),
        (TRL, {"model_name_or_path": "microsoft/Phi-3-mini-4k-instruct"}, "the default linears of this model's class are not read"),
        (TRL, {"lora_modules_to_save": ["score"]}, "has other modules than"),
    ],
)
def test_what_is_not_planned_is_refused(text: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as raised:
        read(text, changes)
    assert message in str(raised.value)
