"""The command ``planner``, a file a subcommand. It joins the rooms and does no arithmetic; each import waits until it is needed."""

from planner.cli.program import main

__all__ = ["main"]
