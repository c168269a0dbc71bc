"""Stages of a pipeline: the layers of each, what it receives and what it sends.

torch.distributed.pipelining (PyTorch 2.13, stage.py): a stage receives each microbatch in a buffer of its own, and the gradient of its
output in another; it holds its output until the microbatch has run backward. Megatron-Core (core/pipeline_parallel: schedules.py,
p2p_communication.py) allocates what it receives when it arrives, and frees what it has sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from planner.spec.records import Layout, Model, Run
from planner.trace import primitives as op
from planner.trace.nodes import Sent
from planner.trace.sizes import Size, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage, by its number, of several; its layers, the number of the first one, and stages of its device that may be neighbors."""

    number: Size
    of: Size
    runs: tuple[Run, ...]
    first_layer: Size
    neighbors: tuple[Size, ...] = ()

    @property
    def first(self) -> bool:
        """Whether it has the token embedding."""
        return self.number == 0

    @property
    def last(self) -> bool:
        """Whether it has the head and computes the loss."""
        return self.number == self.of - 1

    @property
    def follows_own(self) -> bool:
        """Whether the stage before is on the same device: its output becomes the buffer of the input."""
        return self.number - 1 in self.neighbors

    @property
    def precedes_own(self) -> bool:
        """Whether the stage after is on the same device: the gradient of its input becomes the buffer of the output's."""
        return self.number + 1 in self.neighbors

    def buffers(self, microbatches: Size, one: Size) -> Size:
        """Return the bytes of the buffers in which it receives activations and gradients of ``one`` size."""
        return microbatches * one * ((not self.first) + (not self.last))


def stages(model: Model, layout: Layout) -> tuple[Stage, ...]:
    """Return the stages of a model."""
    return tuple(stage(model, layout, number) for number in range(layout.stages))


def stage(model: Model, layout: Layout, number: Size, neighbors: tuple[Size, ...] = ()) -> Stage:
    """Return a stage by its number. ``neighbors``: stages of its device that may be before or after it."""
    first, each = _layers(model.n_layers, layout, number)
    if uniform(model) and layout.has_equal_stages:
        return Stage(number, layout.stages, (replace(model.runs[0], count=cast("int", each)),), first, neighbors)
    return Stage(number, layout.stages, tuple(_cut(model.runs, structure(first), structure(each))), first, neighbors)


def _layers(n_layers: Size, layout: Layout, number: Size) -> tuple[Size, Size]:
    """Return the number of a stage's first layer, and how many it has: the first and the last stage can have others than the rest."""
    if layout.has_equal_stages:
        each = n_layers // layout.stages
        return number * each, each
    ends = layout.first_stage_layers, layout.last_stage_layers
    given = [count for count in ends if count is not None]
    each = (n_layers - sum(given)) // max(layout.stages - len(given), 1)
    first, last = (each if count is None else count for count in ends)
    if number == 0:
        return 0, first
    return first + (number - 1) * each, last if number == layout.stages - 1 else each


def uniform(model: Model) -> bool:
    """Return whether all layers are of one kind."""
    return len(model.runs) == 1 and len(model.runs[0].layers) == 1


def _cut(runs: tuple[Run, ...], first: int, count: int) -> Iterator[Run]:
    """Yield ``count`` layers from the first one on, in groups of equal ones."""
    before, end = 0, first + count
    for run in runs:
        size = len(run.layers)
        start, stop = max(first, before) - before, min(end, before + run.count * size) - before
        before = before + run.count * size
        while start < stop:
            inside, whole = start % size, (stop - start) // size
            if inside == 0 and whole:
                yield replace(run, count=whole)
                start += whole * size
            else:
                part = run.layers[inside : min(size, inside + stop - start)]
                yield Run(1, part)
                start += len(part)


def received(t: Tape, stage: Stage) -> Tensor:
    """Return a microbatch [B, n, d_model] in its buffer, which is allocated throughout. Its gradient is sent, if to another device.

    Megatron-Core allocates a tensor for each microbatch instead.
    """
    n = t.sequence // t.degree if t.sequence_parallel else t.sequence
    x = t.tensor((t.training.batch_size, n, t.model.d_model), t.precision.weights)
    sends = [Sent("receive", x.bytes, "forward", "stages"), Sent("send", x.bytes, "backward", "stages")]
    if t.megatron:
        t.record("receive", [], [x], sends=sends, by=received)
        x.needs_grad = True
    else:
        t.record("receive", [], [], sends=[] if stage.follows_own else sends, by=received)
        x.storage.bytes = 0
    return x


def sent(t: Tape, stage: Stage, x: Tensor) -> Tensor:
    """Send the output of a stage, which holds it, and receive its gradient, if the stage after is on another device.

    Megatron-Core frees the output (deallocate_pipeline_outputs).
    """
    sends = [Sent("send", x.bytes, "forward", "stages"), Sent("receive", x.bytes, "backward", "stages")]
    t.record("send", [x], [], sends=[] if stage.precedes_own else sends, by=sent)
    if not t.megatron:
        op.keep_alive_until_step_end(x)
    return x
