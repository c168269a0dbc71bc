"""PyTorch as a witness: the model of a spec built from plain modules, and what PyTorch says that it stores, keeps and computes.

The only place that imports torch, and only when something is measured. Everything here raises ``ModuleNotFoundError`` without torch and
``UnbuildableError`` for a model that the modules cannot build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.spec.records import Model, Training
    from planner.verify.records import Device, LossMeasured, Measured, OptimizerMeasured

__all__ = ["measure", "measure_loss", "measure_optimizer", "parameters", "twin"]


def measure(model: Model, training: Training, device: Device = "cuda") -> Measured:
    """Train the model for two steps in PyTorch and say what it kept, computed and held.

    ``cuda`` runs at any size on fake tensors of a made-up GPU of the A100's class; ``cpu`` runs the CPU's kernels on real tensors.
    Raises ``planner.verify.pretend.CannotPretendError`` where this build of PyTorch allows no fake GPU.
    """
    from planner.verify.measure import measure as run

    return run(model, training, device)


def parameters(model: Model) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by name, a tied one once, from modules on the meta device: any size in seconds."""
    from planner.verify.modules import parameters as run

    return run(model)


def measure_optimizer(model: Model, training: Training) -> OptimizerMeasured:
    """Train the model for one step on the CPU and say what its optimizer holds; for a full-size model, give its ``twin``."""
    from planner.verify.real import measure_optimizer as run

    return run(model, training)


def measure_loss(model: Model, training: Training) -> LossMeasured:
    """Run the freshly initialised model on random tokens on the CPU; for a full-size model, give its ``twin``."""
    from planner.verify.real import measure_loss as run

    return run(model, training)


def twin(model: Model) -> Model:
    """Return the model with every switch as it is and small sizes."""
    from planner.verify.twins import twin as run

    return run(model)
