"""What a spec says, resolved: frozen records with every default filled in. No YAML and no arithmetic here.

Sizes are annotated ``int``; the trace is also fed records whose sizes are symbols (see ``planner.sizes``), which only add, multiply and
floor-divide. Whatever *exists* is a string or a bool; whatever is *counted* is a size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from planner.spec.nodes import Node

Activation = Literal["gelu", "gelu_tanh", "gelu_new", "relu", "relu_squared", "silu"]
NormType = Literal["layernorm", "rmsnorm"]
NormPlacement = Literal["before", "after", "before_and_after", "after_residual"]
BlockType = Literal["sequential", "parallel_one_norm", "parallel_two_norms"]
PositionType = Literal["learned", "rope", "alibi", "sinusoidal", "none"]
QkNorm = Literal["none", "head_dim", "per_head", "full_width"]
QkvProjection = Literal["fused", "fused_per_head", "separate"]
OutputGate = Literal["none", "element", "head"]
Scoring = Literal["softmax", "sigmoid"]
ScoresDtype = Literal["fp32", "compute"]
CorrectionBias = Literal["none", "buffer", "parameter"]
Precision = Literal["fp32", "bf16-autocast", "fp16-autocast", "bf16-master", "bf16"]
GradientDtype = Literal["fp32", "bf16"]
Optimizer = Literal["adamw", "adam", "sgd", "sgd-momentum", "adamw-8bit", "adafactor", "lion", "muon"]
Recompute = Literal["none", "selective", "full"]
AttentionKernel = Literal["auto", "flash", "efficient", "cudnn", "math"]
Device = Literal["a100", "h100", "cpu"]
Loss = Literal["default", "cross_entropy", "cross_entropy_shifted", "linear_cross_entropy", "linear_cross_entropy_chunked"]
Ema = Literal["none", "fp32", "bf16"]
OptimizerKernel = Literal["fused", "foreach", "for-loop"]
MuonExperts = Literal["adamw", "each"]
Implementation = Literal["pytorch", "pytorch-eager", "transformers", "transformers-eager", "megatron"]
FlopsConvention = Literal["matmul", "matmul-causal", "6nd", "6nd-kaplan", "palm", "hardware"]


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
    v_head_dim: int | None = None  # width of a value head; None: head_dim
    qkv: QkvProjection = "fused"
    q_bias: bool = True
    k_bias: bool = True
    v_bias: bool = True
    o_bias: bool = True
    qk_norm: QkNorm = "none"
    window: int | None = None  # keys that a query sees, itself included; None: all before it
    chunked: bool = False  # the window is a chunk of the sequence, of which a query sees no other (Llama 4)
    logit_softcap: bool = False  # scores pass through cap * tanh(scores / cap) (Gemma 2)
    output_gate: OutputGate = "none"  # what multiplies the heads before the last projection
    sinks: bool = False  # one learned score per head that takes part in the softmax
    output_norm: bool = False  # a norm over all heads before the last projection (BitNet)
    keys_as_values: bool = False  # no projection of values: they are the keys
    shared_kv: bool = False  # no projections of keys and values: they are an earlier layer's
    differential: bool = False  # two softmaxes subtracted, with four learned vectors of head_dim (Ye et al. 2024, arXiv:2410.05258)


@dataclass(frozen=True, slots=True)
class Indexer:
    """What picks the keys that sparse attention looks at (DeepSeek-V3.2)."""

    n_heads: int
    head_dim: int
    top_k: int  # keys that a query looks at


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): keys and values from one compressed vector a token."""

    n_heads: int
    kv_rank: int
    nope_dim: int  # of a query or key head, without positions
    rope_dim: int  # of a query or key head, rotated; one key for all heads
    v_dim: int  # of a value head
    q_rank: int | None = None  # None: queries are projected directly
    bias: bool = False  # of the compressing projections and the last one
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True)
class Mamba:
    """Mamba-1 (Gu and Dao 2023, arXiv:2312.00752)."""

    d_inner: int
    d_state: int
    d_conv: int
    dt_rank: int
    conv_bias: bool = True
    bias: bool = False  # of the first and the last projection
    norms: bool = False  # norms with weights on dt, B and C (Jamba)


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Mamba-2 (Dao and Gu 2024, arXiv:2405.21060)."""

    d_inner: int
    d_state: int
    n_heads: int
    n_groups: int
    d_conv: int
    conv_bias: bool = True
    bias: bool = False
    gated_norm: bool = True


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) as in Qwen3-Next."""

    n_key_heads: int
    n_value_heads: int
    key_dim: int  # of a head
    value_dim: int  # of a head
    d_conv: int


@dataclass(frozen=True, slots=True)
class KimiDeltaAttention:
    """Kimi Delta Attention (Kimi Team 2025, arXiv:2510.26692)."""

    n_heads: int
    head_dim: int
    d_conv: int


