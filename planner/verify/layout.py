"""Devices of a layout: their plans next to PyTorch's own parallel code, rank by rank, on a scaled-down copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from planner.capacity.layouts import refuse_unmodeled
from planner.capacity.plan import device
from planner.spec.records import Layout, Model, Training
from planner.spec.records.layout import DIVIDED
from planner.trace import trained
from planner.trace.sizes import hinted
from planner.trace.stages import stages
from planner.verify import CannotMeasureError, expert_parallel, rank
from planner.verify.scaled_down import divided

MEASURED = ("pytorch", "pytorch-eager", "transformers", "torchtitan")  # implementations
PEAK_ALLOWED = 0.005  # of tensors that DTensor holds for a moment

Row = tuple[str, str, int, int | None, float]  # metric, unit, the plan's value, PyTorch's, relative tolerance


def compare(model: Model, training: Training, layout: Layout) -> Iterator[Row]:
    """Yield the rows of the first device, of one in the middle and of the last one. Raises ``CannotMeasureError``."""
    refuse_unmodeled(model, training)
    of_experts = expert_parallel.unbuilt(model) if layout.expert_parallel > 1 else ()
    for what in (*_unmeasured(training, layout), *of_experts):
        raise CannotMeasureError(f"{what} is not measured on tensors without data")
    model, training, layout = divided(model, training, layout)
    refuse_unmodeled(model, training)
    count, numbers = layout.pipeline_parallel, layout.sharing_degree
    for stage, number in dict.fromkeys(((0, 0), (count // 2, numbers // 2), (count - 1, numbers - 1))):
        yield from of_device(model, training, layout, stage, number)


def _unmeasured(training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that cannot run on a fake device."""
    words = (*training.train, *(training.adapters.layers if training.adapters else ()))
    of_data = layout.data_degree > 1 and layout.data_parallel not in ("fsdp", "hsdp")
    found = {
        f"implementation {training.implementation}": training.implementation not in MEASURED,
        f"engine {layout.engine}": layout.engine != "pytorch",
        f"data_parallel {layout.data_parallel}, which reads gradients,": of_data,
        "context_kind ulysses": layout.context_parallel > 1 and layout.context_kind == "ulysses",
        f"schedule {layout.schedule}, with divided backward passes,": layout.schedule in DIVIDED,
        "device cpu": training.device == "cpu",
        "keep_logits": training.keep_logits,
        "parts of a model by the numbers of its layers, of which a scaled-down copy has few": any(map(trained.layers_of, words)),
        f"ema {training.ema}": training.ema != "none",
    }
    yield from (what for what, is_set in found.items() if is_set)


def of_device(model: Model, training: Training, layout: Layout, stage: int, number: int) -> Iterator[Row]:
    """Yield the rows of a device, by its numbers in the pipeline and among those that share weights."""
    held, used = device(model, training, layout, stage, number)
    count, world = layout.pipeline_parallel, layout.sharing_degree * layout.tensor_parallel
    mine = stages(model, layout)[stage::count] if count > 1 else ()
    which = stage * world + number * layout.tensor_parallel
    found = rank.measure(model, training, layout, which, mine)
    states, live = held.host or held.states, used.live
    name = f"rank {which} of {count * world}"
    yield f"{name}, parameters", "params", sum(hinted(weight.params) for weight in held.weights), found.params, 0.0
    for what, ours, theirs in (
        ("weights", states.weights + states.master_weights + (held.states.weights if held.host else 0), found.weights),
        ("gradients", states.gradients, found.gradients),
        ("optimizer state", states.optimizer, found.optimizer),
        ("allocated before forward", live.start, found.points[0]),
        *([("saved for backward", used.activations_bytes, found.saved)] if not mine else []),
        *([("allocated after forward", live.after_forward, found.points[1])] if not mine else []),
        ("allocated after backward", live.after_backward, found.points[-2]),
    ):
        yield f"{name}, {what}", "bytes", hinted(ours), theirs, 0.0
    peaks = {phase.phase: hinted(phase.peak_bytes) for phase in used.phases}
    ours_by_phase = [peaks["backward"], peaks["optimizer"]] if mine else [max(peaks["forward"], peaks["loss"]), *list(peaks.values())[2:]]
    names = ("all microbatches", "optimizer") if mine else ("forward", "backward", "optimizer")
    for phase, ours, theirs in zip(names, ours_by_phase, found.peaks, strict=True):
        yield f"{name}, peak, {phase}", "bytes", ours, theirs, PEAK_ALLOWED
    sent: Counter[str] = Counter()
    for one in held.traffic:
        sent[one.collective] += hinted(one.bytes)
    for collective in sorted(sent.keys() | found.sent.keys()):
        yield f"{name}, {collective}", "bytes", sent[collective], found.sent.get(collective, 0), 0.0
