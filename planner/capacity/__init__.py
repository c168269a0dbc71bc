"""What a model takes: parameters, memory and FLOPs, read off its trace."""

from planner.capacity.explain import Explanation, explain
from planner.capacity.plan import plan, plans
from planner.capacity.symbolic import step_formulas

__all__ = ["Explanation", "explain", "plan", "plans", "step_formulas"]
