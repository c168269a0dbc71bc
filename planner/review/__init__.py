"""What a change costs: specs compared with a git revision or a saved report, and checked against the budgets of ``planner.yaml``."""
