"""All implementations by name: each runs the same modules as different operators."""

from __future__ import annotations

from importlib import import_module

from planner.spec import records
from planner.trace.implementation import Implementation

# The name of each in the modules of planner.trace, which are imported where a plan uses them.
IMPLEMENTATIONS: dict[records.Implementation, str] = {
    "pytorch": "pytorch.PYTORCH",
    "pytorch-eager": "pytorch.PYTORCH_EAGER",
    "transformers": "transformers.TRANSFORMERS",
    "transformers-eager": "transformers.TRANSFORMERS_EAGER",
    "megatron": "megatron.MEGATRON",
    "megatron-core": "megatron_core.MEGATRON_CORE",
    "torchtitan": "torchtitan.TORCHTITAN",
}


def named(name: records.Implementation) -> Implementation:
    """Return an implementation by its name."""
    module, _, constant = IMPLEMENTATIONS[name].partition(".")
    found: Implementation = getattr(import_module(f"planner.trace.{module}"), constant)
    return found


def implementation_of(model: records.Model, training: records.Training) -> Implementation:
    """Return the training's implementation, with the kernels that replace its own."""
    if training.liger is None:
        return named(training.implementation)
    from planner.trace import liger

    return liger.applied(named(training.implementation), model, training.liger)
