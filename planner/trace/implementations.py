"""The same modules as different sequences of operators: what a figure of activation memory depends on besides the model."""

from __future__ import annotations

from typing import TypeAlias

from planner.trace.megatron import Megatron
from planner.trace.pytorch import PyTorch, PyTorchEager
from planner.trace.transformers import Transformers, TransformersEager

Implementation: TypeAlias = PyTorch

IMPLEMENTATIONS: dict[str, type[Implementation]] = {
    "pytorch": PyTorch,
    "pytorch-eager": PyTorchEager,
    "transformers": Transformers,
    "transformers-eager": TransformersEager,
    "megatron": Megatron,
}
