"""The layouts of several devices that are modeled, in PyTorch's own parallelism; all others are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.capacity.figures import Fleet, Memory, Weight
from planner.capacity.optimizers import MOMENTS
from planner.capacity.shares import Share
from planner.capacity.update import in_lists, of_weight
from planner.spec.precision import RECIPES
from planner.spec.records import Layout, Model, Training
from planner.trace.sizes import Size
from planner.trace.unsupported import UnsupportedError

NOT_COUNTED = (
    "NCCL's buffers and fragmentation on several devices: cluster.reserve keeps memory free for them",
    "the first step, and loading the whole model before it is divided",
)


def refuse_unmodeled(model: Model, training: Training) -> None:
    """Raise UnsupportedError for a layout, or a setting beside it, that is not modeled."""
    layout = training.layout
    if layout and layout.cluster.devices > 1:
        for what in _unmodeled(model, training, layout):
            raise UnsupportedError(f"{what} is not modeled yet")


def _unmodeled(model: Model, training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that are not modeled with several devices."""
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    yield from (f"layout.{degree} above 1" for degree in degrees if getattr(layout, degree) > 1)
    kind, kernel, master = layout.data_parallel, training.optimizer_kernel, RECIPES[training.precision].master
    updates_parts = kind != "ddp" and (training.optimizer not in MOMENTS or (of_weight(training) and not in_lists(training)))
    found = {
        "layout.data_parallel zero2": kind == "zero2",
        f"layout.offload {layout.offload}": layout.offload != "none",
        f"implementation {training.implementation} with several devices": training.implementation in ("megatron", "megatron-core"),
        "model.prediction with several devices": model.prediction,
        f"precision {training.precision} with data_parallel {kind}": master and kind not in ("fsdp", "hsdp"),
        f"optimizer {training.optimizer} with optimizer_kernel {kernel} and data_parallel {kind}": updates_parts,
    }
    yield from (what for what, is_set in found.items() if is_set)
    switches = ("optimizer_in_backward", "round_allocations", "paged")
    yield from (f"training.{switch} with several devices" for switch in switches if getattr(training, switch))


def refuse_mixed(weights: Sequence[Weight[Size]], training: Training) -> None:
    """Raise UnsupportedError for weights that FSDP2 cannot gather together: of several dtypes, or without a dimension."""
    layout = training.layout
    if layout and layout.cluster.devices > 1 and layout.data_parallel in ("fsdp", "hsdp"):
        mixed = RECIPES[training.precision].weights != "float32" and any(weight.always_float32 for weight in weights)
        for what in [*(["weights of several dtypes"] if mixed else []), *(weight.name for weight in weights if not weight.shape)]:
            raise UnsupportedError(f"{what} with data_parallel {layout.data_parallel} is not modeled yet")


def fleet(share: Share, memory: Memory[Size], training: Training) -> Fleet[Size] | None:
    """Return the devices of a plan, None without a cluster."""
    if training.layout is None:
        return None
    params = sum(weight.params for weight in share.stored)
    return Fleet(training.layout, share.which, params, share.buffers, share.traffic, memory.peak_bytes)
