"""What one device holds of a model under DeepSpeed's ZeRO, and the buffers of its gradients and gathered weights.

Read from DeepSpeed 0.19: runtime/zero/stage_1_and_2.py, stage3.py, partition_parameters.py, parameter_offload.py and
partitioned_param_coordinator.py; all parameters are one group of the optimizer. States are exact. Buffers count at their configured sizes
throughout the backward pass, where DeepSpeed allocates some of them later, so peaks are bounds.

- Stages 1 and 2 (``zero1``, ``zero2``) keep all 16-bit weights in one flat tensor, padded to a multiple of twice the devices. Each device
  has an equal part of it as float32 master weights, which the optimizer updates. Gradients enter a bucket of ``reduce_bucket_size``, are
  reduced together in a copy of it, and those of weights in the device's part are kept: whole, also of weights that it shares with another
  part. Stage 1 does so after the backward pass, with whole gradients until then. Float32 accumulation adds into a flat part instead.
- Stage 3 (``fsdp``) cuts every weight into equal parts, padded. Parts of gradients and the bucket exist throughout, as do whole copies of
  weights of at most ``persistence_threshold`` elements, but for the update. Others are gathered module by module; each module also gathers
  ``prefetch_bucket_size`` elements of later ones while less than ``max_live_parameters`` are whole. A weight is not freed if it is used
  again within ``max_reuse_distance`` elements: in the middle of a step, half of them forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.capacity.differing import differing
from planner.capacity.figures import Traffic, Weight
from planner.capacity.optimizers import MOMENTS, ElementBytes
from planner.capacity.shares import Share
from planner.capacity.states import States, states
from planner.capacity.timeline import Change, Changes, Place
from planner.capacity.update import of_weight
from planner.spec.records import Layout, Model, Training
from planner.trace.decoder import HEAD, WHOLE, Trace
from planner.trace.sizes import Size, product
from planner.trace.unsupported import UnsupportedError

ALIGNMENT = 2  # elements per device: nccl_start_alignment_factor
SUB_GROUP = 1_000_000_000  # elements of whole weights that stage 3 updates together: sub_group_size
DOUBLE = 8  # bytes: norms of gradients are computed in float64 (get_norm_dtype)
BOUNDS = "when DeepSpeed allocates its buffers: the peak, a bound, has all of them in the backward pass"
_OF_TRAINING = (
    "batch_size", "sequence_length", "gradient_accumulation", "tokens", "precision", "gradient_dtype", "optimizer", "dropout", "recompute",
    "recompute_every", "implementation", "device", "attention_kernel", "loss", "keep_logits", "use_cache", "mixer_kernels", "liger",
    "optimizer_kernel", "reserve_bytes", "flops_convention", "layout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """Elements of a model's weights in order, and bytes of an element."""

    every: tuple[int, ...]
    low: int  # bytes of a weight, and of a gradient that a backward pass makes
    gradient: int  # bytes of an accumulated gradient

    @property
    def all(self) -> int:
        """Elements of all weights."""
        return sum(self.every)


