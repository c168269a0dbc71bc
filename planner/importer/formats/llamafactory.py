"""LLaMA-Factory's configurations.

Read from LLaMA-Factory 0.9.6: src/llamafactory/hparams/*.py (keys, defaults, precision), model/adapter.py (LoRA, float32 copies),
model/model_utils/*.py (recomputation, linears, packed weights).
"""

from __future__ import annotations

from planner.importer.adapters import ALL, UNSTATED, dropout, kind, listed, saved, targets
from planner.importer.engine import Reading
from planner.importer.format import one_of
from planner.importer.huggingface_trainer import IGNORED, OMITTED, REFUSED, attention, batch, liger, optimizer, padded
from planner.importer.keys import *
from planner.importer.named import *
from planner.importer.reader import show

_MARKS = ("finetuning_type", "cutoff_len", "template", "stage")


def _precision(c: Reading) -> str:
    """Return the data types: trained weights are cast to float32, unless pure_bf16 keeps them in bfloat16. Frozen ones keep theirs."""
    pure, bf16, fp16 = (is_on(c.value(name)) for name in ("pure_bf16", "bf16", "fp16"))
    if pure and fp16:
        raise c.refusal("`pure_bf16` and `fp16` are both on")
    if _adapts(c):
        if not (pure or bf16 or fp16):
            c.notes.append(UNSTATED)
        return "bf16-autocast" if bf16 else "fp16-autocast" if fp16 else "bf16"
    if pure and bf16:
        c.omits.append(f"{AUTOCAST} (bf16)")
    return "bf16" if pure else "bf16-autocast" if bf16 else "fp16-autocast" if fp16 else "fp32"


def _recompute(c: Reading) -> str | None:
    return None if is_on(c.value("disable_gradient_checkpointing")) else "full"


def _adapts(c: Reading) -> bool:
    return c.value("finetuning_type") in (None, "lora")


def _copies(c: Reading) -> list[str] | None:
    """Return the parts of which a copy trains, which is cast to float32 unless pure_bf16 is on."""
    copies: list[str] | None = c.of(saved("additional_target", listed))
    if copies and not is_on(c.value("pure_bf16")):
        raise c.refusal("`additional_target`: copies in float32 beside 16-bit weights are not planned; supported: pure_bf16")
    return copies


def _base(c: Reading) -> dict[str, object] | None:
    """Return how the frozen weights are stored: in 16 bits, or packed by bitsandbytes."""
    stored: dict[str, object] = {"dtype": precision[:4]} if (precision := c["training.precision"]) != "bf16" else {}
    bits, method = c.value("quantization_bit"), c.value("quantization_method")
    if bits is None:
        return stored or None
    if not alike(bits, 4) or method not in (None, "bnb"):
        raise c.refusal(f"`quantization_bit: {show(bits)}`{f' of {method}' if method else ''} is not planned; supported: 4 of bnb")
    compute = {"compute_dtype": "fp16"} if c["training.precision"] == "fp16-autocast" else {}
    double = c.value("double_quantization")
    return {"format": c.value("quantization_type") or "nf4", "double_quant": double is None or is_on(double), **compute, **stored}


def _packed(c: Reading) -> None:
    if c.value("packing") is not True and is_on(c.value("packing")):
        raise c.unsupported("packing", c.value("packing"), ("true", "false"))
    if is_on(c.value("neat_packing")):
        c.notes.append(PACKED)


def _problem(c: Reading) -> str:
    for key, allowed, default, reason in (
        ("finetuning_type", ("full", "lora"), "lora", PARTIAL),
        ("stage", ("pt", "sft"), "sft", OBJECTIVE),
    ):
        value = c.at(key)
        if (default if value is None else value) not in allowed:
            return f"`{key}: {show(value)}`: {reason}"
    if is_on(c.at("quantization_bit")) and c.at("finetuning_type") == "full":
        return "`quantization_bit` requires `finetuning_type: lora`"
    return "" if is_on(c.at("do_train")) else "`do_train` is not on, so that nothing is trained"


