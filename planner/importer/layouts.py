"""Layouts of several devices in the configurations of other programs, and the names of each key there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from planner.importer import sharding
from planner.importer.format import flattened
from planner.importer.laid import Laid, number
from planner.importer.reader import Config, UnsupportedConfigError


@dataclass(frozen=True, slots=True)
class Named:
    """A key of a layout, or of the training beside it, and its names in other programs; empty if they have none."""

    key: str
    megatron: str = ""
    torchtitan: str = ""
    deepspeed: str = ""
    accelerate: str = ""  # and transformers' Trainer, whose fsdp_config has the keys without fsdp_


_BUCKETS = "persistence_threshold max_live_parameters max_reuse_distance prefetch_bucket_size"
_OF_PARALLELISM = "parallelism_config_"
TABLE = (
    Named(
        "tensor_parallel",
        "--tensor-model-parallel-size",
        "parallelism.tensor_parallel_degree",
        "tensor_parallel.autotp_size",
        f"{_OF_PARALLELISM}tp_size",
    ),
    Named("sequence_parallel", "--sequence-parallel", "(on with tensor parallelism)"),
    Named("loss_parallel", "(on with tensor parallelism)", "parallelism.disable_loss_parallel (negated)"),
    Named("pipeline_parallel", "--pipeline-model-parallel-size", "parallelism.pipeline_parallel_degree", "(stages of PipelineModule)"),
    Named("virtual_stages", "--num-virtual-stages-per-pipeline-rank", "parallelism.pipeline_parallel_layers_per_stage (layers)"),
    Named(
        "first_stage_layers",
        "--decoder-first-pipeline-num-layers, --account-for-embedding-in-pipeline-split",
        "parallelism.pipeline_parallel_first_stage_less_layers (difference)",
    ),
    Named(
        "last_stage_layers",
        "--decoder-last-pipeline-num-layers, --account-for-loss-in-pipeline-split",
        "parallelism.pipeline_parallel_last_stage_less_layers (difference)",
    ),
    Named("schedule", "(1f1b, or interleaved with virtual stages)", "parallelism.pipeline_parallel_schedule", "(1f1b)"),
    Named(
        "context_parallel",
        "--context-parallel-size",
        "parallelism.context_parallel_degree",
        "sequence_parallel_size",
        f"{_OF_PARALLELISM}cp_size",
    ),
    Named(
        "context_kind",
        "--cp-comm-type",
        "parallelism.context_parallel_rotate_method",
        "(ulysses)",
        f"{_OF_PARALLELISM}cp_comm_strategy",
    ),
    Named("expert_parallel", "--expert-model-parallel-size", "parallelism.expert_parallel_degree", "(ep_size of MoE)"),
    Named("expert_tensor_parallel", "--expert-tensor-parallel-size", "parallelism.expert_tensor_parallel_degree"),
    Named(
        "data_parallel",
        "--use-distributed-optimizer (zero1)",
        "parallelism.data_parallel_shard_degree (fsdp)",
        "zero_optimization.stage",
        "distributed_type, fsdp_sharding_strategy",
    ),
    Named("shard_degree", "", "parallelism.data_parallel_shard_degree", "", f"{_OF_PARALLELISM}dp_shard_size"),
    Named("shard_group", "", "(titan)", "", "fsdp_auto_wrap_policy"),
    Named("reshard_after_forward", "", "parallelism.fsdp_reshard_after_forward", "", "fsdp_reshard_after_forward"),
    Named(
        "offload",
        "",
        "training.enable_cpu_offload (refused)",
        "zero_optimization.offload_optimizer, zero_optimization.offload_param",
        "fsdp_offload_params",
    ),
    Named("reduce_bucket_size", "", "", "zero_optimization.reduce_bucket_size"),
    Named("overlap_comm", "", "", "zero_optimization.overlap_comm"),
    *(Named(name, "", "", f"zero_optimization.stage3_{name.replace('persistence', 'param_persistence')}") for name in _BUCKETS.split()),
    Named("training.batch_size", "--micro-batch-size", "training.local_batch_size", "train_micro_batch_size_per_gpu"),
    Named("training.global_batch_size", "--global-batch-size", "training.global_batch_size", "train_batch_size"),
    Named("training.gradient_dtype", "(fp32)", "(fp32)", "data_types.grad_accum_dtype", "mixed_precision"),
)


def layout_of(program: str, config: Config, n_layers: int, laid: Laid) -> Laid:
    """Return the layout of a configuration on devices of a cluster. Raises UnsupportedConfigError."""
    program = sharding.program_of(config) if program not in READERS else program
    if program not in READERS:
        raise UnsupportedConfigError(f"layouts are read from configurations of {', '.join(READERS)}")
    READERS[program](laid, config, n_layers)
    return laid


def _megatron(laid: Laid, config: Config, n_layers: int) -> None:
    config = {str(key).removeprefix("--").replace("-", "_"): value for key, value in flattened(config).items()}
    tp = laid.degree("tensor_parallel", config, "tensor_model_parallel_size", "model_parallel_size")
    pp = laid.degree("pipeline_parallel", config, "pipeline_model_parallel_size")
    cp = laid.degree("context_parallel", config, "context_parallel_size")
    laid.degree("expert_parallel", config, "expert_model_parallel_size")
    if config.get("expert_tensor_parallel_size") is not None:
        laid.put("expert_tensor_parallel", number(config, "expert_tensor_parallel_size", 1), "expert_tensor_parallel_size")
    if cp > 1:
        laid.context(config.get("cp_comm_type") or "p2p", "cp_comm_type")
    if config.get("sequence_parallel") and tp > 1:
        laid.put("sequence_parallel", True, "sequence_parallel")
    each = "num_layers_per_virtual_pipeline_stage"
    counted = {f"{end}_stage_layers": name for end, name in _COUNTED.items() if config.get(name)}
    every = n_layers + len(counted)
    count = number(config, "num_virtual_stages_per_pipeline_rank", every // (pp * number(config, each, max(every, 1))) or 1)
    if count > 1:
        laid.put("virtual_stages", count, each if config.get(each) else "num_virtual_stages_per_pipeline_rank")
        laid.put("schedule", "interleaved", "with virtual stages")
    for end, name in _COUNTED.items():
        written = f"decoder_{end}_pipeline_num_layers"
        if name in counted.values():
            laid.put(f"{end}_stage_layers", every // (pp * count) - 1, name)
        elif config.get(written) is not None and count == 1:
            laid.put(f"{end}_stage_layers", number(config, written, 1), written)
    if config.get("use_distributed_optimizer") and laid.devices > tp * pp * cp:
        laid.put("data_parallel", "zero1", "use_distributed_optimizer")
    laid.train_on(config.get("global_batch_size"))
    laid.unsaid(
        config,
        "pipeline_model_parallel_layout use_torch_fsdp2 use_megatron_fsdp num_distributed_optimizer_instances optimizer_cpu_offload",
    )
    if count > 1:  # they count the layers of all stages of a device
        laid.unsaid(config, "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers")


_COUNTED = {"first": "account_for_embedding_in_pipeline_split", "last": "account_for_loss_in_pipeline_split"}
"""Megatron's settings that count the embedding and the loss as a layer each when layers are divided among stages."""


