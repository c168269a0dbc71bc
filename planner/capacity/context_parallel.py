"""Context parallelism around a step: which devices differ, what PyTorch's context_parallel holds, and what is not modeled beside it."""

from __future__ import annotations

from collections.abc import Iterator

from planner.capacity.timeline import Change, Changes, Place
from planner.spec.precision import RECIPES
from planner.spec.records import Layout, Training
from planner.spec.records.layout import DIVIDED
from planner.trace.decoder import WHOLE
from planner.trace.sizes import Size, structure

NOT_AVERAGED = "averaging gradients over context-parallel devices, which the program must do unless it uses data_parallel: fsdp or hsdp"


def unlike_devices(training: Training) -> tuple[int, ...]:
    """Return the numbers of devices that differ in memory: the first, the second, which stands for all up to the last, and the last one.

    Their attention is in different steps. All but the last also hold its result twice. Devices that exchange heads are all equal.
    """
    layout, by_megatron = training.layout, training.by_megatron
    last = structure(layout.context_parallel) - 1 if layout else 0
    equal = layout is None or last == 0 or layout.context_kind == "ulysses" or by_megatron
    return () if equal else tuple(sorted({0, 1, last}))


def sequences(training: Training) -> Size:
    """Return the bytes that PyTorch's context_parallel holds until the backward pass ends, of a pipeline that of all microbatches.

    They are copies of whole token ids and targets, their parts, and a copy of the last part.
    """
    layout = training.layout
    if layout is None or not unlike_devices(training):
        return 0
    microbatches: Size = training.gradient_accumulation if layout.pipeline_parallel > 1 else 1
    whole = 8 * training.batch_size * training.sequence_length * microbatches
    return 2 * whole + 3 * whole // layout.context_parallel


def with_sequences(training: Training, changes: Changes) -> Changes:
    """Return changes with those by PyTorch's context_parallel, if sequences are divided."""
    size = sequences(training)
    if size == 0:
        return changes
    entered, left = (Place(WHOLE, True, forward=forward) for forward in (True, False))
    return {
        **changes,
        entered: [Change(size, "context_parallel"), *changes.get(entered, ())],
        left: [*changes.get(left, ()), Change(-size, "context_parallel")],
    }


def not_modeled(training: Training, layout: Layout) -> Iterator[str]:
    """Yield the settings that are not modeled with context parallelism."""
    found = {
        f"schedule {layout.schedule}": layout.pipeline_parallel > 1 and layout.schedule in DIVIDED,
        "pipeline_parallel and context_kind ulysses": layout.pipeline_parallel > 1 and layout.context_kind == "ulysses",
        f"data_parallel {layout.data_parallel}": layout.data_parallel not in ("ddp", "fsdp", "hsdp"),
        f"precision {training.precision}": RECIPES[training.precision].weights == "float32" and layout.context_kind != "ulysses",
        f"attention_kernel {training.attention_kernel}": training.attention_kernel in ("math", "efficient")
        and layout.context_kind != "ulysses",
    }
    yield from (f"{what} with context_parallel" for what, is_set in found.items() if is_set)
