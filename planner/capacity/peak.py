"""The peak of a training step: allocated bytes along the trace, besides model states and inputs.

A worked example: three equal layers x + relu(x · w) between a token embedding and a loss. ``t`` is an empty tape in float32. With one token
and a width of 8, a row such as x is 32 bytes, a matrix such as w or its gradient 256, and the loss 4:

    >>> def layer(x):
    ...     y = op.linear(t, x, t.weight("w", (8, 8), "linear: out · in"))
    ...     return op.add(t, x, op.relu(t, y))
    >>> ids = t.tensor((1,), "int64", needs_grad=False)
    >>> x0 = op.embedding(t, ids, t.weight("table", (8, 8), "token embedding"))
    >>> loss = op.mean(t, t.repeat(3, layer, x0))
    >>> op.keep_alive_until_step_end(loss)  # as a variable of the program does
    >>> timeline = trace_memory(t.nodes)

The forward pass allocates x0, and in each layer y, a = relu(y) and the sum x. y is freed at once: linear saves its input x, relu its
output a, and nothing saves y. So a layer adds a and x, 64 bytes. It is traced only once: the third copy's samples are the first one's plus
2 · 64. The mean saves nothing, so x3 is freed after it.

    >>> for sample, size in zip(timeline.samples[:8], timeline.sizes(timeline.samples[:8])):
    ...     print(f"{size:>4} {sample.operator.split(' at ')[0]}")
      32 embedding
      64 linear
      96 relu
      96 add
     192 linear
     224 relu
     224 add
     228 mean
    >>> timeline.after_forward  # x0, a1, x1, a2, x2, a3 and the loss: 6 · 32 + 4
    196

The backward pass starts with the loss's gradient, 4 bytes, and allocates x3's: 196 + 4 + 32. The sum passes the same gradient to x2 and
a3, without a new tensor. relu allocates y3's and frees a3. linear allocates w3's, which stays, and x2's, which is added in place to the one
that x2 has; it frees y3's gradient and x2. So a layer adds 256 - 64 = 192 bytes. The first layer, which runs last, has the third one's
samples plus 2 · 192.

    >>> for sample, size in zip(timeline.samples[8:], timeline.sizes(timeline.samples[8:])):
    ...     print(f"{size:>4} {sample.operator.split(' at ')[0]}")
     232 mean backward
     232 add backward
     264 relu backward
     520 linear backward
     616 add backward
     648 relu backward
     904 linear backward
    1064 embedding backward
    >>> timeline.after_backward  # gradients of four matrices, and the loss
    1028

The peak of a phase is its largest sample. Workspaces inside kernels are not counted. Everything else equals PyTorch byte by byte for plain
modules (tests/verify/test_random_shapes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from planner.capacity.activations import saved_for_backward
from planner.capacity.backward_pass import BackwardPass, Updates
from planner.capacity.forward_pass import ForwardPass
from planner.capacity.timeline import Changes, MemoryTimeline
from planner.trace.nodes import Node
from planner.trace.sizes import Size
from planner.trace.tensor import Tensor


def trace_memory(
    nodes: Sequence[Node],
    *,
    preallocated: bool = False,
    block: int = 1,
    updates: Updates = MappingProxyType({}),
    released: bool = False,
    changes: Changes = MappingProxyType({}),
    output: Tensor | None = None,
    between: tuple[Size, Size, Size] = (0, 0, 0),
    offload: bool = False,
    first_step: bool = False,
    record: MemoryTimeline | None = None,
) -> MemoryTimeline:
    """Return the memory timeline of one forward and one backward pass.

    ``preallocated``: weights' gradients are allocated from the start; ``released``: and freed with the last addition. Each tensor uses a
    multiple of ``block`` bytes. ``updates`` are those of weights that are updated in the backward pass. ``changes`` are what devices that
    share weights allocate and free at boundaries. ``output`` is that of a stage without the loss. ``between``: bytes that a pipeline
    allocates before the forward pass, after it, and before the backward pass. ``offload``: what the model saves is on the host in between.
    ``first_step``: modules keep nothing of a previous step. ``record`` is the timeline to use, without rounding and changes.
    """
    timeline, times = record or MemoryTimeline(block, changes), saved_for_backward(nodes, offload=offload).times
    timeline.add(between[0])
    ForwardPass(timeline, nodes, times, "forward", first_step=first_step).run(nodes)
    timeline.add(between[1])
    timeline.of_forward = len(timeline.changes)
    timeline.add(between[2])
    backward = BackwardPass(timeline, preallocated=preallocated, released=released, updates=updates, offload=offload)
    backward.run(nodes, times, output)
    return timeline
