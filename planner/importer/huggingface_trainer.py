"""Settings of transformers' Trainer, which several fine-tuning programs share.

Read from transformers 5.24: training_args.py, trainer_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from planner.importer.engine import Reading
from planner.importer.keys import Source, alike, code, positive, size
from planner.importer.liger import NAMES
from planner.importer.named import COMPILED, DATA, DEVICES, KERNELS, PARTIAL, RUNS, TUNES, is_on
from planner.importer.reader import show

# With the kernel of PyTorch's optimizer; None where there is no choice.
_OPTIMIZERS: dict[str, tuple[str, str | None]] = {
    "adamw_torch": ("adamw", "foreach"), "adamw_torch_fused": ("adamw", "fused"), "adamw_hf": ("adamw", "foreach"),
    "adafactor": ("adafactor", None), "sgd": ("sgd", None), "muon": ("muon", None),
    "adamw_bnb_8bit": ("adamw-8bit", None), "adamw_8bit": ("adamw-8bit", None), "lion_32bit": ("lion-32bit", None),
    "lion_8bit": ("lion-8bit", None), "ademamix": ("ademamix", None), "ademamix_8bit": ("ademamix-8bit", None),
    "adamw_torch_8bit": ("adamw-8bit-torchao", None), "adamw_torch_4bit": ("adamw-4bit", None),
}  # fmt: skip
_PAGED: dict[str, tuple[str, str | None]] = {
    "paged_adamw_8bit": ("adamw-8bit", None), "paged_adamw_32bit": ("adamw-32bit", None), "paged_lion_32bit": ("lion-32bit", None),
    "paged_lion_8bit": ("lion-8bit", None), "paged_ademamix_32bit": ("ademamix", None), "paged_ademamix_8bit": ("ademamix-8bit", None),
}  # fmt: skip

_FUSED = ("auto", "sdpa", "fa2", "flash_attention_2")  # attention without a matrix of scores

# Switches of liger-kernel by the keys of axolotl's plugin (integrations/liger/plugin.py), which turns all others off.
OF_AXOLOTL = {
    "liger_rope": ("rope",), "liger_rms_norm": ("rms_norm",), "liger_swiglu": ("swiglu", "geglu"),
    "liger_glu_activation": ("swiglu", "geglu"), "liger_cross_entropy": ("cross_entropy",),
    "liger_fused_linear_cross_entropy": ("fused_linear_cross_entropy",),
}  # fmt: skip

# Keys of TrainingArguments, but for those that are read.
REFUSED = {PARTIAL: "optim_target_modules", "the batch size is found while it runs": "auto_find_batch_size"}
OMITTED = {
    COMPILED: "torch_compile torch_compile_backend torch_compile_mode",
    DEVICES: "deepspeed fsdp fsdp_config parallelism_config accelerator_config",
}  # fmt: skip
IGNORED = {
    DATA: (
        "remove_unused_columns label_names train_sampling_strategy length_column_name dataloader_drop_last dataloader_num_workers "
        "dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context "
        "dataloader_in_order group_by_length"
    ),
    RUNS: (
        "output_dir overwrite_output_dir torch_empty_cache_steps logging_strategy logging_steps logging_first_step log_on_each_node "
        "logging_nan_inf_filter logging_dir include_num_input_tokens_seen log_level log_level_replica disable_tqdm report_to run_name "
        "project trackio_space_id trackio_bucket_id trackio_static_space_id eval_strategy evaluation_strategy eval_steps eval_delay "
        "per_device_eval_batch_size prediction_loss_only eval_on_start eval_do_concat_batches eval_use_gather_object "
        "eval_accumulation_steps include_for_metrics batch_eval_metrics save_only_model save_strategy save_steps save_on_each_node "
        "save_total_limit save_safetensors enable_jit_checkpoint push_to_hub hub_token hub_private_repo hub_model_id hub_strategy "
        "hub_always_push hub_revision load_best_model_at_end metric_for_best_model greater_is_better ignore_data_skip "
        "restore_callback_states_from_checkpoint full_determinism seed data_seed tf32 bf16_full_eval fp16_full_eval "
        "ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout debug "
        "skip_memory_metrics do_train do_eval do_predict resume_from_checkpoint local_rank use_cache "
        "gradient_checkpointing_kwargs activation_checkpointing_kwargs"
    ),
    TUNES: (
        "num_train_epochs learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio optim_args weight_decay adam_beta1 "
        "adam_beta2 adam_epsilon average_tokens_across_devices max_grad_norm label_smoothing_factor neftune_noise_alpha"
    ),
}


def batch() -> dict[str, Source]:
    """Return the batch size of a device, the accumulated batches and the steps."""
    return {
        "training.batch_size": size("per_device_train_batch_size", 8),
        "training.gradient_accumulation": size("gradient_accumulation_steps", 1),
        **steps(),
    }


def steps() -> dict[str, Source]:
    """Return the steps, of which there is no limit unless they are positive."""

    def limit(c: Reading) -> int | None:
        given = c.value("max_steps")
        return None if given is None or alike(given, -1) or alike(given, 0) else positive(c, "max_steps", given)

    return {"training.steps": code(limit, "max_steps")}


def optimizer(name: str) -> dict[str, Source]:
    """Return the optimizer under the key ``name``, its kernel, and whether its state is paged."""

    def given(c: Reading) -> object:
        found = c.found(name)
        return found[1] if found else c.own("adamw_torch_fused")

    def chosen(c: Reading) -> tuple[str, str | None]:
        known, value = _OPTIMIZERS | _PAGED, given(c)
        if not isinstance(value, str) or value not in known:
            raise c.unsupported(name, value, known)
        return known[value]

    return {
        "training.optimizer": code(lambda c: chosen(c)[0], name),
        "training.optimizer_kernel": code(lambda c: chosen(c)[1], name),
        "training.paged": code(lambda c: given(c) in _PAGED or None, name),
    }


def attention(name: str, *others: str, eager: object = "eager") -> dict[str, Source]:
    """Return the implementation: the modules of transformers, with fused attention unless it is switched off under one of the keys."""

    def chosen(c: Reading) -> str:
        given = c.value(name)
        if given == eager or any(is_on(c.value(other)) for other in others):
            return "transformers-eager"
        if given is not None and given not in _FUSED:
            c.omits.append(f"{KERNELS} ({name}: {show(given)[1:-1]})")
        return "transformers"

    return {"training.implementation": code(chosen, name, *others)}


def reentrant(default: Callable[[Reading], bool]) -> dict[str, Source]:
    """Return whether recomputation is reentrant, by its arguments or the program's default."""
    name = "gradient_checkpointing_kwargs.use_reentrant"

    def chosen(c: Reading) -> bool | None:
        given = c.value(name)
        on = default(c) if given is None else is_on(given)
        return (on and c["training.recompute"] == "full") or None

    return {"training.reentrant": code(chosen, name)}


