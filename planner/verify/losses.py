"""How a training program gets its loss: the implementation's own way, or one that the spec asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it

from planner.spec.records import Training
from planner.verify import CannotMeasureError
from planner.verify.modules import CausalLM

# Of a module, ids and targets: the loss, and what the program still holds until the step ends if it holds the logits.
LossFunction = Callable[[Any, Tensor, Tensor], tuple[Tensor, Any]]


def own_of_modules(module: CausalLM, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Compute the loss within the model's forward pass, as nanoGPT does."""
    return module.loss(ids, targets)


def own_of_transformers(module: nn.Module, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Let the class compute it, which shifts the targets by one, into a tensor of its own."""
    output = module(input_ids=ids, labels=targets)
    return output.loss, output


def logits_of(module: nn.Module, ids: Tensor) -> tuple[Tensor, Any]:
    """Return the logits (B, n, V) of a model, and what holds them."""
    output = module(ids)
    return (output, output) if isinstance(output, Tensor) else (output.logits, output)


def cross_entropy(module: nn.Module, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Take the cross entropy of the logits that the model returns."""
    logits, output = logits_of(module, ids)
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1)), output


def cross_entropy_shifted(module: nn.Module, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Take the cross entropy of all logits but the last with all targets but the first."""
    logits, output = logits_of(module, ids)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), targets[:, 1:].reshape(-1)), output


def linear_cross_entropy(module: CausalLM, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Fuse the head with the loss by ``F.linear_cross_entropy``, without chunks."""
    return fused(module, ids, targets, None)


def linear_cross_entropy_chunked(module: CausalLM, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Fuse the head with the loss by ``F.linear_cross_entropy`` in chunks, as its default options cut them."""
    return fused(module, ids, targets, nn.LinearCrossEntropyOptions())


def fused(module: CausalLM, ids: Tensor, targets: Tensor, options: nn.LinearCrossEntropyOptions | None) -> tuple[Tensor, Any]:
    """Compute head and loss in one function."""
    hidden = module.model(ids)
    rows, head = hidden.view(-1, hidden.shape[-1]), module.lm_head
    return F.linear_cross_entropy(rows, head.weight, targets.view(-1), linear_bias=head.bias, options=options), None


LOSSES: dict[str, LossFunction] = {
    "cross_entropy": cross_entropy,
    "cross_entropy_shifted": cross_entropy_shifted,
    "linear_cross_entropy": linear_cross_entropy,
    "linear_cross_entropy_chunked": linear_cross_entropy_chunked,
}


def loss_of(training: Training) -> LossFunction:
    """Return the loss of the training. Raises ``CannotMeasureError`` where the implementation cannot take it."""
    of_transformers = training.implementation.startswith("transformers")
    if training.loss == "default":
        return own_of_transformers if of_transformers else own_of_modules
    if of_transformers and training.loss.startswith("linear"):
        raise CannotMeasureError(f"loss {training.loss}: the classes of transformers return logits")
    return LOSSES[training.loss]
