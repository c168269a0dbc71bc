"""The arguments of a program in a shell script, or in a text with nothing else."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.importer.reader import UnsupportedConfigError
from planner.importer.shell import Call, Script
from planner.importer.shell_variables import Unset

COMMAND = ""  # a key of its own: the others are arguments of a command line
_FILES = (".sh", ".bash", ".slurm", ".sbatch")
_ARGUMENT = re.compile(r"(?:^|[\s\"'(])--[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Command:
    """The command that the arguments belong to."""

    script: str = ""  # its Python file
    launcher: Mapping[str, object] = field(default_factory=dict)  # arguments before the Python file
    empty: tuple[str, ...] = ()  # words that the file does not set, read as nothing


def is_command(text: str, file: str) -> bool:
    """Whether a text is a shell script or arguments."""
    if file.endswith(_FILES) or re.match(r"#!.*sh\b", text):
        return True
    return _ARGUMENT.search(text) is not None and not re.search(r"^[\w-]+:", text, re.MULTILINE)


def command(text: str, literal: Callable[[str], Any]) -> dict[str, Any]:
    """Return the arguments of the program in a text, and under COMMAND the command."""
    if text.lstrip().startswith("--"):  # arguments alone, with parentheses that a shell would not accept
        words = re.sub(r"(?<!\S)(?:#.*|\\(?=\s))|[\"']", " ", text).split()
        script, calls = Script(), [Call("", tuple(words), ())]
    else:
        script = Script.of(text)
        calls = _programs(script)
    launchers = {repr(call.launcher): call.launcher for call in calls}
    distinct = {repr(arguments): (call, arguments) for call in calls if (arguments := script.arguments(call.words))}
    made = list(distinct.values())
    if len(made) > 1:
        names = ", ".join(f"{call.script or 'a command'} ({len(arguments)} arguments)" for call, arguments in made[:5])
        raise UnsupportedConfigError(f"the script calls several programs with different arguments: {names}; keep one of them")
    call, arguments = made[0] if made else (Call("", (), ()), _of_variables(script))
    if not arguments:
        raise UnsupportedConfigError("no command with arguments (--name value)")
    known = {name: _literal(value, literal) for name, value in arguments.items()}
    return {COMMAND: Command(call.script, script.arguments(call.launcher if len(launchers) == 1 else ()), tuple(script.empty)), **known}


def _programs(script: Script) -> list[Call]:
    """Return the calls of the training program: of a script named pretrain, else of one with a model's sizes, else of any."""
    sized = [call for call in script.calls if any(word.startswith(("--num-layers", "--hidden-size")) for word in call.words)]
    for chosen in (
        [call for call in script.calls if call.script.startswith("pretrain")],
        [call for call in script.calls if call.script and not {"num_layers", "hidden_size"}.isdisjoint(script.arguments(call.words))],
        [call for call in script.calls if call.script],
        sized,
        script.calls,
    ):
        if chosen:
            return chosen
    return []


def _of_variables(script: Script) -> dict[str, object]:
    """Return the arguments in the variables of a script that calls no program."""
    made: dict[str, object] = {}
    for words in script.contents():
        for name, value in script.arguments([part for word in words for part in word.split()]).items():
            if isinstance(value, Unset) and name == value.text:  # a variable that holds no arguments
                continue
            if made.setdefault(name, value) != value:
                made[name] = Unset(f"--{name}", "its variables set several values")
    return made


def _literal(value: object, literal: Callable[[str], Any]) -> Any:  # noqa: ANN401 - any value of a file
    if isinstance(value, list):
        return [literal(one) for one in value]
    return literal(value) if isinstance(value, str) else value


def _line(text: str) -> str:
    """Return a text from a script in one line."""
    return textwrap.shorten("".join(one if one.isprintable() else " " for one in text), 200)


def decided(config: Mapping[str, Any], matters: Callable[[str], bool]) -> dict[str, Any]:
    """Return a configuration without the values that its script alone does not decide; reject those that matter."""
    unset = {name: value for name, value in config.items() if isinstance(value, Unset)}
    for name, value in unset.items():
        if name == value.text:
            raise UnsupportedConfigError(f"the arguments in `{_line(name)}` are not known: {_line(value.reason)}")
    if needed := [name for name in unset if matters(name)]:
        name, value = needed[0], unset[needed[0]]
        others = _line("".join(f" --set {other}=…" for other in needed))
        written = _line(f"--{name.replace('_', '-')} {value.text}")
        raise UnsupportedConfigError(f"`{written}`: {_line(value.reason)}; give it with {others}")
    return {name: value for name, value in config.items() if name not in unset}
