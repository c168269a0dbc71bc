"""What a change costs: specs held against those of a git revision or a saved report, and against the budgets of ``planner.yaml``."""
