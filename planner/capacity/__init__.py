"""What a model takes: parameters, memory and FLOPs, read off its trace."""

from planner.capacity.explain import Explanation, explain
from planner.capacity.grid import Grid, grid
from planner.capacity.plan import plan, plans

__all__ = ["Explanation", "Grid", "explain", "grid", "plan", "plans"]
