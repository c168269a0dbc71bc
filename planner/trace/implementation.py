"""The interface of an implementation: the functions in which one software stack differs from another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from planner.spec.precision import Dtype
from planner.spec.records import Activation, Experts, Norm
from planner.trace.model_class import ModelClass
from planner.trace.sizes import Size
from planner.trace.tensor import Tensor

if TYPE_CHECKING:
    from planner.trace.nodes import Node
    from planner.trace.tape import Tape

Sublayer: TypeAlias = Callable[[Tensor], Tensor]

AS_LLAMA = ModelClass()
DEVICE_OVERHEAD = "the CUDA context, workspaces inside kernels (cuBLAS, attention) and fragmentation of the allocator"


@dataclass(frozen=True, slots=True)
class Scores:
    """What attention does to its scores: a bias to add, a mask besides it, soft-capping, a sink per head, and T5's bias."""

    bias: Tensor | None = None
    mask: Tensor | None = None
    softcap: bool = False
    sinks: Tensor | None = None
    relative: Tensor | None = None  # T5's bias, which layers share


@dataclass(frozen=True, slots=True)
class Implementation:
    """How one stack runs the modules of a model. Each function records its operators on the tape."""

    # Normalize the last dimension of x, by a norm's kind, weight and bias.
    norm: Callable[[Tape, Tensor, Norm, Tensor | None, Tensor | None], Tensor]
    # Multiply x [.., i] by a weight [o, i] and add a bias.
    linear: Callable[[Tape, Tensor, Tensor, Tensor | None], Tensor]
    # Apply the function of a feed-forward.
    activation: Callable[[Tape, Activation, Tensor], Tensor]
    # Multiply the activation of the gate by ``up``, which is projected when it is called.
    gated: Callable[[Tape, Activation, Tensor, Callable[[], Tensor]], Tensor]
    # Return the indices of n learned positions.
    positions: Callable[[Tape, Size], Tensor]
    # Return the position ids passed to every layer, if any.
    position_ids: Callable[[Tape, Size], Tensor | None]
    # Return the mask that layers of one window share, for the scores of B sequences of n tokens, if any.
    mask: Callable[[Tape, Size, Size, Size | None], Tensor | None]
    # Rotate queries or keys [B, heads, n, h] by tables of cosines and sines.
    rotate: Callable[[Tape, Tensor, tuple[Tensor, Tensor]], Tensor]
    # Return keys and values [B, K, n, h], views of a fused projection, as the class passes them on; the number of query heads.
    split_kv: Callable[[Tape, Tensor, Tensor, Size], tuple[Tensor, Tensor]]
    # Attend causally with q [B, H, n, h] to k and v [B, K, n, h] -> [B, H, n, h].
    attention: Callable[[Tape, Tensor, Tensor, Tensor, Scores], Tensor]
    # Apply dropout to the embedded tokens or the output of a sublayer, if the training uses it.
    drop: Callable[[Tape, Tensor], Tensor]
    # Add attention and feed-forward side by side to x: x, the norm of each (None: one for both), and the two.
    parallel: Callable[[Tape, Tensor, Sublayer, Sublayer | None, Sublayer, Sublayer], Tensor]
    # Return the mean cross entropy of logits [B, n, V] and targets.
    cross_entropy: Callable[[Tape, Tensor, Tensor], Tensor]
    # Return the stack's default loss.
    default_loss: Callable[[Tape, Tensor, Tensor], Tensor]
    # What differs from Llama's modules, apart from what a spec states; the implementations of transformers know it by class.
    modules: ModelClass = AS_LLAMA
    # Enter and leave a stretch of tensor-parallel matrices, on parts of the vocabulary up to the loss. None: as PyTorch's DTensor does.
    enter: Callable[[Tape, Tensor], Tensor] | None = None
    leave: Callable[[Tape, Tensor], Tensor] | None = None
    # Whether one projection returns queries, keys and values of each KV head side by side, whatever the checkpoint stores.
    fuses_qkv: bool = False
    # Apply the LM head to the last hidden states and return the mean cross entropy, in place of the default loss. None: there are logits.
    fused_loss: Callable[[Tape, Tensor, Tensor, Tensor], Tensor] | None = None
    # Whether recomputation runs whole checkpointed regions before they run backward.
    recomputes_whole: bool = False
    # Whether recomputation stops at the last saved tensor.
    stops_early: bool = True
    # Return the outputs that selective recomputation of a layer saves, of its operators. None: it recomputes the inside of attention.
    saved_outputs: Callable[[Sequence[Node]], tuple[Tensor, ...]] | None = None
    # Run the routed experts on x [tokens, d], with the weights and the indices of each token's. None: as transformers does.
    experts: Callable[[Tape, Experts, Tensor, Tensor, Tensor], Tensor] | None = None
    # Rotate queries and keys together. None: one after the other.
    rotate_both: Callable[[Tape, Tensor, Tensor, tuple[Tensor, Tensor]], tuple[Tensor, Tensor]] | None = None
    # The same of latent attention. None: pairs of neighboring channels by halves of the tables.
    rotate_latent: Callable[[Tape, Tensor, Tensor, tuple[Tensor, Tensor]], tuple[Tensor, Tensor]] | None = None
    # Return the tables of n positions for a number of rotated channels. None: cosines and sines.
    rotary_tables: Callable[[Tape, Size, Size], tuple[Tensor, Tensor]] | None = None
    # Kernels of fused attention in order of preference. Empty: PyTorch's own order.
    attention_kernels: tuple[str, ...] = ()
    # Whether the loss is computed outside the model, whose last hidden states are freed by then.
    loss_outside: bool = False
    # Return the dtype of the causal mask of context_length² elements that each layer, or the model, stores in a buffer, if any.
    mask_buffer: Callable[[Tape, Literal["layer", "model"]], Dtype | None] = lambda _t, _owner: None
    # Whether fused attention gets a mask instead of a flag if the sequence is at least as long as the layer's window.
    masks_from_window: bool = False
    # Whether the frequencies of rotary positions and the scale of the embedding are buffers.
    constant_buffers: bool = False
    # Whether variables of the model keep the embeddings of tokens and positions alive until its forward pass ends.
    keeps_embeddings: bool = False
    # Whether mixers other than attention run operator by operator, without the fused kernels of their authors.
    plain_mixers: bool = False
    # What the figures omit, one sentence each.
    not_counted: tuple[str, ...] = (DEVICE_OVERHEAD,)
