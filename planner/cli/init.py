"""``planner init``: begin a project."""

from __future__ import annotations

import argparse
from pathlib import Path

from planner.cli.command import FINE, Command
from planner.cli.streams import fail, note


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", default="my-model", help="of the model and its file (default: my-model)")
    parser.add_argument("--from", metavar="ORIGIN", dest="origin", default="gpt2", help="gpt2, llama, or a config.json (default: gpt2)")
    parser.add_argument("--ci", choices=("github",), help="write a workflow too")
    parser.add_argument("--action", metavar="USES", default="OWNER/modelplan@v0.1.0", help="where the workflow's action is")
    parser.add_argument("--force", action="store_true", help="replace what stands there")


def _run(arguments: argparse.Namespace) -> int:
    from planner.review import init

    folder = Path.cwd()
    try:
        files = init.files(arguments.name, arguments.origin, arguments.ci, arguments.action)
    except init.InitError as error:
        return fail(f"init: {error}")
    kept = [] if arguments.force else init.standing(folder, files)
    if init.spec_file(arguments.name) in kept:
        return fail(f"init: {init.spec_file(arguments.name)} is there already, so nothing is written; --force replaces it")
    init.write(folder, {name: text for name, text in files.items() if name not in kept})
    note(f"wrote {', '.join(name for name in files if name not in kept)}")
    if kept:
        note(f"left as they are: {', '.join(kept)}; --force replaces them")
    if arguments.ci and arguments.action.startswith("OWNER/"):
        note("in the workflow, replace OWNER/modelplan by the repository that has the action")
    return FINE


COMMAND = Command(
    name="init",
    help="begin: a spec, budgets, hooks, a workflow",
    description="""\
Write a commented spec, planner.yaml, hooks for pre-commit, and the schemas for editors; with --ci github a workflow that reviews pull
requests. What stands there already is left as it is, unless --force says otherwise.
""",
    examples=(("planner init my-model --from llama", "a first spec, budgets, hooks; --ci github: a workflow that reviews"),),
    add_arguments=_add_arguments,
    run=_run,
)