def unmodeled(_: Model, training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that are not modeled under DeepSpeed."""
    kind = layout.data_parallel
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    found = {
        f"layout.data_parallel {kind}": kind not in ("zero1", "zero2", "fsdp"),
        **{f"layout.{degree} above 1": getattr(layout, degree) > 1 for degree in degrees},
        f"layout.offload {layout.offload}": layout.offload == "weights",
        "layout.offload optimizer and gradient_dtype fp32": layout.offload == "optimizer" and training.gradient_dtype == "fp32",
        f"precision {training.precision}": training.precision != "bf16-master",
        "data_parallel zero1 with gradient_dtype fp32, which DeepSpeed's BF16_Optimizer runs,": kind == "zero1"
        and training.gradient_dtype == "fp32",
        f"optimizer {training.optimizer}": training.optimizer not in ("adamw", "adam"),
        f"optimizer_kernel {training.optimizer_kernel}": of_weight(training) is not None,
        "implementation megatron": training.implementation == "megatron",
    }
    yield from (f"{what} with layout.engine deepspeed" for what, is_set in found.items() if is_set)
    yield from (f"training.{name} with layout.engine deepspeed" for name in differing(training, _OF_TRAINING))


def share(forward: Trace, weights: tuple[Weight[Size], ...], training: Training, layout: Layout) -> Share:
    """Return the share of the device with the most gradients."""
    each, whole = ElementBytes.by_recipe(training), states(weights, training)
    if any(weight.always_float32 for weight in weights):
        raise UnsupportedError("weights of several dtypes with layout.engine deepspeed are not modeled yet")
    sizes = Sizes(tuple(in_order(weights, forward.stacks)), each.weight, each.gradient)
    kind = _stage3 if layout.data_parallel == "fsdp" else _stages_1_and_2
    return kind(weights, whole, sizes, training, layout)


def in_order(weights: Sequence[Weight[Size]], stacks: Sequence[tuple[int, int, Size]]) -> Iterator[int]:
    """Yield the elements of every weight: outside the layers, and layer by layer."""
    place = 0
    for first, end, count in (*stacks, (len(weights), len(weights), 0)):
        yield from (_elements(weight) for weight in weights[place:first])
        layer = [_elements(weight) for weight in weights[first:end]]
        yield from layer * _integer(count)
        place = end


def _elements(weight: Weight[Size]) -> int:
    return _integer(product(weight.shape))


def _integer(size: Size) -> int:
    if not isinstance(size, int):
        raise TypeError(f"which device has a weight depends on {size}")
    return size


def _stages_1_and_2(weights: tuple[Weight[Size], ...], whole: States, sizes: Sizes, training: Training, layout: Layout) -> Share:
    """Return the share of stage 1 or 2. Its update copies the part of the gradients, and casts that copy to float32."""
    degree, several = layout.data_degree, training.gradient_accumulation > 1
    aligned = -(-sizes.all // (ALIGNMENT * degree)) * ALIGNMENT * degree
    part = aligned // degree
    flat, in_two = sizes.gradient != sizes.low, layout.data_parallel == "zero2"
    owned, number = max((overlapping(sizes.every, part, one), one) for one in range(degree))
    offloads, largest = layout.offload == "optimizer", max(sizes.every)
    kept = 0 if offloads else part * sizes.gradient if flat else owned * sizes.low
    bucket, copy = _buckets(sizes, layout, 1 + layout.overlaps)
    copy += 4 * largest if flat else DOUBLE * largest if offloads else 0  # of one gradient, before it is added, or for its norm
    gradients, throughout = sizes.all * sizes.low, sizes.low * largest if offloads else 0  # temp_grad_buffer_for_gpu_offload
    passing = kept + bucket + copy
    if in_two:  # each pass reduces its gradients, and adds them to those of earlier passes
        held = kept if several else 0
        start, end = [Change(passing - (held if flat else 0), "bucket")], [Change(-bucket - copy - (0 if flat else held), "reduce")]
    else:
        held = gradients + bucket if several else 0
        start = [Change(0 if several else bucket, "bucket")]
        end = [Change(kept + copy, "reduce"), Change(-gradients - bucket - copy, "reduce")]
    updating = 0 if offloads else max(DOUBLE * largest, 0 if flat else part * (sizes.low + 4))
    on_host = sizes.low * (part + largest + owned * several) if offloads else 0
    mine, host = _divided(whole, training, weights=aligned, part=part, gradients=kept, on_host=on_host)
    every, passes = layout.cluster.devices, training.gradient_accumulation if in_two else 1
    sent: tuple[Traffic[Size], ...] = (Traffic("all-reduce", passes * gradients, every), Traffic("all-gather", aligned * sizes.low, every))
    return Share(
        weights=_flat(weights, part),
        states=mine,
        held=held + throughout,
        preallocated=several or in_two,  # its bytes are in the bucket, or were from the start
        changes={Place(HEAD, False, forward=False): start, Place(WHOLE, True, forward=False): end},
        stored=weights,
        buffers=(("bucket of gradients to reduce", bucket), ("copies of gradients in a reduction", copy), ("for the host", throughout)),
        traffic=sent,
        which=f"rank {number} of {degree}, with the most gradients in its part",
        updating=updating,
        host=host,
    )


def overlapping(sizes: Sequence[int], part: int, number: int) -> int:
    """Return the elements of all weights of which a part of the flat tensor has some (get_partition_info)."""
    found, place = 0, 0
    for size in sizes:
        if place < part * (number + 1) and place + size > part * number:
            found += size
        place += size
    return found


def _buckets(sizes: Sizes, layout: Layout, count: int) -> tuple[int, int]:
    """Return the bytes of buckets, and of what reductions copy: a bucket, or a gradient larger than that, which waits besides."""
    largest, room = max(sizes.every), layout.reduce_bucket_size
    waiting = largest if largest > room else 0
    return count * room * sizes.low, (count * max(min(room, sizes.all), waiting) + waiting) * sizes.low


def _stage3(weights: tuple[Weight[Size], ...], whole: States, sizes: Sizes, training: Training, layout: Layout) -> Share:
    """Return the share of stage 3. Its update copies the gradients of a sub-group, and casts that copy if it is not float32."""
    degree = layout.data_degree
    parts, flat = [-(-size // degree) for size in sizes.every], sizes.gradient != sizes.low
    part, largest = sum(parts), max(sizes.every)
    persistent = [size for size in sizes.every if size <= layout.persistence_threshold]
    others = sizes.all - sum(persistent)
    together = layout.prefetch_bucket_size + largest  # gathered into one buffer, and copied from it
    ahead = max(layout.max_live_parameters, layout.max_reuse_distance // 2)
    live = min(others, ahead + 3 * largest) + min(others, together)  # its own, the last one that was prefetched, one in use
    offloads = layout.offload == "optimizer"
    bucket, copy = _buckets(sizes, layout, 1)
    copy += (sizes.low + DOUBLE) * max(parts) if offloads else 0  # of one part of a gradient, and for its norm
    group = min(part, -(-max(SUB_GROUP, largest) // degree) + len(parts))  # updated together
    throughout = (sum(persistent) * sizes.low, bucket)
    gathered = live * sizes.low
    every = layout.cluster.devices
    padded = sum(one * degree for one in parts)
    passes = training.gradient_accumulation
    sent: tuple[Traffic[Size], ...] = (
        Traffic("all-gather", 2 * passes * padded * sizes.low, every),
        Traffic("reduce-scatter", passes * padded * sizes.low, every),
    )
    changes: Changes = {
        Place(WHOLE, True, forward=True): [Change(gathered, "gather")],
        Place(WHOLE, False, forward=False): [Change(copy, "bucket")],
        Place(WHOLE, True, forward=False): [Change(-gathered - copy, "reduce")],
    }
    gradients = 0 if offloads else part * sizes.gradient
    mine, host = _divided(whole, training, weights=part, part=part, gradients=gradients, on_host=part * sizes.gradient if offloads else 0)
    updating = 0 if offloads else max(DOUBLE * max(parts), group * (4 if flat else sizes.low + 4))
    return Share(
        weights=_flat(weights, part),
        states=mine,
        held=gradients + sum(throughout),
        preallocated=True,  # its bytes are in the bucket
        changes=changes,
        stored=weights,
        buffers=(
            ("whole weights that stay", throughout[0]),
            ("gathered weights", gathered),
            ("bucket of gradients to scatter", bucket),
            ("copies of gradients that are scattered", copy),
        ),
        traffic=sent,
        which=f"any of {degree} equal ones",
        has_state=True,
        updating=max(updating - throughout[0], 0),
        host=host,
    )


def _flat(weights: Sequence[Weight[Size]], part: int) -> tuple[Weight[Size], ...]:
    """Return what a device's optimizer updates: one flat part of the weights."""
    return (replace(weights[0], name="flat part of the weights", shape=(part,), copies=1, formula="elements per device", active_each=0),)


def _divided(whole: States, training: Training, *, weights: int, part: int, gradients: int, on_host: int) -> tuple[States, States | None]:
    """Return the states of a device that has so many elements of weights, and of master weights and moments.

    ``on_host``: bytes of 16-bit buffers in host memory, where master weights, moments and float32 gradients are then, too.
    """
    each = ElementBytes.by_recipe(training)
    sizes = {
        "weights": each.weight * weights,
        "master weights": each.master * part,
        "gradients": gradients,
        "optimizer": MOMENTS[training.optimizer] * each.moment * part,
    }
    if not on_host:
        return _with_sizes(whole, sizes, ""), None
    of_device = {"weights": sizes["weights"], "master weights": 0, "gradients": gradients, "optimizer": 0}
    of_host = sizes | {"weights": on_host, "gradients": each.master * part}
    return _with_sizes(whole, of_device, ", in host memory"), _with_sizes(whole, of_host, "")


def _with_sizes(whole: States, sizes: Mapping[str, int], elsewhere: str) -> States:
    """Return states of these bytes; those without any are ``elsewhere``."""
    lines = tuple(
        replace(line, what=line.what if sizes[line.part] else f"{line.what}{elsewhere}", total_bytes=sizes[line.part])
        for line in whole.lines
    )
    return States(lines, sizes["weights"], sizes["master weights"], sizes["gradients"], sizes["optimizer"], 0, 0, 0)
