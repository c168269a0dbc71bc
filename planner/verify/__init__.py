"""PyTorch as the reference: the model of a spec is built in PyTorch, and its parameters, memory and FLOPs are compared with the plan.

The only package that imports torch. It raises ``CannotMeasureError`` for what cannot be built or run.
"""

from __future__ import annotations

OLDEST = (2, 13)  # the PyTorch release whose kernels and engine the planner models


class CannotMeasureError(Exception):
    """A comparison that is not possible here; the message gives the reason."""


class OptimizerError(CannotMeasureError):
    """An optimizer that cannot run here, and the checks that need it; the others can be made without it."""

    def __init__(self, message: str, checks: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.checks = checks


def torch_problem() -> str | None:
    """Return what is wrong with the installed PyTorch, or None."""
    try:
        import torch
    except ImportError as error:
        return f"PyTorch cannot be imported ({error}); install it: pip install torch"
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        return f"PyTorch {torch.__version__} is too old; {'.'.join(map(str, OLDEST))} or later is required"
    return None
