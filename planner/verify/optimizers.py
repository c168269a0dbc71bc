"""Optimizers in PyTorch, and the bytes of their state.

Adam, AdamW, SGD, Adafactor and Muon are PyTorch's, Lion is lion-pytorch's, the others are bitsandbytes' and torchao's; under an
implementation of transformers, Adafactor is that of its Trainer. Muon updates the weights that the planner's rule selects, AdamW the
others. With ``bf16-master`` the optimizer has a float32 copy of every weight. Float32 gradients
have their own buffer: each gradient of the backward pass is added to it at once, and then freed. Bf16 gradients stay where PyTorch puts
them. On a fake GPU a fused Adam reads them directly, as those of Apex and Transformer Engine do; PyTorch's own optimizers require a
float32 copy of one gradient after the other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake
from torch.utils._pytree import tree_leaves

from planner.capacity.optimizers import muon_updates, of_transformers
from planner.capacity.parameters import parameters
from planner.spec.precision import AVERAGES, GRADIENTS, RECIPES, separate_gradients
from planner.spec.records import Model, Optimizer, OptimizerKernel, Training
from planner.trace.decoder import trace
from planner.verify import OptimizerError
from planner.verify.measured import pattern

MATRIX = 2  # dimensions
LEARNING_RATE = 1e-3
AVERAGE_WEIGHT = 1e-3
STEP_COUNTER = "step"  # one per weight; a tensor in some optimizers


def third_party(module: str, package: str, optimizer: Optimizer) -> ModuleType:
    """Import an optimizer's package. Raises ``OptimizerError`` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise OptimizerError(f"optimizer {optimizer} requires the package {package}, which is not installed") from error


def muon_names(model: Model, training: Training) -> frozenset[str]:
    """Return the names of the weights that Muon updates by the planner's rule, with N for the number of the layer."""
    weights = parameters(trace(model, training)).weights
    return frozenset(pattern(weight.name) for weight in weights if muon_updates(weight, training))


def make(training: Training, named: Iterable[tuple[str, Tensor]], hidden: frozenset[str]) -> list[torch.optim.Optimizer]:
    """Return the optimizers of the parameters, which have our names: Muon for those in ``hidden``, with AdamW for the others."""
    named = list(named)
    foreach, fused = KERNELS[training.optimizer_kernel]
    tensors = [tensor for _, tensor in named]
    match training.optimizer:
        case "adamw" | "adam" as name:
            return [ADAMS[name](tensors, LEARNING_RATE, amsgrad=training.amsgrad, foreach=foreach, fused=fused)]
        case "sgd" | "sgd-momentum" as name:
            # Fused SGD does not support tensors without data; like the others, it needs no memory besides its state.
            momentum = 0.9 if name == "sgd-momentum" else 0.0
            return [torch.optim.SGD(tensors, LEARNING_RATE, momentum, foreach=foreach)]
        case "muon":
            matrices = [tensor for name, tensor in named if pattern(name) in hidden]
            others = [tensor for name, tensor in named if pattern(name) not in hidden]
            if any(tensor.dim() != MATRIX for tensor in matrices):
                raise OptimizerError("muon_experts each: torch.optim.Muon does not support stacked matrices of experts")
            return [torch.optim.Muon(matrices, LEARNING_RATE), torch.optim.AdamW(others, LEARNING_RATE, foreach=foreach, fused=fused)]
        case "adafactor":
            return [adafactor(training, tensors)]
        case "lion" | "soap" as name:
            return [of_one_package(name, tensors)]
        case name:
            return [in_few_bits(name, tensors, paged=training.paged)]


def adafactor(training: Training, tensors: list[Tensor]) -> torch.optim.Optimizer:
    """Return PyTorch's Adafactor or that of transformers, as its Trainer creates it; a beta1 is the user's own."""
    if not of_transformers(training):
        return torch.optim.Adafactor(tensors)
    made = third_party("transformers.optimization", "transformers", "adafactor").Adafactor
    beta1 = 0.9 if training.first_moment else None
    return made(tensors, LEARNING_RATE, beta1=beta1, scale_parameter=False, relative_step=False)  # type: ignore[no-any-return] # untyped


def of_one_package(name: Literal["lion", "soap"], tensors: list[Tensor]) -> torch.optim.Optimizer:
    """Return lion-pytorch's Lion, or pytorch_optimizer's SOAP, with new bases in each step instead of every tenth."""
    if name == "lion":
        return third_party("lion_pytorch", "lion-pytorch", "lion").Lion(tensors, LEARNING_RATE)  # type: ignore[no-any-return] # untyped
    soap = third_party("pytorch_optimizer", "pytorch_optimizer", "soap").SOAP
    return soap(tensors, LEARNING_RATE, precondition_frequency=1)  # type: ignore[no-any-return] # untyped


def in_few_bits(name: Optimizer, tensors: list[Tensor], *, paged: bool) -> torch.optim.Optimizer:
    """Return an optimizer of bitsandbytes or torchao."""
    fake = any(map(is_fake, tensors))
    if name in OF_TORCHAO:
        if fake:
            raise OptimizerError(f"optimizer {name} needs data: torch.compile builds its kernels")
        package, kind = third_party("torchao.optim", "torchao", name), OF_TORCHAO[name]
    else:
        if fake and paged:
            raise OptimizerError(f"a paged optimizer {name} needs the unified memory of a GPU")
        package, kind = third_party("bitsandbytes.optim", "bitsandbytes", name), f"{'Paged' if paged else ''}{OF_BITSANDBYTES[name]}"
    return getattr(package, kind)(tensors, LEARNING_RATE)  # type: ignore[no-any-return] # untyped