_SCHEDULES = {
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved1f1b": "interleaved",
    "interleavedzerobubble": "zero_bubble",
    "zbvzerobubble": "zbv",
}


def _torchtitan(laid: Laid, config: Config, n_layers: int) -> None:
    given = config.get("parallelism", {})
    parallelism: Config = given if isinstance(given, Mapping) else {}
    tp = laid.degree("tensor_parallel", parallelism, "tensor_parallel_degree")
    pp = laid.degree("pipeline_parallel", parallelism, "pipeline_parallel_degree")
    cp = laid.degree("context_parallel", parallelism, "context_parallel_degree")
    laid.degree("expert_parallel", parallelism, "expert_parallel_degree")
    if tp > 1:
        laid.put("sequence_parallel", True, "tensor_parallel_degree")
        laid.put("loss_parallel", not parallelism.get("disable_loss_parallel", False), "disable_loss_parallel")
    if pp > 1:
        name = str(parallelism.get("pipeline_parallel_schedule", "1F1B"))
        laid.put("schedule", _SCHEDULES.get(name.lower(), name), "pipeline_parallel_schedule")
        _cut_by_torchtitan(laid, parallelism, n_layers, pp, usual=1 if name.lower() in ("1f1b", "gpipe") else 2)
    if cp > 1:
        laid.context(parallelism.get("context_parallel_rotate_method", "allgather"), "context_parallel_rotate_method")
    replicas, rest = number(parallelism, "data_parallel_replicate_degree", 1), "data_parallel_shard_degree"
    every = parallelism.get(rest) in (None, -1)
    shards = laid.devices // (prod((tp, pp, cp)) * replicas) if every else number(parallelism, rest, 1)
    if shards > 1:
        laid.put("data_parallel", "hsdp" if replicas > 1 else "fsdp", "data_parallel_shard_degree")
        laid.put("shard_group", "titan", "as torchtitan groups weights")
        if replicas > 1:
            laid.put("shard_degree", shards * cp, "data_parallel_shard_degree")
        reshard = parallelism.get("fsdp_reshard_after_forward", "default")
        laid.put("reshard_after_forward", {"default": "never" if pp > 1 else "auto"}.get(reshard, reshard), "fsdp_reshard_after_forward")
    training = laid.section(config, "training")
    laid.train_on(training.get("global_batch_size"))
    laid.unsaid(parallelism, "enable_async_tensor_parallel expert_tensor_parallel_degree module_fqns_per_model_part")


