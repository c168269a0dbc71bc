"""How Megatron-LM's arguments train: precision, optimizer, batch, recomputation; and what of them a plan for one device leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importer.engine import Reading, Settings
from planner.importer.keys import *
from planner.importer.reader import show
from planner.spec.key import keys
from planner.spec.records import RecomputeModules

_BF16, _FP16 = flag("bf16"), flag("fp16")
_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
_DIGITS = 7  # of a number of devices
_FLOAT32 = (None, "fp32", "torch.float32")

# Switches of one device's memory that a spec cannot express.
_UNPLANNED = (
    "cpu_offloading_num_layers", "cpu_optimizer", "distribute_saved_activations", "fine_grained_activation_offloading",
    "fp16_lm_cross_entropy", "fp32_residual_connection", "fp4", "fp4_format", "fp4_param_gather", "fp8", "fp8_e4m3", "fp8_format",
    "fp8_hybrid", "fp8_param_gather", "logit_dtype", "memory_centric_tiled_linear", "moe_expert_capacity_factor", "moe_paged_stash",
    "optimizer_cpu_offload", "output_logit_dtype", "use_bnb_optimizer", "use_custom_fsdp", "use_megatron_fsdp", "use_torch_fsdp2",
)  # fmt: skip
_GRADIENTS = ("grad_reduce_in_bf16", "main_grads_dtype", "accumulate_allreduce_grads_in_fp32")
_NUMBERS_RECOMPUTED = ("recompute_num_layers", "activations_checkpoint_num_layers", "checkpoint_num_layers")
_RECOMPUTED = (
    *_NUMBERS_RECOMPUTED, "recompute_granularity", "recompute_activations", "recompute_modules", "recompute_method",
    "activations_checkpoint_method", "checkpoint_activations",
)  # fmt: skip
_GROWS = ("rampup_batch_size", "step_batch_size_schedule")
_TOKENS = (*_GROWS, "train_tokens", "train_samples", "train_iters", "seq_length", "encoder_seq_length")
_LAYOUT = (
    *_PARALLEL,
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "model_parallel_size",
    "pipe_parallel_size",
    "moe_expert_parallel_size",
    "ds_sequence_parallel_size",
)
_SWITCHES = ("sequence_parallel", "use_distributed_optimizer", "zero_stage")
# Arguments that only older versions and DeepSpeed's fork have, whose layers are not Transformer Engine's.
_OLDER = ("DDP_impl", "activations_checkpoint_method", "checkpoint_activations", "deepspeed", "deepspeed_config", "zero_stage")
_FUSES = when(flag("no_gradient_accumulation_fusion"), False, when(flag("gradient_accumulation_fusion", True), None, False))
_MASKS = when(flag("no_create_attention_mask_in_dataloader"), False, when(flag("create_attention_mask_in_dataloader", True), None, False))
_FLOAT8 = ("fp8", "fp8_format", "fp8_e4m3", "fp8_hybrid")
_MODULES = tuple(one.name for one, _ in keys(RecomputeModules))
_KERNELS = {"auto": None, "flash": "flash", "fused": "cudnn", "unfused": "math", "local": "math"}
_BACKENDS = {**_KERNELS, **{f"AttnBackend.{name}": kernel for name, kernel in _KERNELS.items()}}


def _precision(c: Reading) -> str:
    if c.of(_BF16) and c.of(_FP16):
        raise c.refusal("`bf16` and `fp16` exclude each other")
    return "bf16-master" if c.of(_BF16) else "fp16-master" if c.of(_FP16) else "fp32"


def _gradient_dtype(c: Reading) -> str | None:
    """Return the dtype of the gradients where it is not the precision's default: float32 with bf16, float16 with fp16."""
    if c.of(_BF16):
        lower = c.of(flag("grad_reduce_in_bf16")) or c.value("main_grads_dtype") in ("bf16", "torch.bfloat16")
        return "bf16" if lower else None
    return "fp32" if c.of(_FP16) and c.of(flag("accumulate_allreduce_grads_in_fp32")) else None


