"""Schedules of pipelines: the order of a device's passes of one microbatch through each of its stages.

Read from PyTorch 2.13, torch/distributed/pipelining/schedules.py. GPipe runs all microbatches forward first. 1F1B runs forward until the
first one returns, and then one backward and one forward in turn. Interleaved 1F1B does the same with several stages per device, a round of
microbatches in each. Zero bubble (ZB1P, Qi et al. 2024, arXiv:2401.10241) divides the backward pass into that of the input, which the stage
before waits for, and that of the weights, which runs later. ZBV and DualPipeV have two stages per device, the second ones in reverse order,
so that stages form a V.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Literal, NamedTuple

from planner.spec.records import Layout
from planner.spec.records.layout import DIVIDED, V_SHAPED
from planner.trace.sizes import Size

Kind = Literal["forward", "backward", "input", "weight", "reduce"]
"""``input`` and ``weight`` are the two parts of a divided backward pass; ``reduce`` is that of the gradients of all microbatches."""


class Pass(NamedTuple):
    """A pass of one microbatch through one of the device's stages, by its number on the device.

    ``gathers``: its weights were freed before, and are gathered again.
    """

    kind: Kind
    stage: int
    gathers: bool = False


def stages_of(layout: Layout, device: Size) -> tuple[Size, ...]:
    """Return the numbers of a device's stages."""
    count = layout.pipeline_parallel
    if layout.schedule in V_SHAPED:
        return device, 2 * count - 1 - device
    return tuple(device + count * number for number in range(layout.virtual_stages))


def rounds(layout: Layout, microbatches: int) -> int:
    """Return the rounds of interleaved microbatches."""
    return max(1, microbatches // layout.pipeline_parallel)


def order(layout: Layout, device: int, microbatches: int) -> Iterator[Pass]:
    """Yield the passes of a device, by its number in the pipeline."""
    count = layout.pipeline_parallel
    if layout.schedule == "zbv":
        return (step for step, number in _zbv(count, device, microbatches) if number < microbatches)
    if layout.schedule == "dualpipev":
        return _dualpipev(count, device, microbatches)
    return _interleaved(layout, device, microbatches)


def resharded(passes: Iterable[Pass]) -> Iterator[Pass]:
    """Yield passes through one stage whose weights are freed after each forward pass, and stay after a backward pass."""
    whole = False
    for one in passes:
        yield one._replace(gathers=not whole)
        whole = one.kind == "backward"


def reduced(passes: Iterable[Pass], microbatches: int) -> Iterator[Pass]:
    """Yield passes, and after the last one through a stage the reduction of its gradients."""
    ended = Counter[int]()
    for one in passes:
        yield one
        ended[one.stage] += one.kind == "backward"
        if one.kind == "backward" and ended[one.stage] == microbatches:
            yield Pass("reduce", one.stage)


def _interleaved(layout: Layout, device: int, microbatches: int) -> Iterator[Pass]:
    """Yield the passes of GPipe, 1F1B, interleaved 1F1B and zero bubble."""
    count, stages, divides = layout.pipeline_parallel, layout.virtual_stages, layout.schedule in DIVIDED
    several = layout.schedule in ("interleaved", "zero_bubble")
    each = microbatches // rounds(layout, microbatches) if several else microbatches
    places = [number // each % stages for number in range(microbatches * stages)]
    backward = [stages - 1 - place for place in places]
    before = (stages - 1) * each + (2 if layout.schedule == "interleaved" else 1) * (count - 1 - device)
    before = len(places) if layout.schedule == "gpipe" else min(before, len(places))
    waiting = deque[int]()
    yield from (Pass("forward", place) for place in places[:before])
    for number, (ahead, back) in enumerate(zip_longest(places[before:], backward)):
        yield from [Pass("forward", ahead)] if ahead is not None else []
        yield Pass("input" if divides else "backward", back)
        if divides:
            waiting.append(back)
            yield from [Pass("weight", waiting.popleft())] if number >= device else []
    yield from (Pass("weight", stage) for stage in waiting)


def _zbv(count: int, device: int, microbatches: int) -> Iterator[tuple[Pass, int]]:
    """Yield the passes of ZBV with the numbers of their microbatches, of which some may not exist."""
    numbers, every = Counter[Pass](), max(2 * count - 1, microbatches)
    (forward, back_input, back_weight), (forward_1, back_input_1, back_weight_1) = (
        (Pass("forward", stage), Pass("input", stage), Pass("weight", stage)) for stage in (0, 1)
    )

    def run(*passes: Pass) -> Iterator[tuple[Pass, int]]:
        for one in passes:
            yield one, numbers[one]
            numbers[one] += 1

    yield from run(*[forward] * (2 * (count - device) - 1))
    yield from run(*[forward_1, forward] * device)
    yield from run(*[forward_1, back_input_1, back_weight_1] * (count - device))
    while numbers[forward_1] < numbers[forward] or numbers[forward] < every:
        yield from run(*[forward] * (numbers[forward] < every), back_input, back_weight, forward_1, back_input_1, back_weight_1)
    yield from run(*[back_input, back_input_1] * device)
    yield from run(*[back_input, back_weight] * (count - device))
    yield from run(*[back_weight_1] * (numbers[back_input_1] - numbers[back_weight_1]))
    yield from run(*[back_weight] * (numbers[back_input] - numbers[back_weight]))


def _dualpipev(count: int, device: int, microbatches: int) -> Iterator[Pass]:
    """Yield the passes of DualPipeV (DeepSeek-V3, arXiv:2412.19437, github.com/deepseek-ai/DualPipe)."""
    later, waiting = count - 1 - device, deque[int]()

    def divided(stage: int) -> Iterator[Pass]:
        waiting.append(stage)
        yield Pass("input", stage)

    def weight() -> Iterator[Pass]:
        yield from [Pass("weight", waiting.popleft())] if waiting else []

    yield from [Pass("forward", 0)] * (2 * later)
    yield from [Pass("forward", 0), Pass("forward", 1)] * (device + 1)
    for _ in range(later):
        yield from (*divided(1), *weight(), Pass("forward", 1))
    overlapped = [Pass("forward", 1), Pass("backward", 0)]
    yield from [Pass("forward", 0), Pass("backward", 1), *overlapped] * (microbatches - 2 * count + device + 1)
    yield from [Pass("backward", 1), *overlapped] * later
    half, divides = (device + 1) // 2, False
    for number in range(device + 1):
        for stage in (1, 0):
            divides = divides or (number == half and stage == device % 2)
            yield from divided(stage) if divides else [Pass("backward", stage)]
    for _ in range(later):
        yield from (*weight(), *(divided(0) if divides else [Pass("backward", 0)]))
    for _ in range(device + 1):
        yield from weight()
