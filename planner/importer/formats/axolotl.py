"""Axolotl's configurations.

Read from axolotl 0.18: src/axolotl/utils/schemas/*.py (keys, defaults), utils/config/__init__.py (precision, accumulation),
core/builders/base.py, loaders/model.py (recomputation, packed weights), loaders/adapter.py.
"""

from __future__ import annotations

from planner.importer.adapters import ALL, dropout, kind, layers_with, saved, targets
from planner.importer.engine import Reading
from planner.importer.format import one_of
from planner.importer.huggingface_trainer import attention, liger_of_axolotl, optimizer, padded, reentrant, steps
from planner.importer.keys import *
from planner.importer.named import *
from planner.importer.reader import show

_MARKS = ("micro_batch_size", "sequence_len", "gradient_accumulation_steps")
_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")


def _accumulation(c: Reading) -> int:
    given, whole = c.value("gradient_accumulation_steps"), c.value("batch_size")
    if given is not None or whole is None:
        return c.own(1) if given is None else positive(c, "gradient_accumulation_steps", given)
    return positive(c, "batch_size", whole) // c["training.batch_size"] or 1


def _precision(c: Reading) -> str:
    """Return the data types: weights are loaded in bfloat16 if bf16 is on, and nothing keeps a float32 copy of them."""
    half = [name for name in ("fp16", "float16") if is_on(c.value(name))]
    given = c.value("bf16")
    bf16 = c.own("auto") if given is None else given
    if bf16 not in ("auto", "full", True, False):
        raise c.unsupported("bf16", bf16, ("auto", "full", "true", "false"))
    if half and bf16 == "auto":
        bf16 = False
    if is_on(bf16) or is_on(c.value("bfloat16")):
        if bf16 != "full" and _adapts(c):
            return "bf16-autocast"
        if bf16 != "full":
            c.omits.append(f"{AUTOCAST} (bf16)")
        return "bf16"
    if half:
        raise c.refusal(f"`{half[0]}`: gradient scaling of float16 weights is not planned")
    return "fp32"


def _recompute(c: Reading) -> str | None:
    given = c.value("gradient_checkpointing")
    if given not in (None, True, False, "offload", "offload_disk", "unsloth"):
        raise c.unsupported("gradient_checkpointing", given, ("true", "false", "offload", "offload_disk"))
    if isinstance(given, str):
        c.omits.append(f"{OFFLOADED} (gradient_checkpointing: {given})")
    return "full" if given or is_on(c.value("activation_offloading")) else None


def _reenters(c: Reading) -> bool:
    """Return axolotl's default, for which no arguments of recomputation may be given."""
    return is_on(c.value("gradient_checkpointing")) and c.at("gradient_checkpointing_kwargs") is None


def _adapts(c: Reading) -> bool:
    return is_on(c.value("adapter"))


def _linears(name: str) -> Source:
    """Return the linears with adapters: all of the layers if ``lora_target_linear`` is on, which names are added to."""
    named = targets(name)
    return code(lambda c: ALL if is_on(c.value("lora_target_linear")) else c.of(named), "lora_target_linear", named)


def _base(c: Reading) -> dict[str, object] | None:
    """Return how the frozen weights are stored. Norms, embedding and LM head end in the dtype of loading, also beside packed weights."""
    stored: dict[str, object] = {"dtype": "bf16"} if c["training.precision"] == "bf16-autocast" else {}
    if not is_on(c.value("load_in_4bit")):
        return stored or None
    if c["training.precision"] == "fp32":
        raise c.refusal("`load_in_4bit` with computation in float32 is not planned; supported: bf16")
    changed = {
        f"bnb_config_kwargs.{key}": c.value(f"bnb_config_kwargs.{key}") for key in ("bnb_4bit_quant_type", "bnb_4bit_use_double_quant")
    }
    kind, double = changed.values()
    return {"format": kind or "nf4", "double_quant": True if double is None else is_on(double), **stored}


def _problem(c: Reading) -> str:
    """Return why adapters or packed weights are not planned, or an empty text."""
    adapter, packs = c.at("adapter"), is_on(c.at("load_in_4bit"))
    if is_on(adapter) and adapter not in ("lora", "qlora"):
        return f"`adapter: {show(adapter)}`: {ADAPTER}; lora and qlora are"
    if packs != (adapter == "qlora"):
        return "`load_in_4bit` and `adapter: qlora` require each other"
    if packs and is_on(c.at("embeddings_skip_upcast")):
        return "`embeddings_skip_upcast`: packed weights beside an embedding in float32 are not planned"
    if packs and class_of(c.at("base_model")) not in ("llama", "mistral", "qwen2", "qwen3", "phi3"):
        return f"`load_in_4bit`: {QUANTIZED} for this model's class, whose other weights have several data types"
    return ""


def _kernels(c: Reading) -> None:
    """State the kernels of adapters that the figures omit: axolotl turns them on where a file sets none."""
    given = {name: c.value(name) for name in _KERNELS}
    on = [name for name, value in given.items() if is_on(value)]
    if _adapts(c) and (on or all(value is None for value in given.values())):
        c.omits.append(f"{KERNELS} ({', '.join(on) or 'those of adapters, which are on by default'})")


