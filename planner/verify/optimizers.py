"""The optimizers of the spec language as PyTorch programs run them, and the bytes of state that they really hold.

Adam, AdamW, SGD, Adafactor and Muon are PyTorch's, Lion is lion-pytorch's, 8-bit AdamW is bitsandbytes'. Muon takes the weights that
the planner's rule names, and AdamW the rest. With ``bf16-master`` the optimizer has a float32 copy of every weight. Gradients in float32
have memory of their own: a gradient is added to it as soon as it arrives, and then dropped. Gradients in bf16 stay where PyTorch puts
them. On a made-up GPU a fused Adam reads them as they are, as those of Apex and Transformer Engine do; PyTorch's own optimizers want a
float32 copy, of one gradient after the other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake

from planner.capacity.parameters import parameters
from planner.capacity.states import muon_takes
from planner.spec.precision import AVERAGES, GRADIENTS, RECIPES, separate_gradients
from planner.spec.records import Model, Optimizer, OptimizerKernel, Training
from planner.trace.decoder import trace
from planner.verify.measured import State, pattern
from planner.verify.parts import UnbuildableError

MATRIX = 2  # dimensions
LEARNING_RATE = 1e-3
AVERAGE_WEIGHT = 1e-3
NOT_STATE = ("step",)  # counters, one a tensor where they are tensors at all


def third_party(module: str, package: str, optimizer: Optimizer) -> ModuleType:
    """Import an optimizer's library. Raises ``UnbuildableError`` naming the package where it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnbuildableError(f"optimizer {optimizer} needs the package {package}, which is not installed") from error


def muon_names(model: Model, training: Training) -> frozenset[str]:
    """Return the names of the weights that Muon updates, with N for the number of the layer: the planner's rule; the state is PyTorch's."""
    weights = parameters(trace(model, training)).weights
    return frozenset(pattern(weight.name) for weight in weights if muon_takes(weight, training))


def make(training: Training, named: Iterable[tuple[str, Tensor]], hidden: frozenset[str]) -> list[torch.optim.Optimizer]:
    """Return the optimizers that together train the parameters, given by our names: two for Muon, of which it has the hidden ones."""
    named = list(named)
    foreach, fused = KERNELS[training.optimizer_kernel]
    tensors = [tensor for _, tensor in named]
    match training.optimizer:
        case "adamw" | "adam" as name:
            return [ADAMS[name](tensors, LEARNING_RATE, foreach=foreach, fused=fused)]
        case "sgd" | "sgd-momentum" as name:
            # Fused SGD has no implementation for tensors without data; like the others, it needs no memory beside its state.
            momentum = 0.9 if name == "sgd-momentum" else 0.0
            return [torch.optim.SGD(tensors, LEARNING_RATE, momentum, foreach=foreach)]
        case "muon":
            matrices = [tensor for name, tensor in named if pattern(name) in hidden]
            others = [tensor for name, tensor in named if pattern(name) not in hidden]
            if any(tensor.dim() != MATRIX for tensor in matrices):
                raise UnbuildableError("muon_experts each: torch.optim.Muon takes no stack of experts' matrices")
            return [torch.optim.Muon(matrices, LEARNING_RATE), torch.optim.AdamW(others, LEARNING_RATE, foreach=foreach, fused=fused)]
        case "adafactor":
            return [torch.optim.Adafactor(tensors)]
        case "lion":
            return [third_party("lion_pytorch", "lion-pytorch", "lion").Lion(tensors, LEARNING_RATE)]
        case "adamw-8bit":
            return [third_party("bitsandbytes", "bitsandbytes", "adamw-8bit").optim.AdamW8bit(tensors, LEARNING_RATE)]


ADAMS: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
KERNELS: dict[OptimizerKernel, tuple[bool, bool]] = {"fused": (False, True), "foreach": (True, False), "for-loop": (False, False)}


class Trainer:
    """The optimizer's side of a training step: takes gradients as they arrive, steps, and lets go of them."""

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
        self.optimizers = make(training, [(name, self.masters.get(weight, weight)) for weight, name in self.names.items()], hidden)

    def held(self) -> tuple[Tensor, ...]:
        """Return the tensors that are there from the start: master weights, the memory of their gradients, the moving average."""
        return (*self.masters.values(), *self.main_gradients.values(), *self.average)

    def arrived(self, weight: Tensor) -> None:
        """Take a weight's gradient, which the backward pass has just finished."""
        if weight in self.main_gradients and weight.grad is not None:
            self.main_gradients[weight].add_(weight.grad)
            weight.grad = None

    def step(self) -> None:
        """Update the weights."""
        if self.masters and not self.main_gradients:
            self.update_by_gradients_in_bf16()
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

    def update_by_gradients_in_bf16(self) -> None:
        """Update float32 master weights: in one go where a fused kernel is made up, else one by one with a cast of the gradient."""
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
        """Let the optimizers update what has a gradient."""
        for optimizer in self.optimizers:
            optimizer.step()

    def forget(self) -> None:
        """Let go of the weights' gradients."""
        for weight in self.names:
            weight.grad = None

    def state(self) -> tuple[State, ...]:
        """Return what the optimizers hold for each parameter, each storage once."""
        names = {self.masters.get(weight, weight): name for weight, name in self.names.items()}
        rows: dict[int, tuple[Tensor, str, list[str]]] = {}
        for optimizer in self.optimizers:
            for parameter, entries in optimizer.state.items():
                for key, value in plain(entries):
                    if key not in NOT_STATE:
                        rows.setdefault(value.data_ptr(), (value, key, []))[2].append(names[parameter])
        return tuple(
            State(paths[0] if len(paths) == 1 else "", key, tuple(value.shape), str(value.dtype).removeprefix("torch."), bytes_of(value))
            for value, key, paths in rows.values()
        )

    def gradients(self) -> tuple[Tensor, ...]:
        """Return the gradients that the optimizer's step starts from."""
        if self.main_gradients:
            return tuple(self.main_gradients.values())
        return tuple(weight.grad for weight in self.names if weight.grad is not None)

    def counters(self) -> int:
        """Return the bytes of step counters that are tensors."""
        entries = [entry for optimizer in self.optimizers for entry in optimizer.state.values()]
        return sum(bytes_of(value) for entry in entries for key, value in plain(entry) if key in NOT_STATE)


def plain(entries: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """Return the entries of an optimizer's state that are tensors."""
    return [(key, value) for key, value in entries.items() if isinstance(value, Tensor)]


def bytes_of(tensor: Tensor) -> int:
    """Return the bytes of the tensor's storage."""
    return tensor.untyped_storage().nbytes()
