"""Configurations of TRL's supervised fine-tuning.

Read from TRL 1.10: trainer/sft_config.py, trainer/base_config.py, trainer/model_config.py, scripts/sft.py.
"""

from __future__ import annotations

from planner.importer.adapters import by_class, dropout, kind, saved, targets
from planner.importer.engine import Reading
from planner.importer.huggingface_trainer import IGNORED, OMITTED, REFUSED, attention, batch, liger, optimizer, padded, reentrant
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
        if bf16 and _adapts(c):
            return "bf16-autocast"
        if bf16:
            c.omits.append(f"{AUTOCAST} (bf16)")
        return "bf16"
    if weights != "float32":
        raise c.refusal(f"`dtype: {show(weights)}`{' with `fp16`' if fp16 else ''} is not planned; supported: float32, bfloat16")
    return "bf16-autocast" if bf16 else "fp16-autocast" if fp16 else "fp32"


def _adapts(c: Reading) -> bool:
    return is_on(c.value("use_peft"))


def _base(c: Reading) -> dict[str, object] | None:
    """Return how the frozen weights are stored: in the dtype of loading, in which packed ones multiply, too."""
    given = c.value("dtype", "torch_dtype")
    stored: dict[str, object] = {"dtype": "bf16"} if given == "bfloat16" and c["training.precision"] == "bf16-autocast" else {}
    if not is_on(c.value("load_in_4bit")):
        return stored or None
    if given != "bfloat16":
        raise c.refusal("`load_in_4bit` with weights in float32 is not planned: its adapters are in bfloat16; supported: dtype: bfloat16")
    return {"format": c.value("bnb_4bit_quant_type") or "nf4", "double_quant": is_on(c.value("use_bnb_nested_quant")), **stored}


def _problem(c: Reading) -> str:
    return "`load_in_4bit` without `use_peft` trains nothing" if is_on(c.at("load_in_4bit")) and not is_on(c.at("use_peft")) else ""


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


ADAPTED = code(_adapts, "use_peft")
TRL = program(
    "TRL",
    "model_name_or_path",
    batch(),
    {"training.sequence_length": code(_length, "max_length", "max_seq_length")},
    {"training.precision": code(_precision, "dtype", "torch_dtype", "bf16", "fp16")},
    optimizer("optim"),
    {"training.recompute": when(flag("gradient_checkpointing activation_checkpointing", True), "full")},
    reentrant(lambda _: False),
    offloading("activation_offloading"),
    attention("attn_implementation"),
    padded(("packing", "padding_free"), "attn_implementation"),
    liger("use_liger_kernel"),
    {
        "training.train": when(ADAPTED, "adapters"),
        "training.adapters": when(ADAPTED, {
            "rank": size("lora_r", 16),
            "type": kind("use_dora", "use_rslora"),
            "targets": targets("lora_target_modules", lambda c: by_class(c, "lora_target_modules", c.at("model_name_or_path"))),
            "dropout": dropout("lora_dropout", 0.05),
            "dtype": when(flag("load_in_4bit"), "base"),
        }),
        "training.also_train": when(ADAPTED, saved("lora_modules_to_save")),
        "training.base": when(ADAPTED, code(
            _base, "load_in_4bit", "dtype", "torch_dtype", "bnb_4bit_quant_type", "use_bnb_nested_quant",
        )),
    },
    {"notes.loss": code(_loss, "loss_type"), "notes.packing": code(_packed, "packing", "padding_free")},
    refused={
        **REFUSED, ADAPTER: "lora_target_parameters", QUANTIZED: "load_in_8bit", OBJECTIVE: _ONLY_OTHERS, CHANGED: "model_init_kwargs",
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
        ADAPTS: "lora_alpha lora_task_type bnb_4bit_quant_storage",
    },
    problem=_problem,
)  # fmt: skip

FORMAT = format_of(
    TRL,
    "configurations of `trl sft` with all weights, LoRA and QLoRA (YAML, JSON)",
    "TRL 1.10: trainer/sft_config.py, base_config.py, model_config.py, scripts/sft.py",
    lambda given: isinstance(given.config.get("model_name_or_path"), str),
    "`model_name_or_path`",
)
