"""Arguments that several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date

GATES = ("github", "sarif", "junit")  # formats that machines read


def add_spec(parser: argparse.ArgumentParser) -> None:
    """Add the one spec that a subcommand is about."""
    parser.add_argument("spec", metavar="SPEC", help="a spec file, or - for standard input")


def add_specs(parser: argparse.ArgumentParser) -> None:
    """Add the specs that a subcommand is about."""
    parser.add_argument("specs", metavar="SPEC", nargs="+", help="files, folders, globs, or - for standard input")


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the scenario of the one spec."""
    parser.add_argument("--scenario", metavar="NAME", default="base", help="which of the spec's scenarios (default: base)")


def add_format(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add the format of what is printed: text and JSON, and more that the subcommand has."""
    parser.add_argument("--format", choices=("text", *more, "json"), default="text", help="of what is printed (default: text)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the folder that files are written to."""
    parser.add_argument("--output", metavar="DIR", type=Path, default=Path("reports"), help="where the files go (default: reports)")


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add values that override the spec's."""
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a value on top of the spec, as training.batch_size=16; repeatable"
    )


def today() -> date:
    """Return the day in UTC, on which waivers are in force or not."""
    from datetime import UTC, datetime

    return datetime.now(UTC).date()
