"""Set up a project: spec, budgets, hooks, CI workflow.

Write a commented spec, planner.yaml, pre-commit hooks and the schemas for editors. With --ci github, also write a workflow that reviews
pull requests. Existing files are kept unless --force is given.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from planner.cli.command import FINE
from planner.cli.streams import fail, note

EXAMPLES = (
    ("planner init my-model --from llama", "a first spec, budgets and hooks; --ci github adds a workflow"),
    ("planner init my-tuning --from qlora", "a fine-tuning: 4-bit weights and LoRA adapters; or lora, or full"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", default="my-model", help="model name and spec file name (default: my-model)")
    parser.add_argument(
        "--from",
        metavar="ORIGIN",
        dest="origin",
        default="gpt2",
        help="starting point: gpt2 or llama, a fine-tuning (lora, qlora, full), a catalog model, or a config.json (default: gpt2)",
    )
    parser.add_argument("--ci", choices=("github",), help="also write a CI workflow")
    parser.add_argument(
        "--action", metavar="USES", default="OWNER/modelplan@COMMIT", help="action used in the workflow, as OWNER/REPO@COMMIT"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def run(arguments: argparse.Namespace) -> int:
    from planner.review import init

    folder = Path.cwd()
    try:
        files = init.files(arguments.name, arguments.origin, arguments.ci, arguments.action)
    except init.InitError as error:
        return fail(f"init: {error}")
    kept = [] if arguments.force else init.existing(folder, files)
    if init.spec_file(arguments.name) in kept:
        return fail(f"init: {init.spec_file(arguments.name)} already exists; use --force to overwrite")
    init.write(folder, {name: text for name, text in files.items() if name not in kept})
    note(f"wrote {', '.join(name for name in files if name not in kept)}")
    if kept:
        note(f"kept existing files: {', '.join(kept)}; use --force to overwrite")
    for message in init.size_labels(folder, arguments.name):
        note(f"{message}; the sizes are those of {arguments.origin}: change them in {init.spec_file(arguments.name)}")
    if arguments.ci and not re.fullmatch(r"[^@]+@([0-9a-f]{40}|[0-9a-f]{64})", arguments.action):
        note(f"in the workflow, replace {arguments.action} with the repository that hosts the action and the full hash of a commit")
    return FINE
