"""PyTorch as a witness: the model of a spec built from plain modules, and what PyTorch says that it stores, keeps and computes.

The only place that imports torch, and only when something is measured. Everything here raises ``ModuleNotFoundError`` without torch and
``CannotMeasureError`` for what cannot be built or run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from planner.spec.records import Model, Scenario, Spec, Training
    from planner.verify.measured import Check, Compared, LossMeasured, Measured, OptimizerMeasured

__all__ = [
    "CannotMeasureError",
    "compare",
    "configured_parameters",
    "measure",
    "measure_gpu",
    "measure_loss",
    "measure_optimizer",
    "parameters",
    "transformers_parameters",
    "twin",
]

OLDEST = (2, 13)  # of PyTorch: the release whose kernels and engine the planner models


class CannotMeasureError(Exception):
    """What was asked for cannot be measured here; the message says what and why."""


def torch_problem() -> str | None:
    """Say what is wrong with the PyTorch that is installed, or None."""
    try:
        import torch
    except ImportError as error:
        return f"PyTorch cannot be imported ({error}); install the torch extra: pip install 'modelplan[torch]'"
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        return f"PyTorch {torch.__version__} is too old; {'.'.join(map(str, OLDEST))} or later is required"
    return None


def compare(spec: Spec, scenario: Scenario, checks: Iterable[Check], config: Path | None = None) -> Iterator[Compared]:
    """Yield the planner's figures beside PyTorch's, check by check."""
    from planner.verify.comparison import compare as run

    return run(spec, scenario, checks, config)


def measure(model: Model, training: Training) -> Measured:
    """Train the model for two steps in PyTorch and say what it kept, computed and held.

    The training's device decides what runs: the CPU's kernels on real tensors, or a made-up GPU at any size on fake ones.
    """
    from planner.verify.step import measure as run

    return run(model, training)


def parameters(model: Model) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by name, a tied one once, from modules on the meta device: any size in seconds."""
    from planner.verify.modules import parameters as run

    return run(model)


def transformers_parameters(model: Model) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter of the transformers class that says the model, by our name for it: an independent statement of the model."""
    from planner.verify.huggingface import parameters as run

    return run(model)


def configured_parameters(config: Path) -> tuple[str, int]:
    """Name the class that transformers builds from a config.json, any class it has, and count the parameters that it stores."""
    from planner.verify.configured import configured as run

    return run(config)


def measure_optimizer(model: Model, training: Training) -> OptimizerMeasured:
    """Train the model for one step on the CPU and say what its optimizer holds; for a full-size model, give its ``twin``."""
    from planner.verify.real import measure_optimizer as run

    return run(model, training)


def measure_gpu(model: Model, training: Training) -> int:
    """Return the peak of a training step on the GPU in this machine, in bytes allocated."""
    from planner.verify.real import measure_gpu as run

    return run(model, training)


def measure_loss(model: Model, training: Training) -> LossMeasured:
    """Run the freshly initialised model on random tokens on the CPU; for a full-size model, give its ``twin``."""
    from planner.verify.real import measure_loss as run

    return run(model, training)


def twin(model: Model) -> Model:
    """Return the model with every switch as it is and small sizes."""
    from planner.verify.twins import twin as run

    return run(model)
