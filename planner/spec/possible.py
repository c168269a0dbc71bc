"""Which layouts of a grid are possible: the conditions of layout_checks on sizes, over arrays of layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from planner.spec.layout_checks import ARMS
from planner.spec.records import Layout, Model, Training
from planner.spec.records.layout import DIVIDED, V_SHAPED, Schedule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Sizes: TypeAlias = "NDArray[np.int64]"


class Condition(NamedTuple):
    """Where layouts do not meet a condition, and what to say of one, with its sizes in braces."""

    fails: NDArray[np.bool_]
    why: str


def conditions(model: Model, training: Training, sizes: Mapping[str, Sizes], per_node: int) -> Iterator[Condition]:
    """Yield what every layout must meet. Sizes are by name, and ``global_batch_size`` is 0 where no global batch is set."""
    tp, pp, context = sizes["tensor_parallel"], sizes["pipeline_parallel"], sizes["context_parallel"]
    devices, experts, n = sizes["devices"], sizes["expert_parallel"], sizes["sequence_length"]
    yield Condition(
        devices % (tp * pp * context) != 0,
        "tensor_parallel {tensor_parallel} * pipeline_parallel {pipeline_parallel} * context_parallel {context_parallel} does not divide "
        "devices {devices}",
    )
    yield Condition((devices > per_node) & (devices % per_node != 0), f"per_node {per_node} does not divide devices {{devices}}")
    for name, size in _shared(model, by_megatron=training.by_megatron):
        copied = (tp % size == 0) & (name == "n_kv_heads") & (training.by_megatron)
        yield Condition((size % tp != 0) & ~copied, f"tensor_parallel {{tensor_parallel}} does not divide {name} {size}")
    for count in {layer.experts.count for run in model.runs for layer in run.layers if layer.experts}:
        yield Condition(count % experts != 0, f"expert_parallel {{expert_parallel}} does not divide experts.count {count}")
    if not any(layer.experts for run in model.runs for layer in run.layers):
        yield Condition(experts > 1, "expert_parallel requires experts, and the model has none")
    elif not training.by_megatron:
        fails = devices // (tp * pp * context) * context % experts != 0
        yield Condition(fails, "expert_parallel {expert_parallel} does not divide the data-parallel devices")
    yield from _of_stages(training.layout, sizes["n_layers"], pp, sizes["virtual_stages"])
    if model.positions.type == "learned":
        most = model.context_length
        yield Condition(
            n > most, f"sequence_length {{sequence_length}} exceeds context_length {most}, the size of the learned position embedding"
        )
    together = sizes["batch_size"] * (devices // (tp * pp * context))
    yield Condition(
        sizes["global_batch_size"] % together.clip(1) != 0,
        "batch_size {batch_size} and the data-parallel devices do not divide global_batch_size {global_batch_size}",
    )


def _of_stages(layout: Layout | None, layers: Sizes, pp: Sizes, virtual: Sizes) -> Iterator[Condition]:
    """Yield what the layers of stages require: all stages have as many, but for the first and the last one."""
    of_ends = [layout.first_stage_layers, layout.last_stage_layers] if layout else []
    given = [count for count in of_ends if count is not None]
    if given:
        rest, inner = layers - sum(given), pp * virtual - len(given)
        yield Condition(pp == 1, "first_stage_layers and last_stage_layers require pipeline_parallel above 1")
        fails = ((inner <= 0) & (rest != 0)) | ((inner > 0) & ((rest <= 0) | (rest % inner.clip(1) != 0)))
        yield Condition(fails, "the stages besides the first and the last one do not divide their layers of n_layers {n_layers}")
        return
    yield Condition(layers % pp != 0, "pipeline_parallel {pipeline_parallel} does not divide n_layers {n_layers}")
    yield Condition(
        layers // pp % virtual != 0,
        "virtual_stages {virtual_stages} does not divide n_layers {n_layers} / pipeline_parallel {pipeline_parallel}",
    )


def of_kind(model: Model, training: Training, layout: Layout, sizes: Mapping[str, Sizes]) -> Iterator[Condition]:
    """Yield what layouts of this kind must meet besides."""
    tp, pp, virtual, passes = (sizes[key] for key in ("tensor_parallel", "pipeline_parallel", "virtual_stages", "gradient_accumulation"))
    context, n, kind, schedule = sizes["context_parallel"], sizes["sequence_length"], layout.data_parallel, layout.schedule
    data = sizes["devices"] // (tp * pp * context)
    by_megatron = training.by_megatron
    if kind != "ddp" and not by_megatron:
        yield Condition(data * context == 1, f"data_parallel {kind} requires several data-parallel devices, and there is 1")
    if kind == "hsdp":
        shards = sizes["shard_degree"]
        yield Condition(data * context % shards != 0, "shard_degree {shard_degree} does not divide the data-parallel devices")
        yield Condition(shards % context != 0, "shard_degree {shard_degree} is no multiple of context_parallel {context_parallel}")
    for name in ("sequence_parallel", "loss_parallel"):
        if getattr(layout, name):
            yield Condition(tp == 1, f"{name} requires tensor_parallel above 1")
    yield from _of_sequences(model, layout, sizes, by_megatron=by_megatron)
    if layout.imbalance != 1:
        yield Condition(sizes["expert_parallel"] == 1, "imbalance requires expert_parallel above 1")
    if layout.sequence_parallel:
        fails = (n % context == 0) & (n // context % tp != 0)
        yield Condition(fails, "tensor_parallel {tensor_parallel} does not divide sequence_length {sequence_length}")
    yield from _of_schedule(schedule, pp, virtual, passes, waits=not by_megatron)
    yield from _of_experts(model, layout, sizes) if by_megatron else ()
    belongs: tuple[tuple[str, Any], ...] = (("virtual_stages", ("interleaved", *DIVIDED)), ("shard_degree", ("hsdp",)))
    for name, allowed in belongs:
        if schedule not in allowed and kind not in allowed:
            yield Condition(sizes[name] > 1, f"{name} requires {' or '.join(allowed)}")


def _of_sequences(model: Model, layout: Layout, sizes: Mapping[str, Sizes], *, by_megatron: bool) -> Iterator[Condition]:
    """Yield what devices that share a sequence require: each has two parts of it, unless DeepSpeed exchanges them for heads."""
    context, exchanges = sizes["context_parallel"], layout.context_kind == "ulysses"
    parts = 1 if exchanges and not by_megatron else 2
    fails = (context > 1) & (sizes["sequence_length"] % (parts * context) != 0)
    why = f"sequence_length {{sequence_length}} is no multiple of {parts} * context_parallel {{context_parallel}}"
    yield Condition(fails, why)
    kinds = {layer.attention for run in model.runs for layer in run.layers if layer.attention}
    for name, heads in sorted({(name, getattr(kind, name)) for kind in kinds for name in ("n_heads", "n_kv_heads")} if exchanges else ()):
        fails = heads // sizes["tensor_parallel"] % context != 0
        yield Condition(fails, f"context_parallel {{context_parallel}} does not divide {name} {heads} of a device")


def _of_schedule(schedule: Schedule, pp: Sizes, virtual: Sizes, passes: Sizes, *, waits: bool) -> Iterator[Condition]:
    """Yield what a schedule requires of stages and microbatches."""
    fewest = {"1f1b": pp, "dualpipev": 2 * pp}.get(schedule) if waits else None
    if fewest is not None:
        yield Condition((pp > 1) & (passes < fewest), f"schedule {schedule} requires more microbatches than {{gradient_accumulation}}")
    if schedule in ("interleaved", "zero_bubble"):
        rounds = (passes // pp).clip(1) if waits else pp
        why = f"schedule {schedule} requires as many of {{gradient_accumulation}} microbatches in each round of {{pipeline_parallel}}"
        yield Condition((pp > 1) & (passes % rounds != 0), why)
    needed = {"interleaved": virtual > 1, **dict.fromkeys(V_SHAPED, virtual == ARMS)}.get(schedule)
    if needed is not None:
        yield Condition((pp > 1) & ~needed, f"schedule {schedule} does not run {{virtual_stages}} virtual stages")


def _of_experts(model: Model, layout: Layout, sizes: Mapping[str, Sizes]) -> Iterator[Condition]:
    """Yield what Megatron-Core's groups of experts require."""
    tp, given = sizes["tensor_parallel"], layout.expert_tensor_parallel
    among = tp if given is None else 0 * tp + given
    experts = [layer.experts for run in model.runs for layer in run.layers if layer.experts]
    if experts:
        fails = sizes["devices"] // sizes["pipeline_parallel"] % (sizes["expert_parallel"] * among) != 0
        yield Condition(fails, "expert_parallel {expert_parallel} does not divide the devices of a stage with those that share an expert")
    for one in experts:
        yield Condition(one.d_ff % among != 0, f"the devices that share an expert do not divide experts.d_ff {one.d_ff}")
        if one.shared_d_ff:
            why = f"tensor_parallel {{tensor_parallel}} does not divide experts.shared.d_ff {one.shared_d_ff}"
            yield Condition(one.shared_d_ff % tp != 0, why)


def _shared(model: Model, *, by_megatron: bool) -> Iterator[tuple[str, int]]:
    """Yield the sizes that tensor-parallel devices share. Megatron-Core pads the vocabulary until it divides."""
    if not by_megatron:
        yield "padded vocab_size", model.padded_vocab_size
    for layer in (layer for run in model.runs for layer in run.layers):
        if layer.attention:
            yield from (("n_heads", layer.attention.n_heads), ("n_kv_heads", layer.attention.n_kv_heads))
        if layer.feed_forward:
            yield "d_ff", layer.feed_forward.d_ff
