"""The program: the parser made from the table of subcommands, and an exit code for everything that can happen."""

from __future__ import annotations

import argparse
import gc
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import planner
from planner.cli.command import CLOSED_PIPE, FAILURE, FINE, INTERRUPTED, Command
from planner.cli.commands import COMMANDS
from planner.cli.streams import fail, settle

_EXIT_CODES = """\
exit codes:
  0    success
  1    findings: invalid spec, failed expect check, exceeded budget, outdated report, mismatch with PyTorch
  2    error: bad usage, spec not found, cannot write a file
  130  interrupted; 129 or 143: terminated
  141  output pipe closed

Results go to stdout, messages to stderr. Set NO_COLOR to disable colors.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the program's, and return its exit code."""
    settle()
    try:
        with _signals_as_interrupts(), _without_garbage_collection():
            code = _dispatch(argv)
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it flushes at exit
        return CLOSED_PIPE
    except KeyboardInterrupt as error:
        return error.args[0] if error.args else INTERRUPTED
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:  # noqa: BLE001 - Python's own exit code for a bug would be 1, a finding
        from planner.trace.unsupported import UnsupportedError

        if isinstance(error, UnsupportedError):
            return fail(str(error))
        traceback.print_exc()
        return fail("this is a bug in planner, not in the spec; please report it with the output above")
    return code


def _terminate(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(128 + number)


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as an interrupt, unless they are ignored, so that half-written reports are undone."""
    numbers = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)} if threading.current_thread() is threading.main_thread() else ()
    caught = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in caught:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Do not search for cycles of references: plans have none, and the search takes a fifth of the time of a large run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _dispatch(argv: Sequence[str] | None) -> int:
    made = parser(COMMANDS)
    try:
        arguments = made.parse_args(argv)
        if "run" not in arguments:
            made.print_help()
            return FINE
    except SystemExit as exit_:  # after --help, --version or a usage error
        return exit_.code if isinstance(exit_.code, int) else FAILURE
    code: int = arguments.run(arguments)
    return code


class _Parser(argparse.ArgumentParser):
    """A parser whose errors suggest similar words."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - typeshed has overloads
        """Parse arguments; an unknown one is an error of the subcommand that it follows."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, with similar choices or options, and exit."""
        from difflib import get_close_matches

        from planner.spec.printable import printable

        if choice := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            near = get_close_matches(choice[1], re.findall(r"[\w-]+", choice[2]), 1)
        else:
            given = re.match(r"unrecognized arguments: (--[\w-]+)", message)
            near = get_close_matches(given[1], self._option_string_actions, 1) if given else []
        super().error(printable(f"{message}; did you mean {near[0]}?" if near else message))


def parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """Make the parser of the program with these subcommands."""
    made = _Parser(
        prog="planner",
        description="Compute exact parameters, training memory and FLOPs of transformer language models from YAML specs.",
        epilog=f"examples:\n{_examples(commands)}\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"planner {planner.__version__}")
    subparsers = made.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in commands.items():
        description = command.__doc__ or "No description: python -OO removes docstrings."
        summary = description.partition("\n")[0].removesuffix(".")
        summary = summary[:1].lower() + summary[1:]
        subparser = subparsers.add_parser(name, help=summary, description=description, allow_abbrev=False)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return made


def _examples(commands: Mapping[str, Command]) -> str:
    examples = [example for command in commands.values() for example in command.EXAMPLES]
    return "".join(f"  {line:<48}  {what}".rstrip() + "\n" for line, what in examples)
