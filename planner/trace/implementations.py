"""All implementations by name: each runs the same modules as different operators."""

from __future__ import annotations

from planner.spec import records
from planner.trace import liger
from planner.trace.implementation import Implementation
from planner.trace.megatron import MEGATRON
from planner.trace.megatron_core import MEGATRON_CORE
from planner.trace.pytorch import PYTORCH, PYTORCH_EAGER
from planner.trace.torchtitan import TORCHTITAN
from planner.trace.transformers import TRANSFORMERS, TRANSFORMERS_EAGER

IMPLEMENTATIONS: dict[records.Implementation, Implementation] = {
    "pytorch": PYTORCH,
    "pytorch-eager": PYTORCH_EAGER,
    "transformers": TRANSFORMERS,
    "transformers-eager": TRANSFORMERS_EAGER,
    "megatron": MEGATRON,
    "megatron-core": MEGATRON_CORE,
    "torchtitan": TORCHTITAN,
}


def implementation_of(model: records.Model, training: records.Training) -> Implementation:
    """Return the training's implementation, with the kernels that replace its own."""
    return liger.applied(IMPLEMENTATIONS[training.implementation], model, training)