ADAPTED = code(_adapts, "finetuning_type")
LLAMA_FACTORY = program(
    "LLaMA-Factory",
    "model_name_or_path",
    batch(),
    {
        "training.sequence_length": size("cutoff_len", 2048),
        "training.precision": code(_precision, "pure_bf16", "bf16", "fp16", "finetuning_type"),
    },
    {
        "training.optimizer": when(flag("use_muon"), "muon", optimizer("optim")["training.optimizer"]),
        "training.optimizer_kernel": when(flag("use_muon"), None, optimizer("optim")["training.optimizer_kernel"]),
        "training.paged": when(flag("use_muon"), None, optimizer("optim")["training.paged"]),
    },
    {"training.recompute": code(_recompute, "disable_gradient_checkpointing")},
    {"training.reentrant": when(flag("use_reentrant_gc", True), code(lambda c: c["training.recompute"] == "full" or None))},
    {
        "training.train": when(ADAPTED, "adapters"),
        "training.adapters": when(ADAPTED, {
            "rank": size("lora_rank", 8),
            "type": kind("use_dora", "use_rslora"),
            "targets": targets("lora_target", lambda _: ALL, listed),
            "dropout": dropout("lora_dropout"),
        }),
        "training.also_train": when(ADAPTED, code(_copies, "additional_target", "pure_bf16")),
        "training.base": when(ADAPTED, code(
            _base, "quantization_bit", "quantization_method", "quantization_type", "double_quantization",
        )),
    },
    attention("flash_attn", eager="disabled"),
    padded(("packing", "neat_packing"), "flash_attn"),
    liger("enable_liger_kernel", None),
    {"notes.packing": code(_packed, "packing", "neat_packing")},
    refused={
        **REFUSED,
        ADAPTER: "adapter_name_or_path",
        STATES: "use_galore use_apollo use_adam_mini",
        PARTIAL: "use_badam use_llama_pro freeze_language_model",
        CHANGED: "mixture_of_depths resize_vocab add_tokens add_special_tokens new_special_tokens_config upcast_layernorm",
        OBJECTIVE: "ref_model reward_model",
        "other programs run the training": "use_kt use_mca use_megatron_bridge use_hyper_parallel",
    },
    omitted={
        **OMITTED,
        KERNELS: "use_unsloth use_v1_kernels shift_attn upcast_lmhead_output",
        OFFLOADED: "use_unsloth_gc",
        "float8 computation": "fp8",
    },
    ignored={
        DATA: (
            f"{IGNORED[DATA]} template dataset eval_dataset dataset_dir media_dir train_on_prompt mask_history streaming buffer_size "
            "mix_strategy interleave_probs overwrite_cache preprocessing_batch_size preprocessing_num_workers max_samples "
            "ignore_pad_token_for_loss val_size eval_on_each_dataset tool_format default_system enable_thinking preserve_thinking "
            "tokenized_path data_shared_file_system use_fast_tokenizer split_special_tokens image_max_pixels image_min_pixels "
            "image_do_pan_and_scan crop_to_patches video_max_pixels video_min_pixels video_fps video_maxlen use_audio_in_video "
            "audio_sampling_rate disable_shuffling"
        ),
        RUNS: (
            f"{IGNORED[RUNS]} gradient_checkpointing activation_checkpointing plot_loss compute_accuracy early_stopping_steps cache_dir "
            "adapter_folder model_revision low_cpu_mem_usage init_special_tokens rope_scaling train_from_scratch "
            "infer_backend offload_folder use_kv_cache infer_dtype hf_hub_token ms_hub_token om_hub_token print_param_status "
            "trust_remote_code ray_num_workers ray_init_kwargs ray_run_name master_addr master_port enable_torch_profiler "
            "profiler_output_dir profiler_wait_steps profiler_warmup_steps profiler_active_steps profiler_repeat profiler_record_shapes "
            "profiler_profile_memory profiler_with_stack profile_modules use_swanlab swanlab_project swanlab_workspace swanlab_run_name "
            "swanlab_mode swanlab_api_key swanlab_logdir include_effective_tokens_per_second eval_num_beams predict_with_generate "
            "generation_max_length generation_num_beams export_dir export_size export_device export_legacy_format export_hub_model_id "
            "fp8_backend fp8_enable_fsdp_float8_all_gather resize_vocab_init max_new_tokens skip_special_tokens vllm_maxlen vllm_gpu_util "
            "vllm_enforce_eager vllm_config"
        ),
        TUNES: (
            f"stage {IGNORED[TUNES]} moe_aux_loss_coef use_dft_loss use_asft_loss asft_alpha use_eaft_loss eaft_alpha loraplus_lr_ratio "
            "loraplus_lr_embedding pref_beta pref_ftx pref_loss dpo_label_smoothing simpo_gamma"
        ),
        ADAPTS: (
            "lora_alpha pissa_init pissa_iter pissa_convert "
            "create_new_adapter module_dropout oft_rank oft_block_size oft_target freeze_trainable_layers freeze_trainable_modules "
            "freeze_extra_modules quantization_device_map "
            "freeze_vision_tower freeze_multi_modal_projector galore_target galore_rank galore_update_interval galore_scale "
            "galore_layerwise apollo_target apollo_rank apollo_update_interval apollo_scale apollo_layerwise badam_mode "
            "badam_switch_mode badam_switch_interval badam_update_ratio badam_verbose"
        ),
    },
    problem=_problem,
)  # fmt: skip

FORMAT = format_of(
    LLAMA_FACTORY,
    "configurations of full fine-tuning, LoRA and QLoRA (YAML, JSON)",
    "LLaMA-Factory 0.9.6: src/llamafactory/hparams/*.py, model/adapter.py, model/model_utils/*.py",
    names_model("model_name_or_path", _MARKS),
    f"`model_name_or_path` and {one_of(_MARKS)}",
)
