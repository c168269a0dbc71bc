"""What a model takes: parameters, memory and FLOPs, read off its trace."""

from planner.capacity.plan import plan, plans

__all__ = ["plan", "plans"]
