"""The layouts of several devices that are modeled, of PyTorch's own parallelism and of Megatron-Core; others are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from planner.capacity import deepspeed, megatron_refusals
from planner.capacity.context_parallel import NOT_AVERAGED, not_modeled
from planner.capacity.differing import differing
from planner.capacity.figures import EVERYTHING, Fleet, Memory, RankPeak, Weight
from planner.capacity.optimizers import MOMENTS
from planner.capacity.shares import Share
from planner.capacity.update import in_lists, of_weight
from planner.capacity.work import work
from planner.spec.precision import RECIPES, recipe_of
from planner.spec.records import Layout, Model, Training
from planner.spec.records.layout import DIVIDED
from planner.trace.classes import class_of
from planner.trace.decoder import Trace
from planner.trace.model_class import ModelClass
from planner.trace.sizes import Size
from planner.trace.unsupported import UnsupportedError

NOT_COUNTED = (
    (
        "NCCL's buffers, and fragmentation: cluster.reserve keeps memory free for them. In 43 published runs on 8 devices (SimuMax, B200), "
        "PyTorch reserved 3 to 9 % more memory than it allocated"
    ),
    "the first step, and loading the whole model before it is divided",
)


UNSHARDED = 3
"""Stages of a device whose weights PyTorch's schedules keep gathered (max_active_stages)."""


def left_out(training: Training) -> tuple[str, ...]:
    """Return what the figures of several devices leave out."""
    layout = training.layout
    if layout is None or layout.cluster.devices == 1:
        return ()
    averaged = layout.context_parallel == 1 or layout.data_parallel in ("fsdp", "hsdp") or training.by_megatron
    bounds = [deepspeed.BOUNDS] if layout.engine == "deepspeed" else []
    return (*NOT_COUNTED, *bounds, *([] if averaged else [NOT_AVERAGED]))


def refuse_unmodeled(model: Model, training: Training) -> None:
    """Raise UnsupportedError for a layout, or a setting beside it, that is not modeled."""
    layout = training.layout
    if layout and layout.cluster.devices > 1:
        by_megatron, by_deepspeed = training.by_megatron, layout.engine == "deepspeed"
        if by_megatron and by_deepspeed:
            raise UnsupportedError(
                f"layout.engine deepspeed with implementation {training.implementation}, which divides the model itself, is not modeled yet"
            )
        of_torch = deepspeed.unmodeled if by_deepspeed else _unmodeled
        for what in (megatron_refusals.unmodeled if by_megatron else of_torch)(model, training, layout):
            raise UnsupportedError(f"{what} is not modeled yet")


