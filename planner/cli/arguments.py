"""Arguments that several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path

CI_FORMATS = ("github", "sarif", "junit")  # output formats of CI systems


def add_spec(parser: argparse.ArgumentParser) -> None:
    """Add the one spec of a subcommand."""
    parser.add_argument("spec", metavar="SPEC", help="spec file, catalog model, or - for standard input")


def add_specs(parser: argparse.ArgumentParser) -> None:
    """Add the specs of a subcommand."""
    parser.add_argument("specs", metavar="SPEC", nargs="+", help="files, folders, globs, catalog models, or - for standard input")


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the scenario of a spec."""
    parser.add_argument("--scenario", metavar="NAME", default="base", help="scenario to use (default: base)")


def add_format(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add the output format: text, JSON and any others of the subcommand."""
    parser.add_argument("--format", choices=("text", *more, "json"), default="text", help="output format (default: text)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the output folder."""
    parser.add_argument("--output", metavar="DIR", type=Path, default=Path("reports"), help="folder to write files to (default: reports)")


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add overrides of spec values."""
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override a spec value, e.g. training.batch_size=16 (repeatable)"
    )