def padded(packing: Iterable[str], name: str, *others: str) -> dict[str, Source]:
    """Return whether fused attention of PyTorch, or eager attention, gets a mask: samples are padded unless a key of ``packing`` is on.

    A batch of one sample has no padding. ``name`` and ``others`` are keys of the kind of attention.
    """
    packs = tuple(packing)

    def masks(c: Reading) -> bool | None:
        own = c.value(name) in (None, "auto", "sdpa", "eager", "disabled") and not any(is_on(c.value(other)) for other in others)
        return (own and c["training.batch_size"] > 1 and not any(is_on(c.value(one)) for one in packs)) or None

    return {"training.padding": code(masks, *packs, name, *others)}


def liger(name: str, config: str | None = "liger_kernel_config") -> dict[str, Source]:
    """Return liger-kernel's defaults if the key ``name`` is on, or the switches under the key ``config``."""

    def chosen(c: Reading) -> object:
        if not is_on(c.value(name)):
            return None
        given = c.at(config) if config else None
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(on, bool) for on in given.values())):
            raise c.refusal(f"`{config}: {show(given)}` is not a mapping of switches")
        return {switch: on for switch, on in (given or {}).items() if switch in NAMES} or True

    return {"training.liger": code(chosen, name, *([config] if config else []))}


def liger_of_axolotl() -> dict[str, Source]:
    """Return the switches of axolotl's plugin, if any is on."""

    def chosen(c: Reading) -> object:
        on = {switch for key, switches in OF_AXOLOTL.items() if is_on(c.value(key)) for switch in switches}
        return {name: name in on for name in NAMES} if on else None

    return {"training.liger": code(chosen, *OF_AXOLOTL)}
