"""What a forward pass runs, and the part of it that one of several devices has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, cast

from planner.spec.precision import Recipe, recipe_of
from planner.spec.records import Model, Training
from planner.trace.classes import class_of
from planner.trace.implementation import Implementation
from planner.trace.inference import Inference
from planner.trace.model_class import ModelClass
from planner.trace.sizes import Size, ceil_div, choose, structure


def is_one(size: int) -> bool:
    """Whether a size is one, by which ``choose`` decides the structure of a pass."""
    return size == 1


@dataclass(slots=True)
class Setup:
    """A model, its training or the pass of inference, and what follows from them."""

    implementation: Implementation
    model: Model
    training: Training
    inference: Inference | None = None
    causal: bool = field(init=False)  # whether tokens attend to earlier ones only
    precision: Recipe = field(init=False)
    modules: ModelClass = field(init=False)  # what differs from Llama's modules

    def __post_init__(self) -> None:
        self.precision = recipe_of(self.training)
        self.causal = self.model.causal
        of_transformers = self.training.implementation.startswith("transformers")
        self.modules = class_of(self.model) if of_transformers else self.implementation.modules

    @property
    def device(self) -> Literal["cuda", "cpu"]:
        """The device whose kernels are modeled."""
        return "cpu" if self.training.device == "cpu" else "cuda"

    @property
    def divided(self) -> bool:
        """Whether several devices train the model."""
        return self.training.layout is not None and self.training.layout.cluster.devices > 1

    @property
    def degree(self) -> Size:
        """The devices of tensor parallelism."""
        return self.training.layout.tensor_parallel if self.training.layout else 1

    @property
    def rings(self) -> bool:
        """Whether attention reads keys of other devices in steps."""
        return not self.megatron and structure(self.context) > 1 and not self.exchanges_heads

    @property
    def exchanges_heads(self) -> bool:
        """Whether attention is of whole sequences and a part of the heads."""
        kind = self.training.layout.context_kind if self.training.layout else "ring"
        return not self.megatron and structure(self.context) > 1 and kind == "ulysses"

    @property
    def gathers_keys(self) -> bool:
        """Whether it gathers those keys before."""
        return self.training.layout is not None and self.training.layout.context_kind == "all_gather"

    def part(self, size: int) -> int:
        """Return a device's part of the heads, of a hidden width or of the vocabulary. Structure depends on whether it is one."""
        mine = size // self.degree
        return 1 if choose(is_one, mine) else cast("int", mine)

    @property
    def vocabulary(self) -> int:
        """A device's part of the padded vocabulary, which Megatron-Core pads until each part is a multiple."""
        padded, multiple = self.model.padded_vocab_size, self.model.vocab_multiple * self.degree
        return self.part(cast("int", ceil_div(padded, multiple) * multiple) if self.vocabulary_parallel else padded)

    @property
    def expert_degree(self) -> Size:
        """The devices that share the experts of a layer."""
        return self.training.layout.expert_parallel if self.training.layout else 1

    @property
    def expert_tensor_degree(self) -> int:
        """The devices that share the matrices of each expert."""
        return self.training.layout.expert_tensor_degree if self.training.layout and self.megatron else 1

    @property
    def context(self) -> Size:
        """The devices of context parallelism."""
        return self.training.layout.context_parallel if self.training.layout else 1

    @property
    def sequence(self) -> int:
        """The tokens of a sequence that the device has."""
        return cast("int", self.training.sequence_length // self.context)

    @property
    def megatron(self) -> bool:
        """Whether Megatron-Core divides the model among devices, not PyTorch."""
        return self.implementation.enter is not None

    @property
    def vocabulary_parallel(self) -> bool:
        """Whether lookup and loss run on parts of the vocabulary, with gradients of these parts only."""
        return self.tensor_parallel and self.megatron

    @property
    def batched_experts(self) -> bool:
        """Whether experts compute equally many rows of a buffer."""
        kernel, plain = self.training.experts_kernel, self.training.implementation in ("pytorch", "pytorch-eager")
        return kernel == "batched" or (kernel == "auto" and plain and structure(self.expert_degree) > 1)

    @property
    def loss_parallel(self) -> bool:
        """Whether the loss is computed on parts of the vocabulary."""
        return self.vocabulary_parallel or (self.training.layout is not None and self.training.layout.loss_parallel)

    @property
    def tensor_parallel(self) -> bool:
        """Whether several devices share the matrices of layers."""
        return self.degree > 1

    @property
    def sequence_parallel(self) -> bool:
        """Whether they divide the sequence between those matrices."""
        return self.training.layout is not None and self.training.layout.sequence_parallel

    @property
    def piped(self) -> bool:
        """Whether devices have the layers in turn."""
        return self.training.layout is not None and self.training.layout.pipeline_parallel > 1

    @property
    def stores_keys(self) -> bool:
        """Whether the model stores the last keys and values of each kind."""
        kinds = (layer.attention for run in self.model.runs for layer in run.layers)
        its = self.modules.stores_keys
        return its == "all" or (its == "reused" and any(kind and kind.shared_kv for kind in kinds))

    @property
    def fused_mixers(self) -> bool:
        """Whether mixers run the kernels of their authors, for which packages must be installed beside transformers."""
        return not self.implementation.plain_mixers or self.training.mixer_kernels == "fused"

    @property
    def recomputes_attention(self) -> bool:
        """Whether the inside of attention is recomputed alone."""
        return self.recomputes("core_attn") and not self.implementation.saved_outputs

    def recomputes(self, module: str) -> bool:
        """Whether a part of a layer is recomputed alone."""
        return self.training.recompute == "selective" and getattr(self.training.recompute_modules, module)
