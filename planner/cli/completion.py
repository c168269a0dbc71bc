"""Print a shell completion script.

It completes commands, options, settings after --set, models of the catalog, and the scenarios of the spec on the line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from planner.cli.command import FINE
from planner.cli.streams import fail

EXAMPLES = ()


class _Words(NamedTuple):
    """The words that can follow a subcommand."""

    name: str
    help: str
    options: Mapping[str, str]  # with what they do
    choices: Mapping[str, tuple[str, ...]]  # of options that have some; "" for the words that are no options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), nargs="?", help="target shell")
    parser.add_argument("--scenarios", nargs=argparse.REMAINDER, help="print the scenarios of the specs among the words of a command line")


def run(arguments: argparse.Namespace) -> int:
    from planner.cli import commands, program

    if arguments.scenarios:
        sys.stdout.writelines(f"{name}\n" for name in _scenarios(arguments.scenarios))
        return FINE
    if not arguments.shell:
        return fail(f"completion: give a shell: {', '.join(_SCRIPTS)}")
    sys.stdout.write(_SCRIPTS[arguments.shell](tuple(_subcommands(program.parser(commands.COMMANDS)))))
    return FINE


def _scenarios(words: Sequence[str]) -> dict[str, None]:
    """Return the names of the scenarios of all words that name a spec."""
    from planner import spec
    from planner.importer.convert import as_spec

    read = [spec.read([word], convert=as_spec) for word in words if word and not word.startswith("-")]
    return dict.fromkeys(one.name for specs, problems in read if not problems for each in specs for one in each.scenarios)


def _named(argument: str) -> tuple[str, ...]:
    """Return the words that an argument accepts, by its name: those of a list that the script has once."""
    return {"set": ("$settings",), "like": ("gpt2", "llama", "$models"), "spec": ("$models",), "specs": ("$models",)}.get(argument, ())


def _lists() -> dict[str, str]:
    """Return the lists of the script by name: the models of the catalog, and the settings that --set sets."""
    from planner.spec import catalogue, language

    settings = (f"{key}=" for key in language.leaves() if key.startswith(("model.", "training.")))
    return {"models": " ".join(catalogue.paths()), "settings": " ".join(settings)}


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
        if values := tuple(map(str, action.choices or ())) or _named(action.dest):
            choices |= dict.fromkeys(long or [""], values)
    return _Words(name, text, options, choices)


def _bash(commands: tuple[_Words, ...]) -> str:
    names = " ".join(command.name for command in commands)
    lists = "\n".join(f'  local {name}="{words}"' for name, words in _lists().items())
    options = "\n".join(f'      {command.name}) words="{" ".join(command.options)}" ;;' for command in commands)
    plain = "\n".join(f'      {command.name}) words="{" ".join(command.choices[""])}" ;;' for command in commands if "" in command.choices)
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
{lists}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{names} --help --version" -- "$word"))
    return
  fi
  case "$command $before" in
{values}
    *" --scenario") words="$("${{COMP_WORDS[0]}}" completion --scenarios "${{COMP_WORDS[@]:2}}" 2>/dev/null)" ;;
    *) case "$word" in
      -*) case "$command" in
{options}
      esac ;;
      *) case "$command" in
{plain}
      esac ;;
    esac ;;
  esac
  [ "$words$word" = "$models" ] && return  # all of them would hide the files
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ "$before" = --set ] && compopt -o nospace 2>/dev/null
  if [ "$words" = "$models" ] && [ "${{#COMPREPLY[@]}}" -gt 0 ]; then
    COMPREPLY+=($(compgen -f -- "$word"))
    compopt -o filenames 2>/dev/null
  fi
  return 0
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
    lists = (f"set -g __planner_{name} {words}" for name, words in _lists().items())
    lines = ["# planner completion fish > ~/.config/fish/completions/planner.fish", *lists]
    for command in commands:
        lines.append(f"complete -c planner -n __fish_use_subcommand -a {command.name} -d {_quoted(command.help)}")
        within = f"-n '__fish_seen_subcommand_from {command.name}'"
        for option, what in command.options.items():
            values = _in_fish(command.choices.get(option, ()))
            values = "(planner completion --scenarios (commandline -opc)[3..-1] 2>/dev/null)" if option == "--scenario" else values
            given = f" -x -a {_quoted(values)}" if values else ""
            lines.append(f"complete -c planner {within} -l {option.removeprefix('--')} -d {_quoted(what)}{given}")
        if "" in command.choices:
            lines.append(f"complete -c planner {within} -a {_quoted(_in_fish(command.choices['']))}")
    return "\n".join(lines) + "\n"


def _in_fish(words: Sequence[str]) -> str:
    return " ".join(words).replace("$", "$__planner_")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Mapping[str, Callable[[tuple[_Words, ...]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
