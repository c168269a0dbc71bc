"""Print a shell completion script."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from planner.cli.command import FINE

EXAMPLES = ()


class _Words(NamedTuple):
    """The words that can follow a subcommand."""

    name: str
    help: str
    options: Mapping[str, str]  # with what they do
    choices: Mapping[str, tuple[str, ...]]  # of options that have some; "" for the words that are no options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="target shell")


def run(arguments: argparse.Namespace) -> int:
    from planner.cli import commands, program

    sys.stdout.write(_SCRIPTS[arguments.shell](tuple(_subcommands(program.parser(commands.COMMANDS)))))
    return FINE


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[_Words]:
    for action in parser._actions:  # noqa: SLF001 - argparse shows its options in no other way
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            continue
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
        for name, inner in action.choices.items():
            yield _words(name, helps.get(name, ""), inner)


def _words(name: str, text: str, parser: argparse.ArgumentParser) -> _Words:
    options: dict[str, str] = {}
    choices: dict[str, tuple[str, ...]] = {}
    for action in parser._actions:  # noqa: SLF001
        long = [option for option in action.option_strings if option.startswith("--")]
        options |= dict.fromkeys(long, (action.help or "").partition(";")[0].partition(" (")[0])
        if action.choices:
            choices |= dict.fromkeys(long or [""], tuple(map(str, action.choices)))
    return _Words(name, text, options, choices)


def _bash(commands: tuple[_Words, ...]) -> str:
    names = " ".join(command.name for command in commands)
    options = "\n".join(
        f'    {command.name}) words="{" ".join((*command.options, *command.choices.get("", ())))}" ;;' for command in commands
    )
    values = "\n".join(
        f'    "{command.name} {option}") words="{" ".join(values)}" ;;'
        for command in commands
        for option, values in command.choices.items()
        if option
    )
    return f"""\
# planner completion bash > ~/.local/share/bash-completion/completions/planner
_planner() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{names} --help --version" -- "$word"))
    return
  fi
  case "$command $before" in
{values}
    *) case "$command" in
{options}
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _planner planner modelplan
"""


def _zsh(commands: tuple[_Words, ...]) -> str:
    return f"""\
# in ~/.zshrc, behind compinit: source <(planner completion zsh)
autoload -Uz bashcompinit
bashcompinit
{_bash(commands).partition(chr(10))[2]}"""


def _fish(commands: tuple[_Words, ...]) -> str:
    lines = ["# planner completion fish > ~/.config/fish/completions/planner.fish"]
    for command in commands:
        lines.append(f"complete -c planner -n __fish_use_subcommand -a {command.name} -d {_quoted(command.help)}")
        within = f"-n '__fish_seen_subcommand_from {command.name}'"
        for option, what in command.options.items():
            values = command.choices.get(option)
            given = f" -x -a {_quoted(' '.join(values))}" if values else ""
            lines.append(f"complete -c planner {within} -l {option.removeprefix('--')} -d {_quoted(what)}{given}")
        if "" in command.choices:
            lines.append(f"complete -c planner {within} -a {_quoted(' '.join(command.choices['']))}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Mapping[str, Callable[[tuple[_Words, ...]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
