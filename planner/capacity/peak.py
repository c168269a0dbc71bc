"""The peak of a training step: a walk along the trace that counts what is alive beside the model states and the inputs.

A worked example: three equal layers x + relu(x · w) between a token table and a loss. On ``t``, an empty tape in float32, with one token
and a width of 8, a row such as x takes 32 bytes, a matrix such as w or its gradient 256, and the loss 4:

    >>> def layer(x):
    ...     y = op.linear(t, x, t.weight("w", (8, 8), "linear: out · in"))
    ...     return op.add(t, x, op.relu(t, y))
    >>> ids = t.tensor((1,), "int64", needs_grad=False)
    >>> x0 = op.embedding(t, ids, t.weight("table", (8, 8), "token table"))
    >>> loss = op.mean(t, t.repeat(3, layer, x0))
    >>> op.keep_alive_until_step_end(loss)  # the program names it until the step ends
    >>> alive = walk(t.nodes)

The forward pass makes x0, and in each layer y, a = relu(y) and the sum x. y dies at once, since neither linear (which keeps its input x)
nor relu (which keeps its output a) keeps it. So a layer leaves a and x behind, 64 bytes, and is walked only once: the third copy's moments
are the first one's plus 2 · 64. The mean keeps nothing, so that x3 dies with it.

    >>> for moment in alive.moments[:8]:
    ...     print(f"{moment.bytes:>4} {moment.operator.split(' at ')[0]}")
      32 embedding
      64 linear
      96 relu
      96 add
     192 linear
     224 relu
     224 add
     228 mean
    >>> alive.after_forward  # x0, a1, x1, a2, x2, a3 and the loss: 6 · 32 + 4
    196

The backward pass starts with the loss's gradient, 4 bytes, and makes x3's: 196 + 4 + 32. The sum hands the same gradient to x2 and to a3,
without a new tensor. relu makes y3's and frees a3. linear makes w3's, which stays, and x2's, which is added in place to the one that waits
there; it frees y3's gradient and x2. So a layer adds 256 - 64 = 192 bytes, and the first layer, walked last, has the third one's moments
plus 2 · 192.

    >>> for moment in alive.moments[8:]:
    ...     print(f"{moment.bytes:>4} {moment.operator.split(' at ')[0]}")
     232 mean backward
     232 add backward
     264 relu backward
     520 linear backward
     616 add backward
     648 relu backward
     904 linear backward
    1064 embedding backward
    >>> alive.after_backward  # gradients of four matrices, and the loss
    1028

The peak of a phase is the largest of its moments. Left out: what a kernel needs inside itself. The rest is held to PyTorch byte by byte,
for plain modules in all that they do (tests/verify/test_random_shapes.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.capacity.activations import kept
from planner.capacity.alive import Alive
from planner.capacity.backward_pass import BackwardPass
from planner.capacity.forward_pass import ForwardPass
from planner.trace.tape import Node


def walk(nodes: Sequence[Node], *, preallocated: bool = False, block: int = 1) -> Alive:
    """Walk one forward and one backward pass.

    ``preallocated``: the memory of the weights' gradients is there from the start. Each tensor takes a multiple of ``block`` bytes.
    """
    alive, times = Alive(block), kept(nodes).times
    ForwardPass(alive, nodes, times, "forward").run(nodes)
    alive.after_forward = alive.bytes
    BackwardPass(alive, preallocated=preallocated).run(nodes, times)
    alive.after_backward = alive.bytes
    return alive
