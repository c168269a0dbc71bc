"""The arguments of the commands in a shell script, which is followed and never run.

Variables, arrays, arithmetic and the branches that the file's own values decide are followed. What cannot be known without running (a
variable that the file does not set, ``$(command)``, a branch on either) becomes a mark in the text, and ``Unset`` as an argument's value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import pairwise

from planner.importer.reader import UnsupportedConfigError
from planner.importer.shell_syntax import ArrayWord, Block, Branches, Chain, Function, Loop, Node, Parser, Simple, Word
from planner.importer.shell_variables import ASSIGNS, MARK, SPACES, Unknown, Unset, Value, Variables

_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_DECIDES = ("[", "[[", "test", "((", "!", "true", "false", ":")
_PRINTS = ("echo", "printf", "log", "tee", "cat", "sed", "grep", "awk")
_DEEP = 20  # texts within texts that are commands again
_NESTED = 100  # values that are one of several, in others
_COMPARES = {"-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt, "-le": operator.le}


@dataclass(frozen=True, slots=True)
class Call:
    """A command with arguments."""

    script: str  # its Python file, if any
    words: tuple[str, ...]
    launcher: tuple[str, ...]  # the words before the Python file


@dataclass(slots=True)
class Script:
    """A script that was followed: its calls and variables."""

    variables: Variables = field(default_factory=Variables)
    calls: list[Call] = field(default_factory=list)
    _functions: dict[str, Block] = field(default_factory=dict)
    _depth: int = 0
    empty: dict[str, None] = field(default_factory=dict)  # words that were read as nothing

    @classmethod
    def of(cls, text: str) -> Script:
        """Follow a script. Raises UnsupportedConfigError if it is too large once expanded."""
        self = cls()
        self.variables.budget = 16 * len(text) + 2**20
        self._run(Parser(text.replace("\r\n", "\n")).script())
        return self

    def contents(self) -> Iterator[list[str]]:
        """Yield the words of each variable, in a script without a command that uses them."""
        for value in self.variables.scopes[0].values():
            yield [value] if isinstance(value, str) else value

    # Commands

    def _run(self, block: Block) -> bool | None:
        status: bool | None = True
        for node in block:
            status = self._node(node)
        return status

    def _node(self, node: Node) -> bool | None:
        match node:
            case Simple():
                return self._simple(node)
            case Chain(first, rest):
                return self._chain(first, rest)
            case Branches(subject, cases):
                self._branches(subject, cases)
            case Loop(variable, condition, body):
                if self._run(condition) is not False or variable:
                    self._alternatives("a loop", [[Simple((Word(f"read {variable}"),)), *body]] if variable else [body], whole=False)
            case Function(name, body):
                self._functions[name] = body
            case list():
                for one in node:
                    self._node(one)
                return None
        return True

    def _chain(self, first: Node, rest: tuple[tuple[str, Node], ...]) -> bool | None:
        status = self._node(first)
        for joint, node in rest:
            wanted = joint == "&&"
            if status is None:
                self._alternatives("a condition", [[node]], whole=False)
            elif status == wanted:
                status = self._node(node)
        return status

    def _branches(self, subject: str | None, cases: tuple[tuple[Block | tuple[str, ...] | None, Block], ...]) -> None:
        possible: list[Block] = []
        written = ""
        value = self.variables.text(subject) if subject is not None else ""
        for condition, body in cases:
            if condition is None:
                status: bool | None = True
            elif isinstance(condition, tuple):
                status = None if MARK.search(value) else any(fnmatchcase(value, self.variables.text(pattern)) for pattern in condition)
                written = written or f"case {subject}"
            else:
                status = self._condition(condition)
                written = written or _written(condition)
            if status is False:
                continue
            possible.append(body)
            if status:
                break
        else:
            if possible:
                possible.append([])
        if len(possible) == 1:
            self._run(possible[0])
        elif possible:
            self._alternatives(f"`{written}`", possible, whole=True)

    def _condition(self, block: Block) -> bool | None:
        """Return whether a condition holds; only tests are decided."""
        status = self._run(block)
        last = block[-1] if block else None
        if isinstance(last, Simple) and last.words and isinstance(last.words[0], Word) and last.words[0].text not in _DECIDES:
            return None
        return status

    def _alternatives(self, reason: str, blocks: list[Block], *, whole: bool) -> None:
        """Follow blocks of which one is run, or none unless they are the whole; variables that depend on it become unknown."""
        made = []
        for block in blocks:
            self.variables.scopes.append({})
            self._run(block)
            made.append(self.variables.scopes.pop())
        if not whole:
            made.append({})
        values: dict[str, list[Value | None]] = {}
        for one in made:
            for name, value in one.items():
                values.setdefault(name, []).append(value)
        for name, listed in values.items():
            different = [*listed, self.variables.get(name)] if len(listed) < len(made) else listed
            if all(value == different[0] for value in different) and different[0] is not None:
                self.variables.set(name, different[0])
            else:
                texts = tuple([] if value is None else [value] if isinstance(value, str) else value for value in different)
                self.variables.set(name, self.variables.mark(f"${name}", f"{name} depends on {reason}", texts))

    def _simple(self, command: Simple) -> bool | None:  # noqa: C901 - a case for each of the shell's own commands
        words = list(command.words)
        self.variables.spend(8)
        while words and (isinstance(words[0], ArrayWord) or ASSIGNS.fullmatch(words[0].text)):
            self.variables.assign(words.pop(0))
        if not words:
            return True
        first = words[0]
        name = first.text if isinstance(first, Word) else ""
        if name in ("[", "[[", "test", "!", "(("):
            return self._test([word.text for word in words if isinstance(word, Word)])
        if name in _DECLARES:
            for word in words[1:]:
                self.variables.assign(word)
            return True
        if name.startswith(("read ", "unset ")) or name in ("read", "unset", "mapfile", "getopts", "readarray"):
            for one in (*name.split()[1:], *(word.text for word in words[1:] if isinstance(word, Word))):
                if one.isidentifier():
                    self.variables.set(one, self.variables.mark(f"${one}", f"{one} is not known before the script runs"))
            return True
        if name in ("true", ":", "false"):
            return name != "false"
        expanded = [one for word in words if isinstance(word, Word) for one in self.variables.words(word.text)]
        if name in self._functions:
            self._called(name, expanded[1:])
        elif expanded and name not in _PRINTS:
            self._command(expanded)
        return True

    def _called(self, name: str, arguments: list[str]) -> None:
        if self._depth > _DEEP:
            return
        self._depth += 1
        own: dict[str, Value] = {str(number): one for number, one in enumerate(arguments, 1)}
        self.variables.scopes.append({**own, "@": arguments, "*": arguments, "#": str(len(arguments))})
        self._run(self._functions[name])
        scope = self.variables.scopes.pop()
        for variable, value in scope.items():
            if variable.isidentifier():
                self.variables.set(variable, value)
        self._depth -= 1

    def _command(self, words: list[str]) -> None:
        """Record a command with arguments; text that a shell runs again is followed."""
        shell = next(
            (at for at, two in enumerate(pairwise(words)) if two[0].endswith("sh") and two[1].startswith("-") and "c" in two[1]), None
        )
        again = words[1:] if words[0] == "eval" else words[shell + 2 : shell + 3] if shell is not None else []
        if again and self._depth < _DEEP:
            self._depth += 1
            self._run(Parser(" ".join(again)).script())
            self._depth -= 1
        elif words[0].startswith("--") and self.calls:  # a line after one that lacks its backslash
            last = self.calls[-1]
            self.calls[-1] = replace(last, words=(*last.words, *words))
        elif any(word.startswith("--") for word in words):
            at = next((number for number, word in enumerate(words) if word.endswith(".py")), -1)
            script = words[at].rpartition("/")[2] if at >= 0 else ""
            self.calls.append(Call(script, tuple(words[at + 1 :]), tuple(words[: max(at, 0)])))

    # Conditions

    def _test(self, words: list[str]) -> bool | None:
        """Return whether a test holds, or None if that is not known."""
        if words[0] == "!":
            status = self._test(words[1:]) if words[1:2] and words[1] in ("[", "[[", "test", "((") else None
            return None if status is None else not status
        if words[0] == "((":
            number = self.variables.arithmetic(" ".join(words[1:]))
            return None if number is None else number != 0
        inner = words[1:-1] if words[-1] in ("]", "]]") else words[1:]
        for joint, decisive in (("||", True), ("&&", False)):
            if joint in inner:
                parts = [self._test(["[[", *part, "]]"]) for part in _split(inner, joint)]
                return decisive if decisive in parts else None if None in parts else not decisive
        if inner[:1] == ["!"]:
            status = self._test(["[[", *inner[1:], "]]"])
            return None if status is None else not status
        return self._compared([self.variables.text(word) for word in inner])

    def _compared(self, words: list[str]) -> bool | None:  # noqa: PLR0911 - a case per comparison
        if any(MARK.search(word) for word in words):
            return None
        match words:
            case ["-z", text]:
                return not text
            case ["-n", text]:
                return bool(text)
            case [left, "=" | "==", right]:
                return fnmatchcase(left, right)
            case [left, "!=", right]:
                return not fnmatchcase(left, right)
            case [left, str(how), right] if how in _COMPARES and _is_number(left) and _is_number(right):
                return bool(_COMPARES[how](int(left), int(right)))
            case [text] if not text.startswith("-"):
                return bool(text)
        return None

    # Arguments

    def arguments(self, words: list[str] | tuple[str, ...]) -> dict[str, object]:
        """Return the arguments in words by their names with underscores: texts, lists of them, True for a flag, or Unset."""
        made: dict[str, object] = {}
        name, values = "", list[str]()
        for word in (*(part for one in words for part in _parted(one)), "--"):
            if marked := MARK.fullmatch(word):
                unknown = self.variables.marks[int(marked[1])]
                if unknown.values and not _are_values(unknown.values):
                    made |= self._common(unknown)
                    continue
                if not name or values:
                    if unknown.empty:
                        self.empty[unknown.text] = None
                    else:
                        made[unknown.text] = Unset(unknown.text, unknown.reason)
                    continue
            if not re.match("--(?:[A-Za-z]|$)", word):
                values.append(word.strip("'\"") if name else word)
                continue
            if name:
                made[name] = True if not values else self._value(values[0] if len(values) == 1 else values)
            head, equals, value = word[2:].partition("=")
            name, values = head.replace("-", "_"), [value.strip("'\"")] if equals else []
        return made

    def _value(self, value: Value) -> object:
        text = value if isinstance(value, str) else " ".join(value)
        marked = MARK.search(text)
        if not marked:
            return value
        reason = self.variables.marks[int(marked[1])].reason
        return Unset(MARK.sub(lambda found: self.variables.marks[int(found[1])].text, text), reason)

    def _common(self, unknown: Unknown) -> Mapping[str, object]:
        """Return the arguments in any of the values of a mark; one that is not in all alike is not known."""
        if unknown.arguments is None:
            common: dict[str, object] = {}
            self._depth += 1
            if self._depth > _NESTED:
                raise UnsupportedConfigError("too many branches change the arguments")
            every = [self.arguments([one for text in value for one in SPACES.split(text)]) for value in unknown.values]
            names = {name: None for one in every for name in one}
            self.variables.spend(len(names) * len(every))
            for name in names:
                same = all(one.get(name) == every[0].get(name) for one in every)
                common[name] = every[0][name] if same else Unset(unknown.text, unknown.reason)
            unknown.arguments = common
            self._depth -= 1
        return unknown.arguments


def _parted(word: str) -> list[str]:
    """Return the words of an argument with its value in one pair of quotation marks."""
    return SPACES.split(word.strip()) if word.lstrip().startswith("--") and SPACES.search(word) else [word]


def _are_values(values: tuple[list[str], ...]) -> bool:
    """Whether values are those of an argument, not arguments."""
    texts = [" ".join(value).strip() for value in values]
    return any(texts) and not any(text.startswith("--") or " --" in text or (MARK.match(text) is not None) for text in texts)


def _split(words: list[str], joint: str) -> list[list[str]]:
    made: list[list[str]] = [[]]
    for word in words:
        if word == joint:
            made.append([])
        else:
            made[-1].append(word)
    return made


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None


def _written(block: Block) -> str:
    words = block[-1].words if block and isinstance(block[-1], Simple) else ()
    text = " ".join(word.text for word in words if isinstance(word, Word))
    return f"if {text}"[:60]