def _recompute(c: Reading) -> str | None:
    """Return what is recomputed; only all layers or the inside of attention can be expressed."""
    older = c.of(choice("activations_checkpoint_method", {"uniform": True, "block": True}, False)) or c.of(flag("checkpoint_activations"))
    chosen = c.of(choice("recompute_granularity", {"full": "full", "selective": "selective"}, "full" if older else None))
    if c.of(flag("recompute_activations")):
        chosen = "selective"
    if chosen == "full":
        method = c.value("recompute_method", "activations_checkpoint_method") or "uniform"
        name, number = c.found(*_NUMBERS_RECOMPUTED) or ("", 1)
        stages = c.of(size("pipeline_model_parallel_size", 1))
        every = c["n_layers"] <= stages * positive(c, name, number) if method == "block" else alike(number, 1)
        if method not in ("uniform", "block") or not every:
            how = f"`recompute_method: {method}` with `{name}: {number}`"
            switch = next(one for one in ("recompute_granularity", "activations_checkpoint_method", "checkpoint_activations") if c.at(one))
            raise c.refusal(f"{how} does not recompute each layer by itself, which is not supported; plan without: --set {switch}=null")
    return str(chosen) if chosen else None


def _modules(c: Reading) -> dict[str, bool] | None:
    """Return the parts of a layer that selective recomputation recomputes, where they are not the default."""
    given = c.value("recompute_modules")
    if c["training.recompute"] != "selective" or given in (None, [], "core_attn", ["core_attn"]):
        return None
    chosen = given if isinstance(given, list) else str(given).split()
    if c["training.implementation"] != "megatron-core" or not all(name in _MODULES for name in chosen):
        supported = ", ".join(_MODULES) if c["training.implementation"] == "megatron-core" else "core_attn"
        raise c.refusal(f"`recompute_modules: {show(given)}` is not supported; supported: {supported}")
    return {name: name in chosen for name in _MODULES if (name in chosen) != (name == "core_attn")}


def _float8(c: Reading) -> bool | None:
    """Return whether linears multiply in float8, in a recipe that is modeled."""
    on = any(c.value(name) for name in _FLOAT8) and c.value("fp8_recipe") in (None, "delayed", "tensorwise")
    planned = on and c["training.implementation"] == "megatron-core" and c["training.precision"] == "bf16-master"
    return (planned and not c["experts.count"]) or None


def _implementation(c: Reading) -> str:
    """Return the stack: Transformer Engine's modules by default, or the fused one of 2022 for local modules and older versions."""
    return "megatron" if c.value("transformer_impl") == "local" or any(c.at(name) for name in _OLDER) else "megatron-core"


def _kernel(c: Reading) -> str | None:
    """Return the kernel of attention that the arguments choose."""
    chosen: str | None = c.of(choice("attention_backend", _BACKENDS, None))
    return chosen or ("flash" if c.value("use_flash_attn") else None)


