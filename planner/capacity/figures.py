"""What a model takes, as frozen records of exact integers. Totals are sums over lines; nothing here is rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, cast, get_args

from planner.spec.records import FlopsConvention, Model, Training
from planner.trace.sizes import Size, product

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeVar

    Number = TypeVar("Number", bound=Size, default=int)  # an integer; a size in the records of a symbolic plan
else:
    from typing import TypeVar

    Number = TypeVar("Number")

Component = Literal[
    "embedding", "position", "attention", "feed_forward", "ssm", "experts", "shared_experts", "router", "norm", "head", "other"
]
COMPONENTS: tuple[Component, ...] = get_args(Component)

Phase = Literal["forward", "loss", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Weight(Generic[Number]):
    """One stored tensor, ``copies`` of it where equal layers repeat it. ``name`` has N where the layer number goes."""

    name: str
    shape: tuple[Number, ...]
    copies: Number
    component: Component
    formula: str  # what it is, e.g. "linear d_model -> d_ff"
    always_float32: bool  # whether its module insists on it, whatever the model's dtype
    active_each: Number  # elements of one copy that one token uses: top_k of the experts
    multiplied: bool  # whether a matrix product of the model multiplies by it: a matrix or a stack of them

    @property
    def params(self) -> Number:
        """Elements of all copies."""
        return cast("Number", product(self.shape) * self.copies)


@dataclass(frozen=True, slots=True)
class SavedStorage(Generic[Number]):
    """One storage that stays alive from the forward pass to the backward pass, ``copies`` of it."""

    path: str
    what: str  # which tensor, in words: "input of q_proj", "log-probabilities"
    shape: tuple[Number, ...]
    dtype: str
    bytes_each: Number
    copies: Number
    component: str  # a component, or "logits", "loss", "inputs"


@dataclass(frozen=True, slots=True)
class Parameters(Generic[Number]):
    """Parameters, each once: a tied head is the same weight as the token table."""

    weights: tuple[Weight[Number], ...]
    padding_params: Number  # of them, rows of the token table and head that no token uses
    total: Number
    active: Number  # used by one token
    by_component: dict[Component, Number]
    correction_biases: Number  # of routers: stored in checkpoints, but buffers and in no other figure


@dataclass(frozen=True, slots=True)
class ByteSum(Generic[Number]):
    """Bytes per parameter of one part of the model states and what they come to."""

    part: str  # "weights", "master weights", "gradients", "optimizer"
    what: str  # "2 moments, fp32"
    bytes_per_param: int | None  # None where it differs from tensor to tensor
    total_bytes: Number


@dataclass(frozen=True, slots=True)
class PhasePeak(Generic[Number]):
    """The most bytes live at once in a phase, and the operator at which that is."""

    phase: Phase
    operator: str
    peak_bytes: Number


@dataclass(frozen=True, slots=True)
class LiveBytes(Generic[Number]):
    """Bytes alive at the seams of a step after the first; what is alive after the backward pass lasts until the gradients are dropped."""

    start: Number
    after_forward: Number
    after_backward: Number


@dataclass(frozen=True, slots=True)
class Memory(Generic[Number]):
    """Bytes on one device that holds the whole model."""

    states: tuple[ByteSum[Number], ...]
    weights_bytes: Number
    master_weights_bytes: Number
    gradients_bytes: Number
    optimizer_bytes: Number
    model_states_bytes: Number  # the sum over states: the four above, and an average of the weights
    kept: tuple[SavedStorage[Number], ...]
    activations_bytes: Number  # all that the forward pass leaves behind for backward: the sum over kept
    activations_by_component: dict[str, Number]  # COMPONENTS, then "logits", "loss", "inputs"; sums to activations_bytes
    logits_bytes: Number  # of them: copies of the logits (log-probabilities, casts)
    phases: tuple[PhasePeak[Number], ...]
    peak_bytes: Number  # the largest of phases, with the optimizer's state in place (every step after the first)
    first_step_phases: tuple[PhasePeak[Number], ...]  # of the first step, whose optimizer state appears at its end
    first_step_peak_bytes: Number
    live: LiveBytes[Number]
    average_bytes: Number  # a moving average of the weights
    step_counters_bytes: Number  # four bytes a tensor, in no part of the model states
    buffers_bytes: Number  # tensors of the model that are no parameters


@dataclass(frozen=True, slots=True)
class FlopsCount(Generic[Number]):
    """FLOPs under one convention, a multiply-add being 2."""

    convention: FlopsConvention
    description: str
    forward_per_token: Number
    train_per_token: Number
    forward_per_step: Number  # one forward pass of B sequences of n tokens
    train_per_step: Number  # B·n tokens, forward and backward, times gradient_accumulation
    train_total: Number | None  # None: the spec gives no tokens


@dataclass(frozen=True, slots=True)
class Flops(Generic[Number]):
    """FLOPs under every convention; ``chosen`` is the spec's."""

    chosen: FlopsCount[Number]
    by_convention: tuple[FlopsCount[Number], ...]
    forward_by_component: dict[Component, Number]  # per step, all matrix products, full attention square


@dataclass(frozen=True, slots=True)
class ShapeLine(Generic[Number]):
    """One tensor on the way from the token ids to the logits."""

    path: str
    what: str
    shape: tuple[Number, ...]
    dtype: str
    copies: Number


@dataclass(frozen=True, slots=True)
class Prediction(Generic[Number]):
    """What layers that predict further tokens add to each figure; ``counted``: whether they are in the totals."""

    counted: bool
    stored_params: Number  # in a checkpoint, with its copies of the token table and the head and the corrections of scores
    params: Number  # trained: the token table and the head are the model's
    active_params: Number
    model_states_bytes: Number
    activations_bytes: Number
    peak_bytes: Number
    forward_flops_per_token: Number
    train_flops_per_token: Number


@dataclass(frozen=True, slots=True)
class Plan(Generic[Number]):
    """Everything that one model takes in one scenario."""

    name: str
    scenario: str
    spec_path: str
    model: Model
    training: Training
    parameters: Parameters[Number]
    memory: Memory[Number]
    flops: Flops[Number]
    shapes: tuple[ShapeLine[Number], ...]
    initial_loss: float  # ln V: what a model that knows nothing scores
    train_tokens: Number | None
    not_counted: tuple[str, ...]  # what the figures leave out, in a sentence each
    prediction: Prediction[Number] | None = None

    def to_frame(self: Plan) -> pd.DataFrame:
        """Return one row under the columns of capacity.csv, every integer exact; ``planner.report.frame.to_frame`` takes several plans."""
        from planner.report.frame import to_frame

        return to_frame([self])

    def _repr_html_(self: Plan) -> str:
        from planner.report.notebook import html

        return html([self])

    def _repr_markdown_(self: Plan) -> str:
        from planner.report.notebook import markdown

        return markdown([self])