def _cut_by_torchtitan(laid: Laid, parallelism: Config, n_layers: int, pp: int, *, usual: int) -> None:
    """Write the layers of stages, which embedding and head count as layers of. ``usual``: stages per device of the schedule."""
    less = {end: number(parallelism, f"pipeline_parallel_{end}_stage_less_layers", 1, least=0) for end in ("first", "last")}
    every, each = n_layers + sum(less.values()), "pipeline_parallel_layers_per_stage"
    stages = -(-every // number(parallelism, each, 1)) if parallelism.get(each) is not None else pp * usual
    if stages > pp:
        laid.put("virtual_stages", stages // pp, each)
    layers, more = divmod(every, stages)
    if more:
        laid.notes.append(f"torchtitan gives the first {more} of {stages} stages a layer more, which has no key in a layout")
    for end, fewer in less.items() if not more else ():
        if 0 < fewer <= layers:
            laid.put(f"{end}_stage_layers", layers - fewer, f"pipeline_parallel_{end}_stage_less_layers")


def _neox(laid: Laid, config: Config, _: int) -> None:
    flat = {key.replace("-", "_"): value for key, value in config.items() if isinstance(key, str)}
    tp = laid.degree("tensor_parallel", flat, "model_parallel_size")
    pp = laid.degree("pipeline_parallel", flat, "pipe_parallel_size") if flat.get("pipe_parallel_size") else 1
    zero = flat.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
    if stage and laid.devices > tp * pp:
        laid.put("data_parallel", {1: "zero1", 2: "zero2", 3: "fsdp"}.get(stage, stage), "zero_optimization.stage")
        laid.put("engine", "deepspeed", "GPT-NeoX runs on DeepSpeed")
        sharding.buckets(laid, laid.section(flat, "zero_optimization"))
    laid.train_on(flat.get("train_batch_size"))
    laid.unsaid(flat, "sequence_parallel pipe_partition_method")


def _accelerate(laid: Laid, config: Config, n_layers: int) -> None:
    """Read accelerate's file, whose section for Megatron-LM has names of its own."""
    given = laid.section(config, "megatron_lm_config")
    if str(config.get("distributed_type")).upper() != "MEGATRON_LM":
        sharding.accelerate(laid, config)
        return
    names = {
        "tp_degree": "tensor_model_parallel_size",
        "pp_degree": "pipeline_model_parallel_size",
        "sequence_parallelism": "sequence_parallel",
        "use_distributed_optimizer": "use_distributed_optimizer",
    }
    _megatron(laid, {theirs: sharding.plain(given.get(f"megatron_lm_{ours}")) for ours, theirs in names.items()}, n_layers)
    laid.training["implementation"] = "megatron-core"


READERS: Mapping[str, Callable[[Laid, Config, int], None]] = {
    "Megatron-LM": _megatron,
    "torchtitan": _torchtitan,
    "GPT-NeoX": _neox,
    "DeepSpeed": lambda laid, config, _: sharding.deepspeed(laid, config),
    "accelerate": _accelerate,
    **dict.fromkeys((*sharding.TRAINERS, sharding.ARGUMENTS), lambda laid, config, _: sharding.trainer(laid, config)),
}