def _optimizer(c: Reading) -> str:
    """Return the optimizer; Adam's weight decay is decoupled, and SGD has momentum."""
    names = {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon", "lion": "lion"}
    chosen, momentum = c.of(choice("optimizer", names, "adamw")), c.value("sgd_momentum")
    return "sgd-momentum" if chosen == "sgd" and momentum != 0 else str(chosen)


def _dropout(c: Reading) -> float | None:
    """Return the probability of both dropouts, the larger one if they differ."""
    found = []
    for name in ("attention_dropout", "hidden_dropout"):
        value = c.value(name)
        given = 0.1 if value is None else value
        if not isinstance(given, (int, float)) or isinstance(given, bool) or not 0 <= given < 1:
            raise c.refusal(f"`{name}: {show(given)}` is not a probability below 1")
        found.append(given)
    if found[0] != found[1]:
        c.notes.append(
            f"attention_dropout {found[0]} and hidden_dropout {found[1]} differ; a spec has one dropout, so the masks of both are counted"
        )
    return max(found) or None


def _data_parallel(c: Reading) -> int | None:
    """Return the number of replicas, or None if the file does not state it."""
    if (given := c.value("data_parallel_size")) is not None:
        return positive(c, "data_parallel_size", given)
    world = c.value("world_size")
    if world is None:
        return None
    size_of_model = 1
    for name in _PARALLEL:
        size_of_model *= c.of(size(name, 1))
    replicas, rest = divmod(positive(c, "world_size", world), size_of_model)
    return replicas if replicas and not rest else None


def _accumulation(c: Reading) -> int | None:
    """Return the micro-batches per step and replica."""
    micro, whole = c.value("micro_batch_size", "batch_size"), c.value("global_batch_size")
    if micro is None or whole is None:
        return None
    replicas = _data_parallel(c)
    passes, rest = divmod(positive(c, "global_batch_size", whole), positive(c, "micro_batch_size", micro) * (replicas or 1))
    if replicas is None or rest:
        c.notes.append(
            f"global_batch_size {whole} is not planned: gradient accumulation is {whole} / ({micro} · replicas), and the file does not "
            "state the number of replicas; give it with --set data_parallel_size=…"
        )
        return None
    return passes


def _tokens(c: Reading) -> int | None:
    """Return the tokens of the whole training."""
    if (tokens := c.value("train_tokens")) is not None:
        return positive(c, "train_tokens", tokens)
    length, samples, steps = c.value("seq_length", "encoder_seq_length"), c.value("train_samples"), c.value("train_iters")
    if length is None or (samples is None and steps is None):
        return None
    if samples is not None:
        return positive(c, "train_samples", samples) * positive(c, "seq_length", length)
    whole = c.value("global_batch_size")
    if any(c.at(name) for name in _GROWS):
        c.notes.append("the batch size grows during training, so the training tokens of train_iters are not planned")
        return None
    if whole is None:
        return None
    return positive(c, "train_iters", steps) * positive(c, "global_batch_size", whole) * positive(c, "seq_length", length)


def _omitted(c: Reading) -> None:
    """State what a plan for one device leaves out."""
    layout = [f"{name} {value}" for name in _LAYOUT if (value := c.value(name)) is not None and value != 1]
    layout += [name if value is True else f"{name} {value}" for name in _SWITCHES if (value := c.value(name))]
    if layout:
        c.omits.append(f"layout over devices ({', '.join(layout)}): figures are for the whole model on one device")
    for name in _UNPLANNED:
        if (value := c.value(name)) and not (name in _FLOAT8 and c["training.float8"]):
            c.omits.append(f"{name}{'' if value is True else f' {value}'}: bytes are those without it")
    fused = c.value("attention_backend") in (None, "auto", "flash", "fused", "AttnBackend.auto", "AttnBackend.flash", "AttnBackend.fused")
    if c["training.implementation"] == "megatron" and (fused or c.value("use_flash_attn")) and c["training.recompute"] is None:
        c.notes.append(
            "implementation: megatron counts the scores of unfused attention, which fused kernels do not save; recompute: selective "
            "saves what they save"
        )


TRAINING: Settings = {
    "training.batch_size": size("micro_batch_size batch_size", None),
    "training.sequence_length": size("seq_length encoder_seq_length", None),
    "training.gradient_accumulation": code(
        _accumulation, "micro_batch_size", "batch_size", "global_batch_size", "data_parallel_size", "world_size", *_PARALLEL
    ),
    "training.tokens": code(_tokens, *_TOKENS),
    "training.precision": code(_precision, _BF16, _FP16),
    "training.gradient_dtype": code(_gradient_dtype, *_GRADIENTS),
    "training.optimizer": code(_optimizer, "optimizer", "sgd_momentum"),
    "training.muon_experts": when(apply(lambda name: name == "muon", same("training.optimizer")), when(same("experts.count"), "each")),
    "training.dropout": code(_dropout, "attention_dropout", "hidden_dropout"),
    "training.recompute": code(
        _recompute,
        *_RECOMPUTED,
    ),
    "training.implementation": code(_implementation, "transformer_impl"),
    "training.float8": code(_float8, *_FLOAT8, "fp8_recipe"),
    "training.device": when(same("training.float8"), "h100", None),
    "training.recompute_modules": code(_modules, "recompute_modules"),
    **{
        f"training.{name}": when(apply(lambda stack: stack == "megatron-core", same("training.implementation")), source)
        for name, source in {
            "attention_kernel": code(_kernel, "attention_backend", "use_flash_attn"),
            "gradient_accumulation_fusion": _FUSES,
            "mask_in_data_loader": _MASKS,
            "cross_entropy_fusion": when(
                flag("cross_entropy_loss_fusion"), choice("cross_entropy_fusion_impl", {"te": "te", "native": "native"}, "native"), None
            ),
        }.items()
    },
    "training._omitted": code(_omitted, *_LAYOUT, *_SWITCHES, *_UNPLANNED, "attention_backend", "use_flash_attn"),
}
ONLY: Mapping[str, Any] = {
    **dict.fromkeys(("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"), _FLOAT32),
    "moe_layer_recompute": False,
    "use_precision_aware_optimizer": False,
}


def launched(launcher: Mapping[str, object]) -> dict[str, int]:
    """Return the number of devices that a launcher such as torchrun is given."""
    numbers = [launcher.get(name) for name in ("nproc_per_node", "nnodes")]
    numbers[1] = "1" if numbers[1] is None else numbers[1]
    if not all(isinstance(number, str) and number.isdecimal() and len(number) < _DIGITS for number in numbers):
        return {}
    return {"world_size": int(str(numbers[0])) * int(str(numbers[1]))}
