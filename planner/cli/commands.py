"""The table of subcommands, in the order in which help lists them."""

from __future__ import annotations

from collections.abc import Mapping

from planner.cli import (
    calibrate,
    comment,
    compare,
    completion,
    diff,
    fit,
    import_,
    init,
    layouts,
    list_,
    run,
    schema,
    serve,
    show,
    size,
    sweep,
    validate,
    verify,
)
from planner.cli.command import Command

COMMANDS: Mapping[str, Command] = {
    "run": run,
    "validate": validate,
    "show": show,
    "verify": verify,
    "diff": diff,
    "comment": comment,
    "init": init,
    "import": import_,
    "list": list_,
    "sweep": sweep,
    "fit": fit,
    "layouts": layouts,
    "calibrate": calibrate,
    "serve": serve,
    "compare": compare,
    "size": size,
    "schema": schema,
    "completion": completion,
}
