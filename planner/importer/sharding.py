"""Layouts in DeepSpeed's JSON, in accelerate's YAML and in the arguments of transformers' Trainer.

Read from DeepSpeed 0.19 (runtime/config.py, runtime/zero/config.py), accelerate 1.12 (utils/dataclasses.py, utils/fsdp_utils.py,
commands/config/cluster.py) and transformers 5.24 (training_args.py, integrations/deepspeed.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importer.laid import Laid, number
from planner.importer.reader import Config, UnsupportedConfigError, show

TRAINERS = ("TRL", "axolotl", "LLaMA-Factory")
ARGUMENTS = "TrainingArguments"
AUTO = "auto"
_STAGES = {0: "ddp", 1: "zero1", 2: "zero2", 3: "fsdp"}
_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")  # in files also by number, from 1
_HALF = ("bf16", "fp16")
_SIZES = {  # of zero_optimization, with what transformers makes of auto: multiples of d_model or of its square
    "reduce_bucket_size": "reduce_bucket_size",
    "stage3_param_persistence_threshold": "persistence_threshold",
    "stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "stage3_max_live_parameters": "max_live_parameters",
    "stage3_max_reuse_distance": "max_reuse_distance",
}
_ZERO = (  # read, or without memory of its own
    "stage", "overlap_comm", "offload_optimizer", "offload_param", "cpu_offload", "contiguous_gradients", "reduce_scatter",
    "allgather_partitions", "allgather_bucket_size", "round_robin_gradients", "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save", "stage3_use_all_reduce_for_fetch_params", "ignore_unused_parameters",
    "load_from_fp32_weights", "elastic_checkpoint", "legacy_stage1", "log_trace_cache_warnings",
)  # fmt: skip
_SUB_GROUP = 1e9  # elements: the default of sub_group_size, which is planned
_OF_DEEPSPEED = (
    "activation_checkpointing amp communication_data_type compression_training curriculum_learning moe pipeline prescale_gradients "
    "sparse_attention torch_autocast"
)
_OF_PARALLELISM = "sp_backend sp_attn_implementation ep_size"


def program_of(config: Config) -> str:
    """Return the program of a file that divides a model among devices and has no model of its own."""
    if "distributed_type" in config or "compute_environment" in config:
        return "accelerate"
    if any(key in config for key in ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size")):
        return "DeepSpeed"
    return ARGUMENTS if any(key in config for key in ("fsdp", "fsdp_config", "deepspeed")) else ""


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of a file
    """Return a value that is written as text: a switch, a number, or nothing."""
    text = str(value).lower()
    if text in ("true", "yes", "false", "no"):
        return text in ("true", "yes")
    return int(text) if text.isdigit() and not isinstance(value, bool) else value


def deepspeed(laid: Laid, config: Config) -> None:
    """Read DeepSpeed's configuration. What is ``auto``, the program that calls DeepSpeed sets."""
    zero = laid.section(config, "zero_optimization")
    stage = zero.get("stage", 0)
    if type(stage) is not int or stage not in _STAGES:
        raise UnsupportedConfigError(f"`zero_optimization.stage: {show(stage)}` is none of 0, 1, 2, 3")
    tp = laid.degree("tensor_parallel", laid.section(config, "tensor_parallel"), "autotp_size")
    cp = laid.degree("context_parallel", config, "sequence_parallel_size")
    if cp > 1:
        laid.put("context_kind", "ulysses", "sequence_parallel_size")
    laid.put("data_parallel", _STAGES[stage], "zero_optimization.stage")
    laid.put("engine", "deepspeed", "")
    buckets(laid, zero)
    _batch(laid, config, laid.devices // (tp * cp) or 1)
    _half(laid, config)
    kind = laid.section(config, "optimizer").get("type")
    if str(kind).lower() in ("adam", "adamw"):
        laid.training["optimizer"] = str(kind).lower()
    elif kind is not None:
        laid.notes.append(f"`optimizer.type: {show(kind)}` is not read; write training.optimizer")
    laid.unsaid(config, _OF_DEEPSPEED)


def buckets(laid: Laid, zero: Config) -> None:
    """Read the sizes of zero_optimization, and what is in host memory."""
    for theirs, ours in _SIZES.items():
        if (size := _size(laid, zero, theirs)) is not None and (zero.get("stage") == 3 or ours == "reduce_bucket_size"):  # noqa: PLR2004 - ZeRO-3
            laid.put(ours, size, theirs)
    if isinstance(zero.get("overlap_comm"), bool):
        laid.put("overlap_comm", zero["overlap_comm"], "overlap_comm")
    _offload(laid, zero)
    planned = {*_ZERO, *_SIZES, *(["sub_group_size"] if zero.get("sub_group_size") == _SUB_GROUP else [])}
    laid.unsaid(zero, " ".join(key for key in zero if key not in planned))


def _size(laid: Laid, zero: Config, name: str) -> int | None:
    """Return a number of elements, which may be written as 5e8, or what transformers makes of ``auto``."""
    given, width = zero.get(name), laid.width
    if given == AUTO:
        automatic = {
            "reduce_bucket_size": width * width,
            "stage3_prefetch_bucket_size": int(0.9 * width * width),
            "stage3_param_persistence_threshold": 10 * width,
        }
        return automatic.get(name) or None
    if given is None or (isinstance(given, int | float) and not isinstance(given, bool) and given > 0):
        return None if given is None else int(given)
    raise UnsupportedConfigError(f"`{name}: {show(given)}` is not a positive number")


def _offload(laid: Laid, zero: Config) -> None:
    """Read what is in host memory, or on a disk, which is planned as host memory."""
    for name, what in (("offload_optimizer", "optimizer"), ("offload_param", "weights")):
        given = zero.get(name)
        device = given.get("device", "none") if isinstance(given, Mapping) else "none"
        if device not in (None, "none"):
            laid.put("offload", what, name)
        if device == "nvme":
            laid.notes.append(f"`{name}.device: nvme` is planned as host memory")
    if zero.get("cpu_offload") is True:
        laid.put("offload", "optimizer", "cpu_offload")


def _batch(laid: Laid, config: Config, data: int) -> None:
    """Read the sequences of a pass and of a step: DeepSpeed derives the one that is missing (_set_batch_related_parameters)."""
    names = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    each, passes, step = (None if config.get(name) == AUTO or config.get(name) is None else number(config, name, 1) for name in names)
    if step and not each:
        each = step // (data * (passes or 1)) or 1
    if each:
        laid.training["batch_size"] = each
    if step:
        laid.train_on(step)
    elif passes:
        laid.training["gradient_accumulation"] = passes


def _half(laid: Laid, config: Config) -> None:
    """Read the precision: 16-bit weights with float32 master weights, and the dtype in which gradients are added up."""
    half = next((name for name in _HALF if laid.section(config, name).get("enabled") is True), None)
    if half:
        given = laid.section(config, "data_types").get("grad_accum_dtype") or half
        laid.training |= {"precision": f"{half}-master", "gradient_dtype": given}


def accelerate(laid: Laid, config: Config) -> None:
    """Read accelerate's configuration."""
    kind, half = str(config.get("distributed_type", "NO")).upper(), str(config.get("mixed_precision"))
    if config.get("num_processes") is not None and (count := number(config, "num_processes", 1)) != laid.devices:
        raise UnsupportedConfigError(f"`num_processes: {count}` contradicts --cluster {laid.devices}x{laid.device}")
    nodes = number(config, "num_machines", 1)
    if kind == "DEEPSPEED":
        section = laid.section(config, "deepspeed_config")
        named = laid.section(section, "deepspeed_config_file") if section.get("deepspeed_config_file") != "none" else {}
        deepspeed(laid, named or _zero(section) | {name: {"enabled": half == name} for name in _HALF})
    elif kind == "FSDP":
        _parallelism(laid, config)
        _fsdp(laid, laid.section(config, "fsdp_config"), nodes, 1)
        if half in _HALF:
            laid.training |= {"precision": f"{half}-master", "gradient_dtype": half}
    elif kind == "MULTI_GPU":
        _parallelism(laid, config)
    else:
        kinds = "DEEPSPEED, FSDP, MEGATRON_LM, MULTI_GPU"
        raise UnsupportedConfigError(f"`distributed_type: {show(config.get('distributed_type'))}` is not read; expected one of {kinds}")


def _zero(section: Config) -> dict[str, Any]:
    """Return DeepSpeed's configuration of accelerate's own keys."""
    zero = {
        "stage": plain(section.get("zero_stage", 2)),
        "offload_optimizer": {"device": section.get("offload_optimizer_device", "none")},
        "offload_param": {"device": section.get("offload_param_device", "none")},
    }
    return {"zero_optimization": zero, "gradient_accumulation_steps": plain(section.get("gradient_accumulation_steps"))}


def _parallelism(laid: Laid, config: Config) -> None:
    """Read the degrees of accelerate's ParallelismConfig."""
    given = laid.section(config, "parallelism_config")
    sizes = {str(key).removeprefix("parallelism_config_"): plain(value) for key, value in given.items()}
    tp = laid.degree("tensor_parallel", sizes, "tp_size")
    cp = laid.degree("context_parallel", sizes, "cp_size", "sp_size")
    if cp > 1:
        ring = sizes.get("cp_size") not in (None, 1)
        laid.context(sizes.get("cp_comm_strategy", "allgather") if ring else "ulysses", "cp_comm_strategy" if ring else "sp_size")
    replicas = number(sizes, "dp_replicate_size", 1)
    if replicas > 1:
        _hybrid(laid, laid.devices // (tp * replicas), "dp_shard_size")
    laid.unsaid(sizes, _OF_PARALLELISM)


def _hybrid(laid: Laid, shards: int, origin: str) -> None:
    laid.put("data_parallel", "hsdp", origin)
    laid.put("shard_degree", shards, origin)


def _fsdp(laid: Laid, given: Config, nodes: int, default: int) -> None:
    """Read the options of FSDP, with or without their prefix. ``default``: the version that runs if none is given."""
    options = {str(key).removeprefix("fsdp_"): plain(value) for key, value in given.items()}
    version, (key, name) = number(options, "version", default), _strategy(options)
    if name == "NO_SHARD":
        return
    if "data_parallel" not in laid.settings:
        if name.startswith("HYBRID"):
            _hybrid(laid, laid.devices // nodes, key)
        else:
            laid.put("data_parallel", "fsdp", key)
    kept = name in ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2")
    laid.put("reshard_after_forward", "never" if kept else "auto" if version == 1 else "always", key)
    laid.reduces_in_half = True
    if version == 1:
        laid.notes.append("`fsdp_version: 1` is planned as FSDP2: flat parameters and their padding are not")
    if str(options.get("auto_wrap_policy")).upper() == "NO_WRAP":
        laid.put("shard_group", "none", "auto_wrap_policy")
    if any(options.get(name) is True for name in ("offload_params", "cpu_offload")):
        laid.put("offload", "weights", "offload_params")
    if options.get("activation_checkpointing") is True:
        laid.training["recompute"] = "full"
    laid.notes.append(
        "FSDP's mixed precision is planned without accelerate's autocast, which computes some operators, such as norms, in float32"
    )
    laid.unsaid(options, "min_num_params xla ignored_modules")


def _strategy(options: Config) -> tuple[str, str]:
    """Return what FSDP shares, with the key that states it, where it may be a name, a number or a switch."""
    key = "reshard_after_forward" if "reshard_after_forward" in options else "sharding_strategy"
    given = options.get(key, True)
    if type(given) is bool:
        return key, _STRATEGIES[not given]
    name = _STRATEGIES[given - 1] if type(given) is int and 0 < given <= len(_STRATEGIES) else str(given).upper()
    if name not in _STRATEGIES:
        raise UnsupportedConfigError(f"`{key}: {show(given)}` is none of {', '.join(_STRATEGIES)}")
    return key, name


def trainer(laid: Laid, config: Config) -> None:
    """Read the arguments of transformers' Trainer, and the keys that fine-tuning programs add."""
    nested = {name: laid.section(config, name) for name in ("deepspeed", "fsdp_config") if config.get(name) not in (None, False, "")}
    fsdp = config.get("fsdp")
    degrees = {name.replace("parallel_size", "size"): config.get(name) for name in ("dp_replicate_size", "dp_shard_size")}
    names = {"tensor_parallel_size": "tp_size", "context_parallel_size": "cp_size"}
    degrees |= {ours: config.get(theirs) for theirs, ours in names.items()}
    _parallelism(laid, {"parallelism_config": {name: value for name, value in degrees.items() if value is not None}})
    if "deepspeed" in nested:
        deepspeed(laid, nested["deepspeed"])
    elif fsdp or "fsdp_config" in nested or laid.settings.get("data_parallel"):
        words = fsdp.split() if isinstance(fsdp, str) else fsdp if isinstance(fsdp, list) else []
        options = {str(key).removeprefix("fsdp_"): value for key, value in nested.get("fsdp_config", {}).items()}
        version = {"version": config["fsdp_version"]} if config.get("fsdp_version") is not None else {}
        strategy = [("reshard_after_forward", word) for word in words if str(word).upper() in _STRATEGIES]
        offloads = {"cpu_offload": True} if "offload" in words else {}
        _fsdp(laid, version | dict(strategy[:1]) | offloads | options, 1, 2)
    laid.unsaid(config, "parallelism_config expert_parallel_size sequence_parallel_degree")