@dataclass(frozen=True, slots=True)
class LightningAttention:
    """Lightning attention with an output gate (MiniMax 2025, arXiv:2501.08313)."""

    n_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class RgLru:
    """The recurrent block of Griffin (De et al. 2024, arXiv:2402.19427): two branches, a convolution and a gated linear recurrence."""

    width: int
    n_blocks: int  # of the block-diagonal gates
    d_conv: int


@dataclass(frozen=True, slots=True)
class Rwkv:
    """The time mixing of RWKV-4 (Peng et al. 2023, arXiv:2305.13048)."""

    width: int


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """The gated short convolution of LFM2."""

    width: int
    d_conv: int
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Mlstm:
    """The mLSTM layer of xLSTM-7B (Beck et al. 2025, arXiv:2503.13427)."""

    n_heads: int
    qk_dim: int  # of all heads
    v_dim: int  # of all heads


Mixer: TypeAlias = (
    LatentAttention | Mamba | Mamba2 | GatedDeltaNet | KimiDeltaAttention | LightningAttention | RgLru | Rwkv | ShortConvolution | Mlstm
)


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Plain: up, activation, down. Gated: activation(gate) * up, down."""

    d_ff: int
    gated: bool = False
    activation: Activation = "gelu"
    gate_bias: bool = True
    up_bias: bool = True
    down_bias: bool = True
    hidden_norm: bool = False  # a norm before the last matrix (BitNet)
    channel_mix: bool = False  # RWKV's: a receptance gate and two mixing vectors beside key (up) and value (down)


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts, each a small feed-forward, of which a token takes ``top_k``."""

    count: int
    top_k: int
    d_ff: int
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False  # of each expert's matrices
    scoring: Scoring = "softmax"
    normalize: bool = True  # whether the chosen scores are scaled to sum to one
    scores_dtype: ScoresDtype = "fp32"
    router_bias: bool = False
    correction_bias: CorrectionBias = "none"
    shared_d_ff: int | None = None  # width of the feed-forward that every token takes; None: there is none
    shared_gate: bool = False
    latent_dim: int | None = None  # experts work at this width, behind one projection down and one up a layer
    empty: int = 0  # experts that only the router knows: they return their input
    capacity_factor: Fraction = Fraction(1)  # rows computed for each routed token


@dataclass(frozen=True, slots=True)
class Extra:
    """A tensor that the user declares: counted in its component, and multiplied by each token ``uses`` times."""

    name: str
    shape: tuple[int, ...]
    component: str
    uses: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: mixers side by side on one input, then a feed-forward or experts, and the norms around them."""

    attention: Attention | None
    feed_forward: FeedForward | None
    mixers: tuple[Mixer, ...] = ()  # beside the attention, or in its place
    experts: Experts | None = None  # beside the feed-forward, or in its place
    positions: Positions = Positions()
    norm: Norm = Norm()
    norm_placement: NormPlacement = "before"
    block: BlockType = "sequential"
    extra: tuple[Extra, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """The same layers, one after the other, ``count`` times over."""

    count: int
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class PerLayerEmbedding:
    """A second token table with a vector of ``dim`` for each layer, and what mixes it in (Gemma 3n)."""

    vocab_size: int
    dim: int


@dataclass(frozen=True, slots=True)
class MultiTokenPrediction:
    """Further layers that predict tokens after the next (DeepSeek-V3): never in the model's total, a line of their own."""

    count: int
    copies_embedding: bool = True  # whether the checkpoint holds the token table and the head once more for each


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
    embedding_scale: bool = False  # tokens' vectors are multiplied by the square root of d_model (Gemma)
    final_norm: bool = True
    tied_head: bool = True
    head_bias: bool = False
    logit_softcap: bool = False  # logits pass through cap * tanh(logits / cap)
    embedding_dim: int | None = None  # width of the token table, where projections lead to and from d_model (OPT-350m)
    per_layer_embedding: PerLayerEmbedding | None = None
    prediction: MultiTokenPrediction | None = None
    extra: tuple[Extra, ...] = ()


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
    device: Device = "a100"  # whose kernels run: a GPU of that class, or the CPU
    attention_kernel: AttentionKernel = "auto"  # fused attention only: the one that the device picks, or a forced one
    loss: Loss = "default"  # the implementation's own, or another
    keep_logits: bool = False  # whether a variable holds the logits until the step ends
    kv_cache: bool = False  # transformers only: whether use_cache copies keys and values of each layer
    optimizer_kernel: OptimizerKernel = "fused"
    muon_experts: MuonExperts = "adamw"  # muon only: who updates the matrices of routed experts, Muon each on its own
    ema: Ema = "none"  # dtype of a moving average of the weights
    reserve_bytes: int = 0  # of what no figure counts (CUDA context, workspaces, fragmentation): added to the peak
    round_allocations: bool = False  # whether the peak rounds each tensor up to the allocator's blocks of 512 bytes
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
