"""Torchtune's configurations.

Read from torchtune 0.7: recipes/full_finetune_single_device.py and lora_finetune_single_device.py (precision, recomputation),
models/*/_model_builders.py (models), modules/peft/lora.py, whose linears with adapters keep the dtype of the model.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.adapters import dropout
from planner.importer.engine import Reading
from planner.importer.format import Given
from planner.importer.keys import *
from planner.importer.named import *
from planner.importer.reader import Config

# A model's name on the Hub by torchtune's function that builds it with the same sizes.
_BUILDERS = {
    "gemma.gemma_2b": "google/gemma-2b", "gemma.gemma_7b": "google/gemma-7b", "gemma2.gemma2_2b": "google/gemma-2-2b",
    "gemma2.gemma2_9b": "google/gemma-2-9b", "gemma2.gemma2_27b": "google/gemma-2-27b", "llama2.llama2_7b": "meta-llama/Llama-2-7b-hf",
    "llama2.llama2_13b": "meta-llama/Llama-2-13b-hf", "llama2.llama2_70b": "meta-llama/Llama-2-70b-hf",
    "llama3.llama3_8b": "meta-llama/Meta-Llama-3-8B", "llama3.llama3_70b": "meta-llama/Meta-Llama-3-70B",
    "llama3_1.llama3_1_8b": "meta-llama/Llama-3.1-8B", "llama3_1.llama3_1_70b": "meta-llama/Llama-3.1-70B",
    "llama3_1.llama3_1_405b": "meta-llama/Llama-3.1-405B", "llama3_2.llama3_2_1b": "meta-llama/Llama-3.2-1B",
    "llama3_2.llama3_2_3b": "meta-llama/Llama-3.2-3B", "llama3_3.llama3_3_70b": "meta-llama/Llama-3.3-70B-Instruct",
    "mistral.mistral_7b": "mistralai/Mistral-7B-v0.1", "phi3.phi3_mini": "microsoft/Phi-3-mini-4k-instruct",
    "phi4.phi4_14b": "microsoft/phi-4", "qwen2.qwen2_0_5b": "Qwen/Qwen2-0.5B", "qwen2.qwen2_1_5b": "Qwen/Qwen2-1.5B",
    "qwen2.qwen2_7b": "Qwen/Qwen2-7B",
}  # fmt: skip
_SIZED = {"qwen2_5": "Qwen/Qwen2.5", "qwen3": "Qwen/Qwen3"}  # builders qwen3_1_7b_base and qwen3_1_7b_instruct: Qwen/Qwen3-1.7B
_CHOICES = {
    "torch.optim.AdamW": "adamw", "torch.optim.Adam": "adam", "bitsandbytes.optim.AdamW8bit": "adamw-8bit",
    "bitsandbytes.optim.PagedAdamW8bit": "adamw-8bit", "torchao.optim.AdamW8bit": "adamw-8bit-torchao",
    "torchao.optim.AdamW4bit": "adamw-4bit",
}  # fmt: skip
_ADAPTERS = (
    "lora_attn_modules", "apply_lora_to_mlp", "apply_lora_to_output", "lora_rank", "lora_alpha", "lora_dropout", "use_dora",
    "quantize_base",
)  # fmt: skip
_LINEARS = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "output_proj": "o_proj"}
_PAGED = "bitsandbytes.optim.PagedAdamW8bit"


def _model(config: Config) -> object:
    """Return the name on the Hub of the model that a function builds, with or without an adapter."""
    built = str(config["model"]["_component_"]).removeprefix("torchtune.models.")
    family, _, name = built.partition(".")
    name = name.removeprefix("qlora_").removeprefix("lora_")
    hub = _BUILDERS.get(f"{family}.{name}")
    if hub is None and family in _SIZED:
        whole, _, part = name.removeprefix(f"{family}_").removesuffix("_base").removesuffix("_instruct").rpartition("_")
        hub = f"{_SIZED[family]}-{whole.replace('_', '.')}{'.' if whole else ''}{part.upper()}"
    return hub or built


def _function(c: Reading) -> str:
    return str(c.at("model._component_")).rpartition(".")[2]


def _adapts(c: Reading) -> bool:
    """Return whether the function builds a model with adapters."""
    c.value("model._component_")
    return _function(c).startswith("lora_")


def _problem(c: Reading) -> str:
    name = _function(c)
    if name.startswith("qlora_") or (name.startswith("lora_") and is_on(c.at("model.quantize_base"))):
        return f"`model._component_: {name}`: packed weights of torchao are not planned yet"
    if others := sorted(set(c.config["model"]) - {"_component_", *(_ADAPTERS if name.startswith("lora_") else ())}):
        return f"`model.{others[0]}`: {CHANGED}"
    on = next((key for key in ("apply_lora_to_output", "use_dora") if is_on(c.at(f"model.{key}"))), "")
    return f"`model.{on}`: this adapter of torchtune is not planned yet" if on else ""


def _linears(c: Reading) -> list[str]:
    """Return the linears with adapters: those of attention that a file lists, and those of the feed-forward network."""
    given = c.value("model.lora_attn_modules")
    if not isinstance(given, list) or any(one not in _LINEARS for one in given):
        raise c.unsupported("model.lora_attn_modules", given, _LINEARS)
    network = ["gate_proj", "up_proj", "down_proj"] if is_on(c.value("model.apply_lora_to_mlp")) else []
    return [*(_LINEARS[one] for one in given), *network]


def _length(c: Reading) -> int | None:
    given = c.value("tokenizer.max_seq_len")
    if given is None:
        c.omits.append(LENGTH)
        return None
    return positive(c, "tokenizer.max_seq_len", given)


def _optimizer(c: Reading) -> str:
    given = c.value("optimizer._component_")
    if given is None:
        raise c.refusal("`optimizer._component_` is missing, so that nothing is trained")
    if not isinstance(given, str) or given not in _CHOICES:
        raise c.unsupported("optimizer._component_", given, _CHOICES)
    return _CHOICES[given]


def _kernel(c: Reading) -> str | None:
    fused = c.value("optimizer.fused")
    return None if not str(c.value("optimizer._component_")).startswith("torch.") else "fused" if fused is True else "foreach"


def _loss(c: Reading) -> None:
    name = str(c.value("loss._component_")).rpartition(".")[2]
    if name in ("LinearCrossEntropyLoss", "CEWithChunkedOutputLoss"):
        c.omits.append(f"{CHUNKED} ({name})")
    elif name != "CrossEntropyLoss":
        raise c.refusal(f"`loss._component_: {name}`: {OBJECTIVE}")


def _packed(c: Reading) -> None:
    if is_on(c.value("dataset.packed")):
        c.notes.append(PACKED)


ADAPTED = code(_adapts, "model._component_")
TORCHTUNE = program(
    "torchtune",
    "model._component_",
    {"training.batch_size": size("batch_size"), "training.sequence_length": code(_length, "tokenizer.max_seq_len")},
    {"training.gradient_accumulation": size("gradient_accumulation_steps", 1)},
    {"training.precision": choice("dtype", {"bf16": "bf16", "fp32": "fp32"}, REQUIRED)},
    {
        "training.optimizer": code(_optimizer, "optimizer._component_"),
        "training.optimizer_kernel": code(_kernel, "optimizer.fused", "optimizer._component_"),
        "training.paged": code(lambda c: c.value("optimizer._component_") == _PAGED or None, "optimizer._component_"),
        "training.optimizer_in_backward": when(flag("optimizer_in_bwd"), True),
    },
    {"training.recompute": when(flag("enable_activation_checkpointing"), "full"), "training.implementation": "pytorch"},
    offloading("enable_activation_offloading"),
    {
        "training.train": when(ADAPTED, "adapters"),
        "training.adapters": when(ADAPTED, {
            "rank": size("model.lora_rank", 8),
            "targets": code(_linears, "model.lora_attn_modules", "model.apply_lora_to_mlp"),
            "dropout": dropout("model.lora_dropout"),
            "dtype": "base",
        }),
    },
    {"notes.loss": code(_loss, "loss._component_"), "notes.packing": code(_packed, "dataset.packed")},
    refused={
        OBJECTIVE: "teacher_model teacher_checkpointer ref_checkpointer reward_and_value_model grpo_samples",
        QUANTIZED: "quantizer",
        CHANGED: "resize_token_embeddings",
        "selective recomputation is not planned": "ac_mode ac_option",
    },
    omitted={
        COMPILED: "compile",
        DEVICES: (
            "fsdp_cpu_offload custom_sharded_layers fsdp_sharding_strategy tensor_parallel_dim tensor_parallel_plan "
            "data_parallel_shard_dim data_parallel_replicate_dim context_parallel_dim memory_efficient_fsdp_wrap fsdp"
        ),
        "float8 computation": "enable_fp8_training",
    },
    ignored={
        DATA: (
            "tokenizer._component_ tokenizer.path tokenizer.merges_file tokenizer.prompt_template dataset dataset._component_ "
            "dataset.split dataset.source dataset.partition dataset.subset dataset.column dataset.data_files dataset.train_on_input "
            "dataset_val batch_size_val shuffle collate_fn"
        ),
        RUNS: (
            "output_dir checkpointer resume_from_checkpoint seed device metric_logger log_every_n_steps log_peak_memory_stats "
            "log_level profiler run_val_every_n_steps save_every_n_steps save_adapter_weights_only epochs max_steps_per_epoch name "
            "low_cpu_ram enable_async_checkpointing cudnn_deterministic_mode save_last_epoch_only keep_last_n_checkpoints "
            "use_distributed_state_dict"
        ),
        ADAPTS: "model.lora_alpha model.apply_lora_to_output model.use_dora model.quantize_base",
        TUNES: "lr_scheduler clip_grad_norm optimizer.lr optimizer.weight_decay optimizer.betas optimizer.eps loss.ignore_index",
    },
    model=_model,
    problem=_problem,
)  # fmt: skip


def _is_torchtune(given: Given) -> bool:
    model = given.config.get("model")
    return isinstance(model, Mapping) and isinstance(model.get("_component_"), str)


FORMAT = format_of(
    TORCHTUNE,
    "configurations of full fine-tuning and LoRA (YAML)",
    "torchtune 0.7: recipes/*_finetune_single_device.py, torchtune/models/*/_model_builders.py, modules/peft/lora.py",
    _is_torchtune,
    "`_component_` in `model`",
)
