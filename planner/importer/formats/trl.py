"""Configurations of TRL's supervised fine-tuning.

Read from TRL 1.10: trainer/sft_config.py, trainer/base_config.py, trainer/model_config.py, scripts/sft.py.
"""

from __future__ import annotations

from planner.importer.engine import Reading
from planner.importer.huggingface_trainer import IGNORED, OMITTED, REFUSED, attention, batch, liger, optimizer
from planner.importer.keys import *
from planner.importer.named import *
from planner.importer.reader import show

_ONLY_OTHERS = (  # keys of its other trainers
    "beta num_generations max_completion_length max_prompt_length precompute_ref_log_probs ref_model sync_ref_model use_vllm "
    "reward_funcs reward_model_name_or_path desirable_weight undesirable_weight center_rewards_coefficient teacher_model_name_or_path"
)


def _precision(c: Reading) -> str:
    """Return the data types: weights are loaded in float32 and computed under autocast to bfloat16, unless that is switched off."""
    given = c.value("dtype", "torch_dtype")
    weights, fp16 = c.own("float32") if given is None else given, is_on(c.value("fp16"))
    bf16 = not fp16 if c.value("bf16") is None else is_on(c.value("bf16"))
    if weights == "bfloat16" and not fp16:
        if bf16:
            c.omits.append(f"{AUTOCAST} (bf16)")
        return "bf16"
    if weights != "float32":
        raise c.refusal(f"`dtype: {show(weights)}`{' with `fp16`' if fp16 else ''} is not planned; supported: float32, bfloat16")
    return "bf16-autocast" if bf16 else "fp16-autocast" if fp16 else "fp32"


def _length(c: Reading) -> int | None:
    found = c.found("max_length", "max_seq_length")
    if found is None and c.has("max_length", "max_seq_length"):
        c.omits.append(LENGTH)
        return None
    return positive(c, *found) if found else c.own(1024)


def _loss(c: Reading) -> None:
    given = c.value("loss_type")
    if given not in (None, "nll", "chunked_nll", "dft"):
        raise c.unsupported("loss_type", given, ("nll", "chunked_nll", "dft"))
    if given == "chunked_nll" or (given is None and not is_on(c.at("use_liger_kernel"))):
        c.omits.append(f"{CHUNKED} (loss_type: chunked_nll)")


def _packed(c: Reading) -> None:
    if any(is_on(c.value(name)) for name in ("packing", "padding_free")):
        c.notes.append(PACKED)
    c.notes.append("read as a file of `trl sft`")


TRL = program(
    "TRL",
    "model_name_or_path",
    batch(),
    {"training.sequence_length": code(_length, "max_length", "max_seq_length")},
    {"training.precision": code(_precision, "dtype", "torch_dtype", "bf16", "fp16")},
    optimizer("optim"),
    {"training.recompute": when(flag("gradient_checkpointing activation_checkpointing", True), "full")},
    offloading("activation_offloading"),
    attention("attn_implementation"),
    liger("use_liger_kernel"),
    {"notes.loss": code(_loss, "loss_type"), "notes.packing": code(_packed, "packing", "padding_free")},
    refused={
        **REFUSED, ADAPTER: "use_peft", QUANTIZED: "load_in_8bit load_in_4bit", OBJECTIVE: _ONLY_OTHERS, CHANGED: "model_init_kwargs",
    },
    omitted=OMITTED,
    ignored={
        DATA: (
            f"{IGNORED[DATA]} dataset_name dataset_config dataset_train_split dataset_test_split dataset_streaming dataset_text_field "
            "dataset_kwargs dataset_num_proc dataset_batch_size datasets dataset_mixer streaming test_split_size eos_token pad_token "
            "truncation_mode shuffle_dataset packing_strategy pad_to_multiple_of eval_packing completion_only_loss assistant_only_loss "
            "chat_template_path"
        ),
        RUNS: f"{IGNORED[RUNS]} trust_remote_code model_revision ignore_bias_buffers use_cpu",
        TUNES: f"{IGNORED[TUNES]} router_aux_loss_coef",
        ADAPTS: (
            "lora_r lora_alpha lora_dropout lora_target_modules lora_target_parameters lora_modules_to_save lora_task_type "
            "use_rslora use_dora bnb_4bit_quant_type use_bnb_nested_quant bnb_4bit_quant_storage"
        ),
    },
)  # fmt: skip

FORMAT = format_of(
    TRL,
    "configurations of `trl sft` with all weights (YAML, JSON)",
    "TRL 1.10: trainer/sft_config.py, base_config.py, model_config.py, scripts/sft.py",
    lambda given: isinstance(given.config.get("model_name_or_path"), str),
    "`model_name_or_path`",
)
