"""The arguments of the commands in a shell script, which is followed and never run.

Variables, arrays, arithmetic and the branches that the file's own values decide are followed. What cannot be known without running (a
variable that the file does not set, ``$(command)``, a branch on either) becomes a mark in the text, and ``Unset`` as an argument's value.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import pairwise

from planner.importer.reader import UnsupportedConfigError
from planner.importer.shell_syntax import ArrayWord, Block, Branches, Chain, Function, Loop, Node, Parser, Simple, Word, end_of

Value = str | list[str]
_MARK = re.compile("\0(\\d+)\0")
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*|\d+|[@*#?$!-]")
_PARAMETER = re.compile(r"([A-Za-z_]\w*|\d+|[@*#])(?:\[([@*]|\d+)\])?(:?[-=+?])?(.*)", re.DOTALL)
_SPACES = re.compile(r"\s+")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_PRINTS = ("echo", "printf", "log", "tee", "cat", "sed", "grep", "awk")
_DEEP = 20  # texts within texts that are commands again
_COMPARES = {"-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt, "-le": operator.le}
_DIGITS = 18  # of a number in arithmetic


@dataclass(frozen=True, slots=True)
class Unset:
    """A value that the file alone does not decide."""

    text: str  # as written
    reason: str


@dataclass(frozen=True, slots=True)
class Call:
    """A command with arguments."""

    script: str  # its Python file, if any
    words: tuple[str, ...]
    launcher: tuple[str, ...]  # the words before the Python file


@dataclass(slots=True)
class _Unknown:
    """What a mark is for: text that is not known, or one of several values."""

    text: str
    reason: str
    values: tuple[list[str], ...] = ()
    arguments: Mapping[str, object] | None = None  # common to all values, once known


@dataclass(slots=True)
class Script:
    """A script that was followed: its calls and variables."""

    calls: list[Call] = field(default_factory=list)
    reads: str = ""  # another script that it reads, which may set variables
    _marks: list[_Unknown] = field(default_factory=list)
    _known_marks: dict[tuple[str, str], str] = field(default_factory=dict)
    _scopes: list[dict[str, Value]] = field(default_factory=lambda: [{}])
    _functions: dict[str, Block] = field(default_factory=dict)
    _budget: int = 0  # characters that expansions may still make
    _depth: int = 0
    empty: dict[str, None] = field(default_factory=dict)  # words that were read as nothing

    @classmethod
    def of(cls, text: str) -> Script:
        """Follow a script. Raises UnsupportedConfigError if it is too large once expanded."""
        self = cls()
        self._budget = 64 * len(text) + 2**20
        self._run(Parser(text).script())
        return self

    def variables(self) -> Iterator[list[str]]:
        """Yield the words of each variable, in a script without a command that uses them."""
        for value in self._scopes[0].values():
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
        value = self._text(subject) if subject is not None else ""
        for condition, body in cases:
            if condition is None:
                status: bool | None = True
            elif isinstance(condition, tuple):
                status = None if _MARK.search(value) else any(fnmatchcase(value, self._text(pattern)) for pattern in condition)
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
        decides = [node for node in block if not (isinstance(node, Simple) and node.words and node.words[0] == Word("!"))]
        status = self._run(block)
        first = block[-1] if block else None
        if isinstance(first, Simple) and first.words and isinstance(first.words[0], Word):
            name = first.words[0].text
            if name not in ("[", "[[", "test", "((", "true", "false", ":", "!"):
                return None
        return status if decides or status is None else status

    def _alternatives(self, reason: str, blocks: list[Block], *, whole: bool) -> None:
        """Follow blocks of which one is run, or none unless they are the whole; variables that depend on it become unknown."""
        made = []
        for block in blocks:
            self._scopes.append({})
            self._run(block)
            made.append(self._scopes.pop())
        if not whole:
            made.append({})
        for name in {name: None for one in made for name in one}:
            before = self._get(name)
            values = [one.get(name, before) for one in made]
            self._spend(len(values))
            if all(value == values[0] for value in values) and values[0] is not None:
                self._set(name, values[0])
            else:
                listed = tuple([] if value is None else [value] if isinstance(value, str) else value for value in values)
                self._set(name, self._mark(f"${name}", f"{name} depends on {reason}", listed))

    def _simple(self, command: Simple) -> bool | None:
        words = list(command.words)
        while words and (isinstance(words[0], ArrayWord) or _ASSIGNS.fullmatch(words[0].text)):
            self._assign(words.pop(0))
        if not words:
            return True
        first = words[0]
        name = first.text if isinstance(first, Word) else ""
        if name in ("[", "[[", "test", "!", "(("):
            return self._test([word.text for word in words if isinstance(word, Word)])
        if name in _DECLARES:
            for word in words[1:]:
                self._assign(word)
            return True
        if name.startswith(("read ", "unset ")) or name in ("read", "unset", "mapfile", "getopts", "readarray"):
            for one in (*name.split()[1:], *(word.text for word in words[1:] if isinstance(word, Word))):
                if one.isidentifier():
                    self._set(one, self._mark(f"${one}", f"{one} is not known before the script runs"))
            return True
        if name in ("source", ".") and len(words) > 1 and isinstance(words[1], Word):
            self.reads = self.reads or words[1].text
            return True
        if name in ("true", ":", "false"):
            return name != "false"
        expanded = [one for word in words if isinstance(word, Word) for one in self._words(word.text)]
        if name in self._functions:
            self._called(name, expanded[1:])
        elif name not in _PRINTS:
            self._command(expanded)
        return True

    def _called(self, name: str, arguments: list[str]) -> None:
        if self._depth > _DEEP:
            return
        self._depth += 1
        for number, one in enumerate(arguments, 1):
            self._set(str(number), one)
        self._set("@", arguments)
        self._run(self._functions[name])
        self._depth -= 1

    def _command(self, words: list[str]) -> None:
        """Record a command with arguments; text that a shell runs again is followed."""
        shell = next(
            (at for at, two in enumerate(pairwise(words)) if two[0].endswith("sh") and two[1].startswith("-") and "c" in two[1]), None
        )
        if words[:1] == ["eval"]:
            again = words[1:]
        else:
            again = words[shell + 2 : shell + 3] if shell is not None else []
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

    # Variables

    def _get(self, name: str) -> Value | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _set(self, name: str, value: Value) -> None:
        self._scopes[-1][name] = value

    def _assign(self, word: Word | ArrayWord) -> None:
        if isinstance(word, ArrayWord):
            made: Value = [one for text in word.words for one in self._words(text)]
            before = (self._get(word.name) or []) if word.appends else []
            self._set(word.name, [*([before] if isinstance(before, str) else before), *made])
            self._spend(len(made) + len(before))
        elif found := _ASSIGNS.fullmatch(word.text):
            name, appends, text = found.groups()
            value, before = self._text(text), self._get(name) if appends else None
            if isinstance(before, list):
                self._set(name, [f"{before[0] if before else ''}{value}", *before[1:]])
            else:
                self._set(name, f"{before or ''}{value}")
            self._spend(len(before or ""))

    def _mark(self, text: str, reason: str, values: tuple[list[str], ...] = ()) -> str:
        """Return a mark for what is not known."""
        if not values and (text, reason) in self._known_marks:
            return self._known_marks[text, reason]
        self._marks.append(_Unknown(text[:60], reason, values))
        made = f"\0{len(self._marks) - 1}\0"
        if not values:
            self._known_marks[text, reason] = made
        return made

    def _spend(self, number: int) -> None:
        self._budget -= number
        if self._budget < 0:
            raise UnsupportedConfigError("the script is too large once its variables are expanded")

    # Expansion

    def _text(self, word: str) -> str:
        """Return a word's expansion as one text."""
        return "".join(text for text, _ in self._pieces(word))

    def _words(self, word: str) -> list[str]:
        """Return the words that a word becomes: expansions outside quotation marks are split."""
        made, fresh = list[str](), True
        for text, splits in self._pieces(word):
            parts = _SPACES.split(text) if splits else [text]
            for number, part in enumerate(parts):
                if number or fresh:
                    made.append(part)
                    fresh = False
                else:
                    made[-1] += part
        return [one for one in made if one]

    def _pieces(self, word: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a word, expanded, and whether each is split."""
        at, plain = 0, re.compile(r"[^\\'\"`$]+")
        while at < len(word):
            if found := plain.match(word, at):
                self._spend(len(found[0]))
                yield found[0], False
                at = found.end()
                continue
            end = end_of(word, at)
            part, at = word[at:end], end
            match part[0]:
                case "\\":
                    yield part[1:].replace("\n", ""), False
                case "'":
                    yield part[1:-1], False
                case '"':
                    for text in self._quoted(part[1:-1]):
                        yield text, False
                case "`":
                    yield self._mark(part, f"{part[:60]} is a command"), False
                case _:
                    value = self._expansion(part)
                    text = value if isinstance(value, str) else " ".join(value)
                    self._spend(len(text))
                    yield text, True

    def _quoted(self, text: str) -> Iterator[str]:
        at, plain = 0, re.compile(r"[^\\`$]+")
        while at < len(text):
            if found := plain.match(text, at):
                self._spend(len(found[0]))
                yield found[0]
                at = found.end()
                continue
            end = end_of(text, at)
            part, at = text[at:end], end
            if part[0] == "\\":
                yield "" if part == "\\\n" else part[1:] if part[1:] in ("$", "`", '"', "\\") else part
            elif part[0] == "`":
                yield self._mark(part, f"{part[:60]} is a command")
            else:
                value = self._expansion(part)
                self._spend(sum(map(len, value)))
                yield value if isinstance(value, str) else " ".join(value)

    def _expansion(self, part: str) -> Value:
        """Return the value of ``$NAME``, ``${NAME}``, ``$((…))`` or ``$(…)``."""
        if part.startswith("$(("):
            number = self._arithmetic(part[3:-2])
            return self._mark(part, f"{part[:60]} has a value that is not known") if number is None else str(number)
        if part.startswith("$("):
            return self._mark(part, f"{part[:60]} is a command")
        if part.startswith("$'"):
            return part[2:-1]
        if not part.startswith("${"):
            return self._parameter(part[1:]) if _NAME.fullmatch(part[1:]) else part
        found = _PARAMETER.fullmatch(part[2:-1])
        if found is None or (found[4] and not found[3]):
            return self._mark(part, f"{part[:60]} has a value that is not known")
        name, index, how, word = found.groups()
        known = self._get(name)
        if how and ("+" in how) == bool(known):
            return self._text(word) if "?" not in how else self._parameter(name)
        if how and "+" in how:
            return ""
        if index and index.isdecimal() and known is not None:
            listed = [known] if isinstance(known, str) else known
            return listed[int(index)] if len(index) < _DIGITS and int(index) < len(listed) else ""
        if isinstance(known, list) and not index:
            return known[0] if known else ""
        return self._parameter(name)

    def _parameter(self, name: str) -> Value:
        known = self._get(name)
        if known is not None:
            return known
        if name == "#":
            return "0"
        what = "is an argument of the script" if name.isdecimal() or name in "@*" else "is not set in the file"
        return self._mark(f"${name}", f"{name} {what}" if name.isidentifier() else f"${name} {what}")

    def _arithmetic(self, text: str) -> int | None:
        """Return the value of arithmetic, or None if it is not known."""
        whole = re.sub(r"(?<![\w\0])[A-Za-z_]\w*", lambda found: self._text(f"${found[0]}"), self._text(text))
        if len(whole) > 1000 or not re.fullmatch(r"[\d\s+*/%()<>=!-]+", whole):  # noqa: PLR2004 - long enough for any script
            return None
        try:
            return _number(ast.parse(whole.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError):
            return None

    # Conditions

    def _test(self, words: list[str]) -> bool | None:
        """Return whether a test holds, or None if that is not known."""
        if words[0] == "!":
            status = self._test(words[1:]) if words[1:2] and words[1] in ("[", "[[", "test", "((") else None
            return None if status is None else not status
        if words[0] == "((":
            number = self._arithmetic(" ".join(words[1:]))
            return None if number is None else number != 0
        inner = words[1:-1] if words[-1] in ("]", "]]") else words[1:]
        for joint, decisive in (("||", True), ("&&", False)):
            if joint in inner:
                parts = [self._test(["[[", *part, "]]"]) for part in _split(inner, joint)]
                return decisive if decisive in parts else None if None in parts else not decisive
        if inner[:1] == ["!"]:
            status = self._test(["[[", *inner[1:], "]]"])
            return None if status is None else not status
        return self._compared([self._text(word) for word in inner])

    def _compared(self, words: list[str]) -> bool | None:
        if any(_MARK.search(word) for word in words):
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
        for word in (*(one for word in words for one in self._parted(word)), "--"):
            if marked := _MARK.fullmatch(word):
                unknown = self._marks[int(marked[1])]
                if unknown.values and not _are_values(unknown.values):
                    made |= self._common(unknown)
                    continue
                if not name or values:
                    if unknown.values or "command" in unknown.reason or "depends" in unknown.reason:
                        made[unknown.text] = Unset(unknown.text, unknown.reason)
                    else:
                        self.empty[unknown.text] = None
                    continue
            if not re.match("--(?:[A-Za-z]|$)", word):
                values.append(word.strip("'\"") if name else word)
                continue
            if name:
                made[name] = True if not values else self._value(values[0] if len(values) == 1 else values)
            head, equals, value = word[2:].partition("=")
            name, values = head.replace("-", "_"), [value.strip("'\"")] if equals else []
        return made

    def _parted(self, word: str) -> list[str]:
        """Return the words of an argument with its value in one pair of quotation marks."""
        return _SPACES.split(word.strip()) if word.lstrip().startswith("--") and _SPACES.search(word) else [word]

    def _value(self, value: Value) -> object:
        text = value if isinstance(value, str) else " ".join(value)
        marked = _MARK.search(text)
        if not marked:
            return value
        reason = self._marks[int(marked[1])].reason
        return Unset(_MARK.sub(lambda found: self._marks[int(found[1])].text, text), reason)

    def _common(self, unknown: _Unknown) -> Mapping[str, object]:
        """Return the arguments in any of the values of a mark; one that is not in all alike is not known."""
        if unknown.arguments is None:
            unknown.arguments = {}
            every = [self.arguments([one for text in value for one in _SPACES.split(text)]) for value in unknown.values]
            names = {name: None for one in every for name in one}
            self._spend(len(names) * len(every))
            for name in names:
                same = all(one.get(name) == every[0].get(name) for one in every)
                unknown.arguments[name] = every[0][name] if same else Unset(unknown.text, unknown.reason)  # type: ignore[index]
        return unknown.arguments


def _are_values(values: tuple[list[str], ...]) -> bool:
    """Whether values are those of an argument, not arguments."""
    texts = [" ".join(value).strip() for value in values]
    return any(texts) and not any(text.startswith("--") or " --" in text or (_MARK.match(text) is not None) for text in texts)


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


def _number(node: ast.expr) -> int:
    """Return the value of an expression of integers; a shell divides toward zero."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=one):
            return -_number(one)
        case ast.BinOp(left=a, op=op, right=b):
            left, right = _number(a), _number(b)
            signed = -1 if (left < 0) != (right < 0) else 1
            made = {
                ast.Add: lambda: left + right, ast.Sub: lambda: left - right, ast.Mult: lambda: left * right,
                ast.Div: lambda: signed * (abs(left) // abs(right)), ast.Mod: lambda: left - right * signed * (abs(left) // abs(right)),
                ast.FloorDiv: lambda: signed * (abs(left) // abs(right)),
            }[type(op)]()  # fmt: skip
            if abs(made) >= 2**63:
                raise ValueError
            return made
        case ast.Compare(left=a, ops=[op], comparators=[b]):
            compare = {ast.Lt: operator.lt, ast.Gt: operator.gt, ast.LtE: operator.le, ast.GtE: operator.ge, ast.Eq: operator.eq}
            return int(compare.get(type(op), operator.ne)(_number(a), _number(b)))
    raise ValueError
