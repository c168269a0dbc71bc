"""Losses: the implementation's default, or the one that the spec sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it

from planner.spec.records import Training
from planner.verify import CannotMeasureError, torchtitan
from planner.verify.modules import CausalLM

# From a module, ids and targets: the loss, and the model's output, which a program may keep until the step ends.
LossFunction = Callable[[Any, Tensor, Tensor], tuple[Tensor, Any]]


def default_of_modules(module: CausalLM, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Compute the loss inside the model's forward pass, as nanoGPT does."""
    return module.loss(ids, targets)


def default_of_transformers(module: nn.Module, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Compute the loss inside transformers' class, which copies the targets shifted by one."""
    output = module(**{str(getattr(module, "main_input_name", "input_ids")): ids}, labels=targets)
    return output.loss, output


def logits_of(module: nn.Module, ids: Tensor) -> tuple[Tensor, Any]:
    """Return the logits (B, n, V) of a model, and its output, which contains them."""
    output = module(ids)
    return (output, output) if isinstance(output, Tensor) else (output.logits, output)


def cross_entropy(module: nn.Module, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Compute the cross entropy from the logits that the model returns."""
    logits, output = logits_of(module, ids)
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1)), output


def cross_entropy_float32(module: nn.Module, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Compute the cross entropy from the logits that the model returns, cast to float32."""
    logits, output = logits_of(module, ids)
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1)), output


def cross_entropy_shifted(module: nn.Module, ids: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
    """Compute the cross entropy of all logits but the last with all targets but the first."""
    logits, output = logits_of(module, ids)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), targets[:, 1:].reshape(-1)), output


def linear_cross_entropy(
    module: CausalLM, ids: Tensor, targets: Tensor, options: nn.LinearCrossEntropyOptions | None = None
) -> tuple[Tensor, Any]:
    """Compute LM head and loss in one function; ``options`` split it into chunks."""
    hidden = module.model(ids)
    rows, head = hidden.view(-1, hidden.shape[-1]), module.lm_head
    return F.linear_cross_entropy(rows, head.weight, targets.view(-1), linear_bias=head.bias, options=options), None


LOSSES: dict[str, LossFunction] = {
    "cross_entropy": cross_entropy,
    "cross_entropy_float32": cross_entropy_float32,
    "cross_entropy_shifted": cross_entropy_shifted,
    "linear_cross_entropy": linear_cross_entropy,
    "linear_cross_entropy_chunked": partial(linear_cross_entropy, options=nn.LinearCrossEntropyOptions()),
}


def loss_of(training: Training) -> LossFunction:
    """Return the function of the training's loss. Raises ``CannotMeasureError`` if the implementation does not support it."""
    of_transformers = training.implementation.startswith("transformers")
    if training.loss == "default":
        of_modules = torchtitan.loss if training.implementation == "torchtitan" else default_of_modules
        return default_of_transformers if of_transformers else of_modules
    if of_transformers and training.loss.startswith("linear"):
        raise CannotMeasureError(
            f"loss {training.loss} is not supported with implementation {training.implementation}, whose classes return logits"
        )
    return LOSSES[training.loss]
