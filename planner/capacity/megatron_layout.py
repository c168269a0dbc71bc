"""What one device holds of a model that Megatron-Core divides: weights, gradients in DDP's buffers, and a part of the optimizer's state.

Read from Megatron-Core 0.14 to 0.20: core/distributed (distributed_data_parallel.py, param_and_grad_buffer.py, finalize_model_grads.py),
core/optimizer/distrib_optimizer.py, core/pipeline_parallel/schedules.py. Gradients are added up in one buffer per stage, which exists
throughout. With the distributed optimizer (``zero1``) the weights are views of another such buffer, and the devices of data and context
parallelism have equal parts of master weights and optimizer state. Experts that devices share have buffers and groups of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.capacity.figures import Traffic, Weight
from planner.capacity.optimizers import MOMENTS, ElementBytes
from planner.capacity.parameters import parameters
from planner.capacity.shares import Share, alone, schedule
from planner.capacity.states import States, states
from planner.capacity.traffic import traffic
from planner.spec.records import Device, Layout, Training
from planner.trace.decoder import Trace
from planner.trace.sizes import Size, ceil_div, common_multiple, product

ALIGNMENT = 64  # elements: a weight starts at a multiple of them in the distributed optimizer's buffer (_pad_start_of_param_if_needed)
END = 128  # elements: its buckets end at a common multiple of them and of the devices (_pad_end_of_bucket_if_needed)
MIB = 1 << 20


class Workspace(NamedTuple):
    """Bytes of a workspace of cuBLAS in PyTorch's allocator: PyTorch's (CublasHandlePool.cpp) and Transformer Engine's (gemm.py)."""

    pytorch: int
    engine: int


WORKSPACES: dict[Device, Workspace] = {"a100": Workspace(8 * MIB + 128 * 1024, 4 * MIB), "h100": Workspace(32 * MIB, 32 * MIB + 1024)}
THREADS = 2  # one runs forward, one backward: PyTorch has a workspace for each
STREAMS = 4  # of grouped products in Transformer Engine, each with a workspace


class Buffer(NamedTuple):
    """Weights, or gradients, in one piece of memory: elements without padding and with it, and the devices that share them."""

    params: Size
    elements: Size
    degree: int


def share(forward: Trace, weights: tuple[Weight[Size], ...], training: Training) -> Share:
    """Return the share of a device; with the distributed optimizer, of one whose part of the buffers has no padding at its end."""
    layout = training.layout
    if layout is None or layout.cluster.devices == 1:
        return alone(forward, weights, training)
    each, whole = ElementBytes.by_recipe(training), states(weights, training)
    buffers = [one for part in forward.parts or (forward,) for one in _buffers(parameters(part).weights, layout)]
    spans = layout.cluster.devices // layout.pipeline_parallel
    sent = [*traffic(forward.nodes, training)]
    if layout.data_parallel == "zero1":
        whole = _divided(whole, each, buffers, training)
        for name, size in (("reduce-scatter", each.gradient), ("all-gather", each.weight)):
            sent += [Traffic(name, size * sum(one.elements for one in buffers if one.degree > 1), spans)]
    else:
        sent += [Traffic("all-reduce", each.gradient * sum(one.params for one in buffers if one.degree > 1), spans)]
    which = f"any of the {layout.cluster.devices} equal devices"
    spaces, sent = workspaces(forward, training), [one for one in sent if one.bytes != 0]
    listed = (("workspaces of cuBLAS", spaces),)
    made = Share(weights, whole, whole.gradients + spaces, True, stored=weights, buffers=listed, traffic=tuple(sent), which=which)
    return _staged(forward, made, training, layout) if forward.piped else made


def workspaces(forward: Trace, training: Training) -> int:
    """Return the bytes of workspaces: of Transformer Engine's linears and grouped ones, and of PyTorch's head, router and attention."""
    size = WORKSPACES.get(training.device if training.implementation == "megatron-core" else "cpu", Workspace(0, 0))
    components = {stored.component for stored in forward.parameters}
    last = not forward.piped or any(part.piped.stage.last for part in forward.parts if part.piped)
    products = last or "router" in components or training.attention_kernel == "math"
    return THREADS * size.pytorch * products + size.engine * (1 + STREAMS * ("experts" in components))


def _buffers(weights: Sequence[Weight[Size]], layout: Layout) -> Iterator[Buffer]:
    """Yield the buffers of a stage: that of experts, if devices share them, and that of all other weights."""
    model = layout.pipeline_parallel * layout.tensor_parallel
    routed = [weight for weight in weights if weight.component == "experts" and layout.expert_parallel > 1]
    others = [weight for weight in weights if weight not in routed]
    of_experts = layout.pipeline_parallel * layout.expert_parallel * layout.expert_tensor_degree
    for some, among in ((others, model), (routed, of_experts)):
        if trained := [weight for weight in some if weight.trains]:
            degree = layout.cluster.devices // among
            aligned = sum(weight.copies * ceil_div(product(weight.shape), ALIGNMENT) * ALIGNMENT for weight in trained)
            end = common_multiple(degree, END)
            elements = sum(weight.params for weight in trained) if layout.data_parallel == "ddp" else ceil_div(aligned, end) * end
            yield Buffer(sum(weight.params for weight in trained), elements, degree)


def _divided(whole: States, each: ElementBytes, buffers: Sequence[Buffer], training: Training) -> States:
    """Return the states with weights and gradients in whole buffers, and the device's part of everything else."""
    elements, part = sum(one.elements for one in buffers), sum(one.elements // one.degree for one in buffers)
    made = replace(
        whole,
        weights=each.weight * elements,
        gradients=each.gradient * elements,
        master_weights=each.master * part,
        optimizer=(MOMENTS[training.optimizer] + training.amsgrad) * each.moment * part,
    )
    sizes = {
        "weights": made.weights, "gradients": made.gradients, "master weights": made.master_weights, "optimizer": made.optimizer
    }  # fmt: skip
    return replace(made, lines=tuple(replace(line, total_bytes=sizes.get(line.part, line.total_bytes)) for line in whole.lines))


def _staged(forward: Trace, share: Share, training: Training, layout: Layout) -> Share:
    """Return the share of a stage's device, with the passes that it runs."""
    found, which = schedule([part.piped for part in forward.parts if part.piped], layout, training.gradient_accumulation)
    return replace(share, which=which, moments=found)
