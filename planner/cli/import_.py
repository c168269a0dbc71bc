"""``planner import``: read somebody's configuration."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from planner.cli.command import FINDING, FINE, Command
from planner.cli.specs import report
from planner.cli.streams import fail, note


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a file, a folder with a config.json, or - for standard input")
    parser.add_argument("-o", "--output", metavar="SPEC", type=Path, help="the spec to write (default: standard output)")
    parser.add_argument("--name", metavar="NAME", help="of the model (default: the file's or the folder's)")
    parser.add_argument("--source", metavar="URL", help="where the configuration comes from (default: what it says itself)")
    parser.add_argument("--force", action="store_true", help="replace a spec that is there already")


def _run(arguments: argparse.Namespace) -> int:
    from planner.report.write import write
    from planner.spec import importer
    from planner.spec.problems import SpecError

    output: Path | None = arguments.output
    if output and output.exists() and not arguments.force:
        return fail(f"{output.as_posix()} is there already, so nothing is written; --force replaces it")
    try:
        file = importer.locate(arguments.config)
        imported, address = importer.import_file(file)
        name = arguments.name or importer.name_of(file, output.name if output else None)
        text = importer.spec_text(imported, name, source=arguments.source or address)
        if wrong := importer.first_problem(text):
            raise importer.UnsupportedConfigError(wrong)  # noqa: TRY301 - reported like any other configuration that is not supported
    except SpecError as error:
        return report(error.problems)
    except importer.UnsupportedConfigError as error:
        note(f"{'standard input' if arguments.config == '-' else arguments.config}: {error}")
        return FINDING
    for remark in imported.notes:
        note(f"note: {remark}")
    if imported.not_understood:
        note(f"not understood, and not taken to be about the model: {', '.join(imported.not_understood)}")
    if output is None:
        sys.stdout.write(text)
        return FINE
    write(output.parent, {output.name: text.encode()})
    note(f"wrote {output.as_posix()}")
    return FINE


COMMAND = Command(
    name="import",
    help="read somebody's configuration",
    description="""\
Say somebody's configuration as a spec: a Hugging Face config.json (a composite one by its text part), Megatron-LM's arguments (YAML, a
command line, or as it prints them), a LitGPT model_config.yaml, nanoGPT's settings. Every key that was not understood is listed. What
changes the counts and is not known is refused, with exit code 1 and one line that names it; nothing is read as the nearest known type.
planner run, show and validate take a config.json as it is, too.
""",
    examples=(("planner import config.json -o specs/mine.yaml", "a Hugging Face, Megatron-LM, LitGPT or nanoGPT configuration as a spec"),),
    add_arguments=_add_arguments,
    run=_run,
)
