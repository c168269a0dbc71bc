"""What a spec says, resolved: frozen records with every default filled in. No YAML and no arithmetic here.

Sizes are annotated ``int``; the trace is also fed records whose sizes are symbols (see ``planner.sizes``), which only add, multiply and
floor-divide. Whatever *exists* is a string or a bool; whatever is *counted* is a size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from planner.spec.nodes import Node

Activation = Literal["gelu", "gelu_tanh", "gelu_new", "relu", "relu_squared", "silu"]
NormType = Literal["layernorm", "rmsnorm"]
NormPlacement = Literal["before", "after", "before_and_after"]
BlockType = Literal["sequential", "parallel_one_norm", "parallel_two_norms"]
PositionType = Literal["learned", "rope", "alibi", "sinusoidal", "none"]
QkNorm = Literal["none", "head_dim", "full_width"]
QkvProjection = Literal["fused", "fused_per_head", "separate"]
Precision = Literal["fp32", "bf16-autocast", "fp16-autocast", "bf16-master", "bf16"]
GradientDtype = Literal["fp32", "bf16"]
Optimizer = Literal["adamw", "adam", "sgd", "sgd-momentum", "adamw-8bit", "adafactor", "lion", "muon"]
Recompute = Literal["none", "selective", "full"]
Implementation = Literal["pytorch", "pytorch-eager", "transformers", "transformers-eager", "megatron"]
FlopsConvention = Literal["matmul", "matmul-causal", "6nd", "palm", "hardware"]


@dataclass(frozen=True, slots=True)
class Norm:
    """One normalisation: what it is and which vectors of width d it stores."""

    type: NormType = "layernorm"
    weight: bool = True
    bias: bool = True  # resolved: False for rmsnorm and wherever weight is False
    unit_offset: bool = False  # rmsnorm only: the stored weight is what is added to one (Gemma)


@dataclass(frozen=True, slots=True)
class Positions:
    """How a layer or the embedding learns where a token stands."""

    type: PositionType = "learned"
    offset: int = 0  # learned only: rows before position 0 (OPT stores 2)
    rotary_dim: int = 0  # rope only: how many of head_dim are rotated


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head attention; n_kv_heads < n_heads is grouped-query, 1 is multi-query."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    qkv: QkvProjection = "fused"
    q_bias: bool = True
    k_bias: bool = True
    v_bias: bool = True
    o_bias: bool = True
    qk_norm: QkNorm = "none"
    logit_softcap: bool = False  # scores pass through cap * tanh(scores / cap) (Gemma 2)


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Plain: up, activation, down. Gated: activation(gate) * up, down."""

    d_ff: int
    gated: bool = False
    activation: Activation = "gelu"
    gate_bias: bool = True
    up_bias: bool = True
    down_bias: bool = True


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: a mixer, a feed-forward, and the norms around them."""

    attention: Attention
    feed_forward: FeedForward
    positions: Positions = Positions()
    norm: Norm = Norm()
    norm_placement: NormPlacement = "before"
    block: BlockType = "sequential"


@dataclass(frozen=True, slots=True)
class Run:
    """The same layers, one after the other, ``count`` times over."""

    count: int
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder-only language model."""

    vocab_size: int  # V, before padding
    padded_vocab_size: int  # rows of the token table and of the head
    context_length: int
    d_model: int
    n_layers: int  # the sum over runs
    runs: tuple[Run, ...]
    positions: Positions = Positions()
    norm: Norm = Norm()  # of the final norm and the embedding norm
    embedding_norm: bool = False
    final_norm: bool = True
    tied_head: bool = True
    head_bias: bool = False
    logit_softcap: bool = False  # logits pass through cap * tanh(logits / cap)


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is trained: one scenario."""

    batch_size: int  # B, sequences per device and forward pass
    sequence_length: int  # n
    gradient_accumulation: int = 1
    tokens: int | None = None  # over the whole training; None: not said
    precision: Precision = "bf16-autocast"
    gradient_dtype: GradientDtype = "fp32"
    optimizer: Optimizer = "adamw"
    dropout: Fraction = Fraction(0)
    recompute: Recompute = "none"
    implementation: Implementation = "pytorch"
    flops_convention: FlopsConvention = "matmul"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named way of training the model; the spec's own ``training`` is the one named ``base``."""

    name: str
    training: Training


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: a file, a line and a column (both from 1)."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of ``expect``: a figure by its column name and the value that it must have."""

    figure: str
    value: int
    place: Place


@dataclass(frozen=True, slots=True)
class Waiver:
    """Leave to exceed a budget, with its reason, up to and including a day."""

    budget: str  # the budget's name
    reason: str
    until: date
    place: Place


@dataclass(frozen=True, slots=True)
class Spec:
    """One file's model with all its scenarios, the base scenario first."""

    name: str
    path: str  # as given by the user
    model: Model
    scenarios: tuple[Scenario, ...]
    sources: tuple[str, ...] = ()
    description: str = ""
    claims: tuple[Claim, ...] = ()
    places: dict[tuple[str | int, ...], Place] = field(default_factory=dict, compare=False, repr=False)
    defaulted: tuple[str, ...] = ()  # dotted keys that the user did not write, in schema order
    tags: tuple[str, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    written: Node | None = field(default=None, compare=False, repr=False)  # the tree it was resolved from, what it extends beneath it
