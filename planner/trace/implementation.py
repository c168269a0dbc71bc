"""The interface of an implementation: the functions in which one software stack differs from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from planner.spec.records import Activation, Norm
from planner.trace.sizes import Size
from planner.trace.tensor import Tensor

if TYPE_CHECKING:
    from planner.trace.tape import Tape

Sublayer: TypeAlias = Callable[[Tensor], Tensor]

DEVICE_OVERHEAD = "the CUDA context, workspaces inside kernels (cuBLAS, attention) and fragmentation of the allocator"


@dataclass(frozen=True, slots=True)
class Implementation:
    """How one stack runs the modules of a model. Each function records its operators on the tape."""

    # Normalize the last dimension of x, by a norm's kind, weight and bias.
    norm: Callable[[Tape, Tensor, Norm, Tensor | None, Tensor | None], Tensor]
    # Apply the function of a feed-forward.
    activation: Callable[[Tape, Activation, Tensor], Tensor]
    # Multiply the activation of the gate by ``up``, which is projected when it is called.
    gated: Callable[[Tape, Activation, Tensor, Callable[[], Tensor]], Tensor]
    # Make the n positions that are looked up in a table of learned ones.
    positions: Callable[[Tape, Size], Tensor]
    # Make the positions that are handed to every layer, if they are.
    position_ids: Callable[[Tape, Size], Tensor | None]
    # Make what layers of one window add to their scores for B sequences of n tokens, if there is such a tensor.
    mask: Callable[[Tape, Size, Size], Tensor | None]
    # Rotate queries or keys [B, heads, n, h] by tables of cosines and sines; whether they are cut out of one projection head by head.
    rotate: Callable[[Tape, Tensor, tuple[Tensor, Tensor], bool], Tensor]
    # Attend causally with q [B, H, n, h] to k and v [B, K, n, h] -> [B, H, n, h]; a bias of the scores, and whether they are capped.
    attention: Callable[[Tape, Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]
    # Drop out the embedded tokens or what a sublayer adds to the residual stream, where the training says so.
    drop: Callable[[Tape, Tensor], Tensor]
    # Add attention and feed-forward side by side to x: x, the norm of each (None: one for both), and the two.
    parallel: Callable[[Tape, Tensor, Sublayer, Sublayer | None, Sublayer, Sublayer], Tensor]
    # The mean cross entropy of logits [B, n, V] and targets.
    cross_entropy: Callable[[Tape, Tensor, Tensor], Tensor]
    # The loss that users of the stack take unless they choose another.
    own_loss: Callable[[Tape, Tensor, Tensor], Tensor]
    # Whether recomputation runs whole stretches, or stops once the last kept tensor is there.
    recomputes_whole: bool = False
    # Whether each attention holds a causal mask of context_length² elements in a buffer.
    mask_buffers: bool = False
    # Whether the frequencies of rotary positions and the scale of the embedding are buffers.
    constant_buffers: bool = False
    # What the figures omit, one sentence each.
    not_counted: tuple[str, ...] = (DEVICE_OVERHEAD,)
