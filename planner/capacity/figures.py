"""Parameters, memory and FLOPs of a model as frozen records of exact integers. Totals are sums over lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, cast, get_args

from planner.spec.precision import Dtype
from planner.spec.records import FlopsConvention, Layout, Model, Training
from planner.trace.packing import Packing
from planner.trace.sizes import Size, product

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeVar

    from planner.capacity.served import Pooled, Served

    Number = TypeVar("Number", bound=Size, default=int)  # an integer, or a size in a symbolic plan
else:
    from typing import TypeVar

    Number = TypeVar("Number")

Component = Literal[
    "embedding", "position", "attention", "feed_forward", "ssm", "experts", "shared_experts", "router", "norm", "head", "other",
    "adapters",
]  # fmt: skip
COMPONENTS: tuple[Component, ...] = get_args(Component)

Group = Literal["tensor", "context", "experts", "stages", "ends", "data", "data of experts"]
"""Devices that communicate: those that share matrices, a sequence, experts, stages, a tied table, data, or copies of experts."""
EVERYTHING = ("everything",)  # what trains by default

Phase = Literal["forward", "loss", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Weight(Generic[Number]):
    """One stored tensor, ``copies`` of it in equal layers. ``name`` has N in place of the layer number."""

    name: str
    shape: tuple[Number, ...]
    copies: Number
    component: Component
    formula: str  # what it is, e.g. "linear d_model -> d_ff"
    always_float32: bool  # whether its module requires float32 for any dtype of the model
    active_each: Number  # elements of one copy that one token uses: top_k of the experts
    multiplied: bool  # whether a matrix product of the model multiplies by it: a matrix or a stack of them
    trains: bool = True  # whether it has a gradient and optimizer state
    dtype: Dtype = "float32"
    packing: Packing | None = None  # of its elements in few bits

    @property
    def params(self) -> Number:
        """Elements of all copies."""
        return cast("Number", product(self.shape) * self.copies)


@dataclass(frozen=True, slots=True)
class SavedStorage(Generic[Number]):
    """One storage saved for backward, ``copies`` of it."""

    path: str
    what: str  # "input of linear", "log-probabilities of nll_loss"
    shape: tuple[Number, ...]
    dtype: str
    bytes_each: Number
    copies: Number
    component: str  # a component, or "logits", "loss", "inputs"


@dataclass(frozen=True, slots=True)
class Parameters(Generic[Number]):
    """Parameters, each once: a tied LM head is the token embedding."""

    weights: tuple[Weight[Number], ...]
    padding_params: Number  # of them, in padding rows of the token embedding and LM head
    total: Number
    active: Number  # used by one token
    by_component: dict[Component, Number]
    correction_biases: Number  # of routers: buffers stored in checkpoints, in no other figure

    @property
    def trained(self) -> Number:
        """Elements of weights that train."""
        return cast("Number", sum(weight.params for weight in self.weights if weight.trains))


@dataclass(frozen=True, slots=True)
class ByteSum(Generic[Number]):
    """One part of the model states: bytes per parameter and in total."""

    part: str  # "weights", "master weights", "gradients", "optimizer"
    what: str  # "2 moments, fp32"
    bytes_per_param: int | None  # None if tensors differ
    total_bytes: Number


@dataclass(frozen=True, slots=True)
class PhasePeak(Generic[Number]):
    """Peak memory of a phase, and the operator at which it occurs."""

    phase: Phase
    operator: str
    peak_bytes: Number


@dataclass(frozen=True, slots=True)
class Traffic(Generic[Number]):
    """Bytes of one kind of collective in a step: of the whole tensors that are gathered, scattered, reduced or broadcast.

    ``spans``: devices from the first to the last one of a group that communicates, in the order of devices. ``group``: what they share.
    """

    collective: str
    bytes: Number
    spans: int
    group: Group = "data"


@dataclass(frozen=True, slots=True)
class Work(Generic[Number]):
    """The work of a device for one microbatch, in both passes and with recomputation."""

    linear_flops: Number  # matrix products of weights in layers, in 16 or 32 bits
    low_flops: Number  # the same in 8 bits
    expert_flops: Number  # of routed experts
    low_expert_flops: Number
    head_flops: Number
    attention_flops: Number  # products of pairs of tokens
    recomputed_flops: Number  # of all of them
    moved_bytes: Number  # read and written by operators without a matrix product
    expert_moved_bytes: Number  # by those of routed experts
    weight_bytes: Number  # of matrices, read in each pass, and of their gradients
    expert_weight_bytes: Number  # of those of routed experts
    operators: Number  # that run


@dataclass(frozen=True, slots=True)
class LiveBytes(Generic[Number]):
    """Allocated bytes between the phases of a step after the first; those after backward stay until the gradients are freed.

    Of several accumulated passes, those of the last one, which starts with all gradients.
    """

    start: Number
    after_forward: Number
    after_backward: Number


@dataclass(frozen=True, slots=True)
class Memory(Generic[Number]):
    """Bytes on a device: one that holds the whole model, or of several the one with the largest peak."""

    states: tuple[ByteSum[Number], ...]
    weights_bytes: Number
    master_weights_bytes: Number
    gradients_bytes: Number
    optimizer_bytes: Number
    model_states_bytes: Number  # the sum over states: the four above and the EMA weights
    kept: tuple[SavedStorage[Number], ...]
    activations_bytes: Number  # saved for backward: the sum over kept
    activations_by_component: dict[str, Number]  # COMPONENTS, then "logits", "loss", "inputs"; sums to activations_bytes
    logits_bytes: Number  # of them: copies of the logits (log-probabilities, casts)
    phases: tuple[PhasePeak[Number], ...]
    peak_bytes: Number  # the largest of phases, in every step after the first
    first_step_phases: tuple[PhasePeak[Number], ...]  # of the first step, which allocates optimizer state at its end
    first_step_peak_bytes: Number
    live: LiveBytes[Number]
    average_bytes: Number  # EMA weights
    step_counters_bytes: Number  # four bytes per tensor, in no part of the model states
    buffers_bytes: Number  # tensors of the model that are not parameters
    host_bytes: Number  # saved tensors that activation offloading copies to the host


@dataclass(frozen=True, slots=True)
class RankPeak(Generic[Number]):
    """A kind of device: which, the parameters that it stores, its peak, its memory by part, and the peak of each phase."""

    which: str
    params: Number
    peak_bytes: Number
    parts: tuple[tuple[str, Number], ...]
    phases: tuple[PhasePeak[Number], ...]
    work: Work[Number]
    traffic: tuple[Traffic[Number], ...]
    updated_bytes: Number  # of optimizer state and of the weights that it updates


@dataclass(frozen=True, slots=True)
class Fleet(Generic[Number]):
    """Several devices: the one with the largest peak, whose memory is the plan's, what it communicates, and whether its memory suffices."""

    layout: Layout
    fullest: str  # the device, and why
    params: Number  # stored on it
    buffers: tuple[tuple[str, Number], ...]  # of communication: what they are, and their bytes
    traffic: tuple[Traffic[Number], ...]
    peak_bytes: Number
    ranks: tuple[RankPeak[Number], ...]  # every kind of device
    host_bytes: Number  # of the device's model states that are in host memory

    @property
    def free_bytes(self) -> Number:
        """Memory of the device that neither the peak nor the reserve uses; negative if it does not fit."""
        cluster = self.layout.cluster
        return cast("Number", cluster.memory_bytes - cluster.reserve_bytes - self.peak_bytes)