ADAMS: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
OF_BITSANDBYTES: dict[Optimizer, str] = {
    "adamw-8bit": "AdamW8bit",
    "adamw-32bit": "AdamW32bit",
    "lion-8bit": "Lion8bit",
    "lion-32bit": "Lion32bit",
    "ademamix": "AdEMAMix",
    "ademamix-8bit": "AdEMAMix8bit",
}
OF_TORCHAO: dict[Optimizer, str] = {"adamw-8bit-torchao": "AdamW8bit", "adamw-4bit": "AdamW4bit", "adamw-fp8": "AdamWFp8"}
KERNELS: dict[OptimizerKernel, tuple[bool, bool]] = {"fused": (False, True), "foreach": (True, False), "for-loop": (False, False)}


class Trainer:
    """The optimizer's part of a training step: collects gradients, updates the weights, frees the gradients."""

    def __init__(self, module: nn.Module, training: Training, our_name: Callable[[str], str], hidden: frozenset[str]) -> None:
        self.names = {weight: our_name(name) for name, weight in module.named_parameters()}
        self.fused = training.optimizer in ADAMS and training.optimizer_kernel == "fused"
        recipe, average = RECIPES[training.precision], AVERAGES[training.ema]
        self.average = [weight.detach().to(getattr(torch, average), copy=True) for weight in self.names if average]
        self.masters: dict[Tensor, Tensor] = {}
        self.main_gradients: dict[Tensor, Tensor] = {}
        if recipe.master:
            self.masters = {weight: nn.Parameter(weight.detach().to(getattr(torch, recipe.master))) for weight in self.names}
        if separate_gradients(training):
            gradients = getattr(torch, GRADIENTS[training.gradient_dtype])
            self.main_gradients = {weight: torch.zeros_like(weight, dtype=gradients) for weight in self.names}
        named = [(name, self.masters.get(weight, weight)) for weight, name in self.names.items()]
        self.in_backward: dict[Tensor, torch.optim.Optimizer] = {}
        if training.optimizer_in_backward:
            self.in_backward = {weight: made for name, weight in named for made in make(training, [(name, weight)], hidden)}
        self.optimizers = list(self.in_backward.values()) or make(training, named, hidden)

    def initial_tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that exist from the start: master weights, their gradients, EMA weights."""
        return (*self.masters.values(), *self.main_gradients.values(), *self.average)

    def arrived(self, weight: Tensor) -> None:
        """Collect a weight's gradient when the backward pass has computed it, or update the weight by it."""
        if weight in self.main_gradients and weight.grad is not None:
            self.main_gradients[weight].add_(weight.grad)
            weight.grad = None
        if weight in self.in_backward:
            self.in_backward[weight].step()
            weight.grad = None

    def step(self) -> None:
        """Update the weights."""
        if self.masters and not self.main_gradients:
            self.update_by_gradients_in_16_bits()
        else:
            for weight, gradient in self.main_gradients.items():
                self.masters[weight].grad = gradient
            self.update()
        with torch.no_grad():
            for weight, master in self.masters.items():
                weight.copy_(master)
                master.grad = None
            for gradient in self.main_gradients.values():
                gradient.zero_()
            for weight, average in zip(self.names, self.average, strict=False):
                average.lerp_(weight.to(average.dtype), AVERAGE_WEIGHT)

    def update_by_gradients_in_16_bits(self) -> None:
        """Update float32 master weights: all at once by a fused kernel on a fake GPU, else one by one with a cast of the gradient."""
        for weight, master in self.masters.items():
            if self.fused and is_fake(weight):
                master.grad_dtype = None  # let the dtypes differ
                master.grad = weight.grad
            elif weight.grad is not None:
                master.grad = weight.grad.float()
                self.update()
                master.grad = None
        if self.fused and any(map(is_fake, self.masters)):
            self.update()

    def update(self) -> None:
        """Step the optimizers."""
        for optimizer in self.optimizers:
            optimizer.step()

    def free_gradients(self) -> None:
        """Free the weights' gradients."""
        for weight in self.names:
            weight.grad = None

    def state_bytes(self) -> int:
        """Return the bytes of the optimizers' state, each storage once, without step counters."""
        entries = [entry for optimizer in self.optimizers for state in optimizer.state.values() for entry in state.items()]
        values = [value for key, held in entries for value in tree_leaves(held) if isinstance(value, Tensor) and key != STEP_COUNTER]
        tensors = {tensor.data_ptr(): tensor for value in values for tensor in parts_of(value)}
        return sum(map(bytes_of, tensors.values()))

    def gradients(self) -> tuple[Tensor, ...]:
        """Return the gradients that the optimizer reads."""
        if self.main_gradients:
            return tuple(self.main_gradients.values())
        return tuple(weight.grad for weight in self.names if weight.grad is not None)


def parts_of(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that a quantized tensor of torchao consists of; a plain tensor is its own part."""
    return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]] if hasattr(tensor, "__tensor_flatten__") else [tensor]


def bytes_of(tensor: Tensor) -> int:
    """Return the bytes of the tensor's storage."""
    return tensor.untyped_storage().nbytes()
