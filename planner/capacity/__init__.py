"""What a model takes: parameters, memory and FLOPs, read off its trace."""

from planner.capacity.explain import Explanation, explain
from planner.capacity.formulas import step_formulas
from planner.capacity.plan import plan, plans

__all__ = ["Explanation", "explain", "plan", "plans", "step_formulas"]