@dataclass(frozen=True, slots=True)
class FlopsCount(Generic[Number]):
    """FLOPs under one convention. 1 multiply-add (MAC) is 2 FLOPs."""

    convention: FlopsConvention
    description: str
    forward_per_token: Number
    train_per_token: Number
    forward_per_step: Number  # one forward pass of B sequences of n tokens
    train_per_step: Number  # B·n tokens, forward and backward, times gradient_accumulation
    train_total: Number | None  # None: the spec sets no training tokens


@dataclass(frozen=True, slots=True)
class Flops(Generic[Number]):
    """FLOPs under every convention; ``chosen`` is the spec's."""

    chosen: FlopsCount[Number]
    by_convention: tuple[FlopsCount[Number], ...]
    forward_by_component: dict[Component, Number]  # per step, all matrix products, full n × n attention


@dataclass(frozen=True, slots=True)
class ShapeLine(Generic[Number]):
    """One tensor between token ids and logits."""

    path: str
    what: str
    shape: tuple[Number, ...]
    dtype: str
    copies: Number


@dataclass(frozen=True, slots=True)
class Prediction(Generic[Number]):
    """What multi-token prediction layers add to each figure. ``counted``: whether the totals include them."""

    counted: bool
    stored_params: Number  # in a checkpoint, with copies of token embedding and LM head, and router correction biases
    params: Number  # trained: token embedding and LM head are shared with the model
    active_params: Number
    model_states_bytes: Number
    activations_bytes: Number
    peak_bytes: Number
    forward_flops_per_token: Number
    train_flops_per_token: Number


@dataclass(frozen=True, slots=True)
class Plan(Generic[Number]):
    """Parameters, memory and FLOPs of one model in one scenario."""

    name: str
    scenario: str
    spec_path: str
    model: Model
    training: Training
    parameters: Parameters[Number]
    memory: Memory[Number]
    flops: Flops[Number]
    shapes: tuple[ShapeLine[Number], ...]
    initial_loss: float  # ln V: the loss of uniform predictions
    train_tokens: Number | None
    not_counted: tuple[str, ...]  # what the figures omit, one sentence each
    prediction: Prediction[Number] | None = None
    fleet: Fleet[Number] | None = None  # if the spec has a cluster; then memory is that of the fullest device
    omits: tuple[str, ...] = ()  # parts of the source model that the spec does not count; also in not_counted
    served: Served | Pooled | None = None  # of a section ``serving``, in the base scenario

    @property
    def fine_tuned(self) -> bool:
        """Whether some weights are frozen by ``training.train``."""
        return self.training.train != EVERYTHING

    def to_frame(self: Plan) -> pd.DataFrame:
        """Return one row with the columns of capacity.csv; ``planner.report.frame.to_frame`` accepts several plans."""
        from planner.report.frame import to_frame

        return to_frame([self])

    def _repr_html_(self: Plan) -> str:
        from planner.report.notebook import html

        return html([self])

    def _repr_markdown_(self: Plan) -> str:
        from planner.report.notebook import markdown

        return markdown([self])
