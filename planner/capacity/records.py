"""What a model takes, as frozen records of exact integers. Totals are sums over lines; nothing here is rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from planner.spec.records import FlopsConvention, Model, Training
from planner.trace.sizes import product

if TYPE_CHECKING:
    import pandas as pd

Component = Literal[
    "embedding", "position", "attention", "feed_forward", "ssm", "experts", "shared_experts", "router", "norm", "head", "other"
]
COMPONENTS: tuple[Component, ...] = get_args(Component)

Phase = Literal["forward", "loss", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Weight:
    """One stored tensor, ``copies`` of it where equal layers repeat it. ``name`` has N where the layer number goes."""

    name: str
    shape: tuple[int, ...]
    copies: int
    component: Component
    formula: str  # what it is, e.g. "linear d_model -> d_ff"
    always_float32: bool  # whether its module insists on it, whatever the model's dtype
    active_each: int  # elements of one copy that one token uses: top_k of the experts

    @property
    def params(self) -> int:
        """Elements of all copies."""
        return product(self.shape) * self.copies


@dataclass(frozen=True, slots=True)
class Kept:
    """One storage that stays alive from the forward pass to the backward pass, ``copies`` of it."""

    path: str
    what: str  # which tensor, in words: "input of q_proj", "log-probabilities"
    shape: tuple[int, ...]
    dtype: str
    bytes_each: int
    copies: int
    component: str  # a component, or "logits", "loss", "inputs"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters, each once: a tied head is the same weight as the token table."""

    weights: tuple[Weight, ...]
    padding_params: int  # of them, rows of the token table and head that no token uses
    total: int
    active: int  # used by one token
    by_component: dict[Component, int]
    correction_biases: int  # of routers: stored in checkpoints, but buffers and in no other figure
    prediction: int  # of multi-token prediction, in no other figure


@dataclass(frozen=True, slots=True)
class ByteSum:
    """Bytes per parameter of one part of the model states and what they come to."""

    part: str  # "weights", "master weights", "gradients", "optimizer"
    what: str  # "2 moments, fp32"
    bytes_per_param: int | None  # None where it differs from tensor to tensor
    total_bytes: int


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The most bytes live at once in a phase, and the operator at which that is."""

    phase: Phase
    operator: str
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class LiveBytes:
    """Bytes alive at the seams of a step after the first; what is alive after the backward pass lasts until the gradients are dropped."""

    start: int
    after_forward: int
    after_backward: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one device that holds the whole model."""

    states: tuple[ByteSum, ...]
    weights_bytes: int
    master_weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    model_states_bytes: int  # the sum over states: the four above, and an average of the weights
    kept: tuple[Kept, ...]
    activations_bytes: int  # all that the forward pass leaves behind for backward: the sum over kept
    activations_by_component: dict[str, int]  # COMPONENTS, then "logits", "loss", "inputs"; sums to activations_bytes
    logits_bytes: int  # of them: copies of the logits (log-probabilities, casts)
    phases: tuple[PhasePeak, ...]
    peak_bytes: int  # the largest of phases, with the optimizer's state in place (every step after the first)
    first_step_phases: tuple[PhasePeak, ...]  # of the first step, whose optimizer state appears at its end
    first_step_peak_bytes: int
    live: LiveBytes
    average_bytes: int  # a moving average of the weights
    step_counters_bytes: int  # four bytes a tensor, in no part of the model states
    buffers_bytes: int  # tensors of the model that are no parameters


@dataclass(frozen=True, slots=True)
class FlopsCount:
    """FLOPs under one convention, a multiply-add being 2."""

    convention: FlopsConvention
    description: str
    forward_per_token: int
    train_per_token: int
    forward_per_step: int  # one forward pass of B sequences of n tokens
    train_per_step: int  # B·n tokens, forward and backward, times gradient_accumulation
    train_total: int | None  # None: the spec gives no tokens


@dataclass(frozen=True, slots=True)
class Flops:
    """FLOPs under every convention; ``chosen`` is the spec's."""

    chosen: FlopsCount
    by_convention: tuple[FlopsCount, ...]
    forward_by_component: dict[Component, int]  # per step, all matrix products, full attention square


@dataclass(frozen=True, slots=True)
class ShapeLine:
    """One tensor on the way from the token ids to the logits."""

    path: str
    what: str
    shape: tuple[int, ...]
    dtype: str
    copies: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one model takes in one scenario."""

    name: str
    scenario: str
    spec_path: str
    model: Model
    training: Training
    parameters: Parameters
    memory: Memory
    flops: Flops
    shapes: tuple[ShapeLine, ...]
    initial_loss: float  # ln V: what a model that knows nothing scores
    train_tokens: int | None
    not_counted: tuple[str, ...]  # what the figures leave out, in a sentence each

    def to_frame(self) -> pd.DataFrame:
        """Return one row under the columns of capacity.csv, every integer exact; ``planner.report.frame.to_frame`` takes several plans."""
        from planner.report.frame import to_frame

        return to_frame([self])

    def _repr_html_(self) -> str:
        from planner.report.notebook import html

        return html([self])

    def _repr_markdown_(self) -> str:
        from planner.report.notebook import markdown

        return markdown([self])