def _packed(c: Reading) -> None:
    if is_on(c.value("sample_packing")):
        c.notes.append(PACKED)


ADAPTED = code(_adapts, "adapter")
AXOLOTL = program(
    "axolotl",
    "base_model",
    {"training.batch_size": size("micro_batch_size", 1), "training.sequence_length": size("sequence_len", 512)},
    {"training.gradient_accumulation": code(_accumulation, "gradient_accumulation_steps", "batch_size")},
    steps(),
    {"training.precision": code(_precision, "bf16", "bfloat16", "fp16", "float16")},
    optimizer("optimizer"),
    {"training.recompute": code(_recompute, "gradient_checkpointing", "activation_offloading")},
    reentrant(_reenters),
    {
        "training.train": when(ADAPTED, "adapters"),
        "training.adapters": when(ADAPTED, {
            "rank": size("lora_r"),
            "type": kind("peft_use_dora", "peft_use_rslora"),
            "targets": _linears("lora_target_modules"),
            "layers": layers_with("peft_layers_to_transform"),
            "dropout": dropout("lora_dropout"),
            "dtype": when(flag("peft_autocast_adapter_dtype", True), None, "base"),
        }),
        "training.also_train": when(ADAPTED, saved("lora_modules_to_save")),
        "training.base": when(ADAPTED, code(
            _base, "load_in_4bit", "bnb_config_kwargs.bnb_4bit_quant_type", "bnb_config_kwargs.bnb_4bit_use_double_quant",
        )),
    },
    attention("attn_implementation", "eager_attention"),
    padded(("sample_packing",), "attn_implementation", "flash_attention", "xformers_attention", "flex_attention", "flash_optimum"),
    liger_of_axolotl(),
    {"notes.packing": code(_packed, "sample_packing"), "notes.kernels": code(_kernels, *_KERNELS, "adapter")},
    refused={
        ADAPTER: (
            "relora mora hatchery lora_target_parameters lora_rank_pattern peft_layer_replication peft_trainable_token_indices"
        ),
        QUANTIZED: (
            "load_in_8bit gptq qat quantization llmcompressor use_onebitllms model_quantization_config quantize_moe_experts"
        ),
        PARTIAL: "unfrozen_parameters freeze_mm_modules lisa_n_layers spectrum_top_fraction optim_target_modules",
        OBJECTIVE: "rl ebft reward_model process_reward_model num_labels diffusion kd_trainer trainer_cls nemo_gym_enabled",
        CHANGED: (
            "model_config overrides_of_model_config cls_model_config base_model_config model_kwargs overrides_of_model_kwargs "
            "shrink_embeddings llama4_linearized_experts rope_scaling max_packed_sequence_len "
            "dense_mixer"
        ),
        "the batch size is found while it runs": "auto_find_batch_size",
        "recomputation of some operators is not planned": "selective_checkpointing",
    },
    omitted={
        KERNELS: (
            "liger_rms_norm_gated liger_layer_norm cut_cross_entropy flash_attn_cross_entropy flash_attn_rms_norm flash_attn_fuse_mlp "
            "use_kernels use_scattermoe use_sonicmoe experts_implementation fused_attn_kernel tiled_mlp expert_backend "
            "moe_grouped_backend moe_bnb_fast sage_attention gemma4_hybrid_attn_impl use_dsv4_kernels use_glm_dsa_kernels"
        ),
        CHUNKED: "chunked_cross_entropy",
        DEVICES: (
            "deepspeed fsdp fsdp_config dp_shard_size dp_replicate_size tensor_parallel_size context_parallel_size "
            "sequence_parallel_degree expert_parallel_size"
        ),
        OFFLOADED: "activation_offloading layer_offloading",
        COMPILED: "torch_compile deepcompile",
        TOKENS: "tokens resize_token_embeddings_to_32x",
        "float8 computation": "fp8",
    },
    ignored={
        DATA: (
            "datasets test_datasets pretraining_dataset dataset_prepared_path val_set_size pad_to_sequence_len pad_to_multiple_of "
            "eval_sample_packing sample_packing_group_size sample_packing_bin_size sample_packing_sequentially "
            "sample_packing_eff_est sample_packing_seq_len_multiplier sample_packing_mp_start_method multipack_real_batches "
            "batch_flattening curriculum_sampling total_num_tokens total_supervised_tokens eval_sequence_len min_sample_len "
            "max_prompt_len excess_length_strategy shuffle_merged_datasets shuffle_before_merging_datasets skip_prepare_dataset "
            "dataset_processes dataset_num_proc dataset_shard_num dataset_shard_idx num_dataset_shards_to_save "
            "dataset_exact_deduplication dataset_keep_in_memory dataloader_pin_memory dataloader_num_workers "
            "dataloader_prefetch_factor dataloader_drop_last remove_unused_columns push_dataset_to_hub train_on_inputs "
            "group_by_length chat_template chat_template_jinja chat_template_kwargs eot_tokens default_system_message "
            "special_tokens added_tokens_overrides fix_untrained_tokens is_preprocess preprocess_iterable streaming "
            "streaming_multipack_buffer_size pretrain_multipack_buffer_size pretrain_multipack_attn "
            "pretraining_sample_concatenation use_pose pose_split_on_token_ids pose_max_context_len pose_num_chunks image_size "
            "image_resize_algorithm role_boundaries tokenizer_type tokenizer_config tokenizer_use_fast tokenizer_legacy "
            "tokenizer_use_mistral_common processor_type processor_kwargs"
        ),
        RUNS: (
            "model_type type_of_model model_revision revision_of_model trust_remote_code tf32 float32 strict output_dir "
            "hub_model_id hub_strategy hub_revision save_safetensors resume_from_checkpoint auto_resume_from_checkpoints "
            "is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model plugins "
            "sdp_attention flex_attn_compile_kwargs sdpa_varlen device device_map "
            "world_size local_rank ddp ddp_timeout ddp_bucket_cap_mb ddp_broadcast_buffers ddp_find_unused_parameters fsdp_version "
            "fsdp_final_state_dict_type accelerator_config heads_k_stride ring_attn_func seed gc_steps gc_collect_steps "
            "torch_empty_cache_steps gradient_checkpointing_kwargs torch_compile_backend torch_compile_mode torch_compile_options "
            "eval_batch_size eval_steps evals_per_epoch eval_strategy evaluation_strategy eval_table_size eval_max_new_tokens "
            "eval_causal_lm_metrics do_causal_lm_eval do_bench_eval bench_dataset bench_split save_steps saves_per_epoch "
            "save_strategy save_total_limit save_first_step save_only_model logging_steps early_stopping_patience "
            "load_best_model_at_end metric_for_best_model greater_is_better loss_watchdog_threshold loss_watchdog_patience "
            "use_tensorboard profiler_steps profiler_steps_start include_tokens_per_second include_tkps low_cpu_mem_usage "
            "max_memory gpu_memory_limit hf_use_auth_token reinit_weights experimental_skip_move_to_device debug "
            "axolotl_config_path embeddings_skip_upcast mean_resizing_embeddings wandb_name wandb_run_id wandb_mode wandb_project "
            "wandb_entity wandb_watch wandb_log_model use_wandb use_mlflow mlflow_tracking_uri mlflow_experiment_name "
            "mlflow_run_name hf_mlflow_log_artifacts use_comet comet_project_name use_ray ray_run_name ray_num_workers "
            "resources_per_worker use_trackio trackio_project_name trackio_run_name trackio_space_id generate_samples vllm trl "
            "use_otel_metrics otel_metrics_host otel_metrics_port gradio_title gradio_share gradio_server_name gradio_server_port "
            "gradio_max_new_tokens gradio_temperature use_swanlab swanlab_project swanlab_experiment_name swanlab_description "
            "swanlab_mode swanlab_workspace tiled_mlp_num_shards tiled_mlp_use_original_mlp chunked_cross_entropy_num_chunks "
            "expert_parallel_num_nvl_bytes expert_parallel_token_capacity base_model_ignore_patterns fp8_enable_fsdp_float8_all_gather"
        ),
        TUNES: (
            "num_epochs learning_rate embedding_lr embedding_lr_scale lr_scheduler lr_scheduler_kwargs lr_quadratic_warmup "
            "lr_groups lr_div_factor cosine_min_lr_ratio cosine_constant_lr_ratio warmup_steps warmup_ratio weight_decay optim_args "
            "torchdistx_path adam_epsilon adam_epsilon2 adam_eps adam_beta1 adam_beta2 adam_beta3 max_grad_norm neftune_noise_alpha "
            "eta_min center_rewards_coefficient scaling_softmax scaling_softmax_factor scaling_softmax_bias use_eaft eaft_alpha "
            "eaft_k liger_use_token_scaling"
        ),
        ADAPTS: (
            "peft loftq_bits loftq_config lora_model_dir lora_alpha lora_fan_in_fan_out lora_alpha_pattern peft_layers_pattern "
            "peft_init_lora_weights peft_ensure_weight_tying qlora_sharded_model_loading lora_on_cpu bnb_config_kwargs "
            "loraplus_lr_ratio loraplus_lr_embedding merge_lora merge_method relora_prune_ratio relora_prune_method "
            "relora_cpu_offload jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps gptq_groupsize "
            "gptq_model_v1 gptq_disable_exllama model_quantization_config_kwargs lisa_step_interval lisa_layers_attribute"
        ),
    },
    problem=_problem,
)  # fmt: skip

FORMAT = format_of(
    AXOLOTL,
    "configurations of full fine-tuning, LoRA and QLoRA (YAML)",
    "axolotl 0.18: src/axolotl/utils/schemas/*.py, utils/config/__init__.py, core/builders/base.py, loaders/model.py, loaders/adapter.py",
    names_model("base_model", _MARKS),
    f"`base_model` and {one_of(_MARKS)}",
)