def _unmodeled(model: Model, training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that are not modeled with several devices of PyTorch's parallelism."""
    yield from (f"{what} with expert_parallel" for what in _not_between_experts(training, layout)) if layout.expert_parallel > 1 else ()
    kind, kernel, master = layout.data_parallel, training.optimizer_kernel, RECIPES[training.precision].master
    shares_state = kind != "ddp" or layout.tensor_parallel > 1
    updates_parts = shares_state and (training.optimizer not in MOMENTS or (of_weight(training) and not in_lists(training)))
    found = {
        "layout.data_parallel zero2, which PyTorch does not have (write data_parallel: fsdp, or engine: deepspeed),": kind == "zero2",
        "layout.expert_tensor_parallel": layout.expert_tensor_parallel is not None,
        "training.liger with several devices": training.liger is not None,
        f"layout.offload {layout.offload} with data_parallel {kind}": layout.offload != "none"
        and (layout.offload == "optimizer" or kind != "fsdp" or layout.pipeline_parallel * layout.tensor_parallel > 1),
        "model.prediction with several devices": model.prediction,
        f"model.encoder with data_parallel {kind}": model.encoder is not None and kind in ("fsdp", "hsdp"),
        f"precision {training.precision} with data_parallel {kind}": master and kind not in ("fsdp", "hsdp"),
        f"optimizer {training.optimizer} with optimizer_kernel {kernel} and shared weights or state": updates_parts,
    }
    yield from (what for what, is_set in found.items() if is_set)
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    others = next((degree for degree in degrees if getattr(layout, degree) > 1), "")
    known = (*_OF_TRAINING, *(() if others else _OF_TUNING))
    yield from (f"training.{name} with {others or 'several devices'}" for name in differing(training, known))
    yield from (f"{what} beside frozen weights" for what in _not_frozen(training, layout)) if training.train != EVERYTHING else ()
    divides = next((degree for degree in ("tensor_parallel", "pipeline_parallel", "context_parallel") if getattr(layout, degree) > 1), None)
    if divides:
        whole = layout.tensor_parallel * layout.context_parallel == 1 and layout.schedule not in DIVIDED
        of_model = _between_stages if whole else _undivided
        yield from (f"{what} with {divides}" for what in (*of_model(model, training), *_undivided_training(training, layout)))
    if layout.context_parallel > 1:
        yield from not_modeled(training, layout)
    if layout.pipeline_parallel > 1:
        yield from (f"{what} with pipeline_parallel" for what in _unpiped(training, layout))


def _not_frozen(training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that are not modeled with several devices and frozen weights."""
    found = {
        f"precision {training.precision}": RECIPES[training.precision].master is not None,
        f"shard_group {layout.shard_group}": layout.data_parallel in ("fsdp", "hsdp") and layout.shard_group == "titan",
    }
    yield from (what for what, is_set in found.items() if is_set)


def _unpiped(training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that are not modeled with pipeline parallelism."""
    schedule, kind, several = layout.schedule, layout.data_parallel, layout.data_degree > 1
    found = {
        f"tensor_parallel beside schedule {schedule}": layout.tensor_parallel > 1 and schedule in DIVIDED,
        f"recompute {training.recompute} beside schedule {schedule}": training.recompute != "none" and schedule in DIVIDED,
        f"data_parallel {kind}": several and kind not in ("fsdp", "hsdp"),
        f"schedule {schedule} with data_parallel {kind}": several and schedule in DIVIDED,
        f"shard_group titan and reshard_after_forward {layout.reshard_after_forward}": several
        and layout.shard_group == "titan"
        and layout.reshard_after_forward != "never",
        f"reshard_after_forward {layout.reshard_after_forward} beside schedule {schedule}": several
        and schedule not in ("gpipe", "1f1b")
        and layout.reshard_after_forward != "never",
        f"virtual_stages {layout.virtual_stages} with data_parallel {kind}": several and layout.virtual_stages > UNSHARDED,
        f"a single microbatch with data_parallel {kind}": several and training.gradient_accumulation == 1,
        "loss cross_entropy": training.loss == "cross_entropy",
        f"a stage without layers beside schedule {schedule}": 0 in (layout.first_stage_layers, layout.last_stage_layers)
        and schedule in DIVIDED,
    }
    yield from (what for what, is_set in found.items() if is_set)


# What the models of DTensor's measured plans differ in: plain GPT-2 and Llama.
_OF_MODEL = (
    "vocab_size", "padded_vocab_size", "vocab_multiple", "context_length", "d_model", "n_layers", "runs", "positions", "norm", "final_norm",
    "tied_head", "model_type",
)  # fmt: skip
_OF_STAGES = (*_OF_MODEL, "embedding_norm", "embedding_scale")
# What classes of transformers pass between layers of several stages, or do before the first and after the last one.
_ACROSS_STAGES = ("prompts", "residual_in_float32", "norm_in_first_layer", "passes_selection", "stores_keys", "scales_head_input")
_OF_TRAINING = (
    "batch_size", "sequence_length", "gradient_accumulation", "tokens", "precision", "gradient_dtype", "optimizer", "amsgrad", "dropout",
    "recompute", "implementation", "device", "attention_kernel", "loss", "keep_logits", "use_cache", "optimizer_kernel", "ema",
    "reserve_bytes", "flops_convention", "layout", "experts_kernel", "encoder_length",
)  # fmt: skip
_OF_TUNING = ("train", "adapters", "also_train", "base", "input_gradients", "padding")  # whose weights only data parallelism divides
_OF_LAYER = ("attention", "feed_forward", "norm", "positions")
_OF_ATTENTION = ("n_heads", "n_kv_heads", "head_dim", "q_bias", "k_bias", "v_bias", "o_bias", "qkv")
_OF_FEED_FORWARD = ("d_ff", "gated", "activation", "gate_bias", "up_bias", "down_bias")


def _not_between_experts(training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that are not modeled with expert parallelism."""
    found = {
        f"implementation {training.implementation}": training.implementation not in ("pytorch", "pytorch-eager"),
        f"experts_kernel {training.experts_kernel}": training.experts_kernel == "grouped",
        f"data_parallel {layout.data_parallel}": layout.data_parallel not in ("ddp", "fsdp", "hsdp"),
        f"shard_degree {layout.shard_degree}, no multiple of it,": layout.data_parallel == "hsdp"
        and layout.shard_degree % layout.expert_parallel != 0,
        f"offload {layout.offload}": layout.offload != "none",
        "gradient_as_bucket_view without copies of experts": layout.gradient_as_bucket_view
        and layout.data_degree == layout.expert_parallel,
        "tensor_parallel": layout.tensor_parallel > 1,
    }
    yield from (what for what, is_set in found.items() if is_set)


def _between_stages(model: Model, training: Training) -> Iterator[str]:
    """Yield the settings of the model that are not modeled with pipeline parallelism: what layers of several stages share, above all."""
    yield from differing(model, _OF_STAGES)
    yield from ["head.tied, which torch.distributed.pipelining does not share between stages,"] if model.tied_head else []
    layers = [layer for run in model.runs for layer in run.layers]
    yield from ["attention.shared_kv"] if any(layer.attention and layer.attention.shared_kv for layer in layers) else []
    if training.implementation.startswith("transformers"):
        its, plain = class_of(model), ModelClass()
        alike = all(getattr(its, name) == getattr(plain, name) for name in _ACROSS_STAGES)
        yield from [] if alike else [f"implementation {training.implementation} of this model type"]


def _undivided(model: Model, training: Training) -> Iterator[str]:
    """Yield the settings of the model that are not modeled with tensor parallelism."""
    layout = training.layout
    assert layout is not None  # noqa: S101 - the caller has one
    plain, titan = training.implementation == "pytorch", training.implementation == "torchtitan"
    of_class = training.implementation == "transformers" and class_of(model) in (ModelClass(), ModelClass(normalizes_each=True))
    yield from [] if plain or titan or of_class else [f"implementation {training.implementation} of this model type"]
    of_model, of_layer, of_attention = list(_OF_MODEL), list(_OF_LAYER), list(_OF_ATTENTION)
    divides = layout.pipeline_parallel > 1 and layout.schedule in DIVIDED
    if further := not titan and not divides and not (layout.context_parallel > 1 and layout.context_kind == "ulysses"):
        of_layer, of_attention = [*of_layer, "block"], [*of_attention, "qk_norm"]
        of_model += ["embedding_scale"] if plain else []
        of_model += ["head_bias"] if layout.pipeline_parallel == 1 else []
        # With sequence parallelism, transformers would make masks of a part of the sequence.
        of_attention += ["window"] if of_class and layout.context_parallel == 1 and not layout.sequence_parallel else []
    yield from differing(model, of_model)
    if model.tied_head and layout.pipeline_parallel > 1:
        yield "head.tied, which torch.distributed.pipelining does not share between stages,"
    elif model.tied_head and layout.tensor_parallel > 1 and layout.context_parallel > 1:
        yield "head.tied beside context_parallel"
    for layer in (layer for run in model.runs for layer in run.layers):
        yield from differing(layer, of_layer)
        kind, feed = layer.attention, layer.feed_forward
        yield from differing(kind, of_attention) if kind else ["a layer without attention"]
        yield from differing(feed, _OF_FEED_FORWARD) if feed else ["a layer without feed_forward"]
        yield from [f"qk_norm {kind.qk_norm}"] if kind and kind.qk_norm not in ("none", "head_dim") else []
        yield from ["qkv fused_per_head"] if kind and kind.qkv == "fused_per_head" and not further else []
        yield from [] if layer.positions.type in ("learned", "rope", "none") else [f"positions {layer.positions.type}"]


def _undivided_training(training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings of the training that are not modeled with tensor or pipeline parallelism."""
    titan, losses = training.implementation == "torchtitan", ("cross_entropy", "cross_entropy_float32")
    found = {
        f"precision {training.precision}": RECIPES[training.precision].autocast,
        f"loss {training.loss}": training.loss not in losses and not (titan and training.loss == "default"),
        "recompute selective": training.recompute == "selective" and not titan,
        f"implementation torchtitan beside schedule {layout.schedule}": titan
        and layout.pipeline_parallel > 1
        and layout.schedule in DIVIDED,
        "keep_logits": training.keep_logits,
        "use_cache": training.use_cache,
        "dropout": training.dropout,
        f"data_parallel {layout.data_parallel}": layout.data_degree > 1 and layout.data_parallel not in ("fsdp", "hsdp"),
        f"optimizer_kernel {training.optimizer_kernel}": in_lists(training),
    }
    yield from (what for what, is_set in found.items() if is_set)


def refuse_mixed(weights: Sequence[Weight[Size]], training: Training) -> None:
    """Raise UnsupportedError for weights that devices cannot share in the same way: frozen ones, of several dtypes, without a dimension."""
    layout = training.layout
    if layout is None or layout.cluster.devices == 1 or layout.data_parallel == "ddp":
        return
    tuned = training.train != EVERYTHING
    found = [f"{weight.name}, which does not train," for weight in weights if not (weight.trains or tuned)]
    if layout.data_parallel in ("fsdp", "hsdp"):
        found += [f"{name}, which bitsandbytes casts from {recipe_of(training).weights}," for name in _cast_biases(weights, training)]
        mixed = not tuned and RECIPES[training.precision].weights != "float32" and any(weight.always_float32 for weight in weights)
        found += [*(["weights of several dtypes"] if mixed else []), *(weight.name for weight in weights if not weight.shape)]
    for what in found:
        raise UnsupportedError(f"{what} with data_parallel {layout.data_parallel} is not modeled yet")


Ranks: TypeAlias = Sequence[tuple[Trace, Share, Memory[Size]]]


def _cast_biases(weights: Sequence[Weight[Size]], training: Training) -> Iterator[str]:
    """Yield the biases of packed linears that are loaded in another data type than that of computation."""
    packed = {weight.name.removesuffix(".weight") for weight in weights if weight.packing}
    biases = (weight for weight in weights if weight.name.removesuffix(".bias") in packed)
    yield from (weight.name for weight in biases if weight.dtype != recipe_of(training).weights)


def _parts(share: Share, used: Memory[Size]) -> tuple[tuple[str, Size], ...]:
    """Return the memory of a device by part, which do not all live at the same time."""
    weights = used.weights_bytes + used.master_weights_bytes + used.average_bytes
    return (
        ("weights", weights),
        ("gradients", used.gradients_bytes),
        ("optimizer", used.optimizer_bytes),
        ("buffers", sum(size for _, size in share.buffers)),
        ("saved", used.activations_bytes),
    )


def fleet(share: Share, memory: Memory[Size], training: Training, ranks: Ranks) -> Fleet[Size] | None:
    """Return the devices of a plan, None without a cluster; ``ranks`` are all kinds of devices."""
    if training.layout is None:
        return None
    params = sum(weight.params for weight in share.stored)
    host = share.host.total + share.host.step_counters if share.host else 0
    return Fleet(training.layout, share.which, params, share.buffers, share.traffic, memory.peak_bytes, peaks_of(ranks), host)


def peaks_of(ranks: Ranks) -> tuple[RankPeak[Size], ...]:
    """Return the peaks and the work of kinds of devices."""
    return tuple(
        RankPeak(
            each.which,
            sum(weight.params for weight in each.stored),
            used.peak_bytes,
            _parts(each, used),
            used.phases,
            work(forward.nodes),
            each.traffic,
            used.optimizer_bytes + (used.master_weights_bytes if used.master_weights_bytes != 0 else used.weights_bytes),
        )
        for forward, each, used in ranks
    )
