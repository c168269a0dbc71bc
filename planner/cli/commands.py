"""The table of subcommands, in the order in which help lists them."""

from __future__ import annotations

from planner.cli import compare, completion, diff, fit, import_, init, list_, run, schema, show, size, sweep, validate, verify
from planner.cli.command import Command

COMMANDS: tuple[Command, ...] = (
    run.COMMAND,
    validate.COMMAND,
    show.COMMAND,
    verify.COMMAND,
    diff.COMMAND,
    init.COMMAND,
    import_.COMMAND,
    list_.COMMAND,
    sweep.COMMAND,
    fit.COMMAND,
    compare.COMMAND,
    size.COMMAND,
    schema.COMMAND,
    completion.COMMAND,
)
