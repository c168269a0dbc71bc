"""Parameters, memory and FLOPs of a model, computed from its trace."""

from planner.capacity.explain import Explanation, explain
from planner.capacity.plan import plan, plans
from planner.capacity.symbolic import step_formulas

__all__ = ["Explanation", "explain", "plan", "plans", "step_formulas"]
