"""The variables of a shell script, and the text that words become."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from planner.importer.reader import UnsupportedConfigError
from planner.importer.shell_syntax import ArrayWord, Word, end_of

Value = str | list[str]
MARK = re.compile("\0(\\d+)\0")  # in a text, what is not known
ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
SPACES = re.compile(r"\s+")
_NAME = re.compile(r"[A-Za-z_]\w*|\d+|[@*#?$!-]")
_PARAMETER = re.compile(r"([A-Za-z_]\w*|\d+|[@*#])(?:\[([@*]|\d+)\])?(:?[-=+?])?(.*)", re.DOTALL)
_PLAIN, _PLAIN_IN_QUOTES = re.compile(r"[^\\'\"`$]+"), re.compile(r"[^\\`$]+")
_DIGITS = 18  # of a number


@dataclass(frozen=True, slots=True)
class Unset:
    """A value that the file alone does not decide."""

    text: str  # as written
    reason: str


@dataclass(slots=True)
class Unknown:
    """What a mark is for: text that is not known, or one of several values."""

    text: str
    reason: str
    values: tuple[list[str], ...] = ()
    empty: bool = False  # whether it is nothing unless the environment sets it
    arguments: Mapping[str, object] | None = None  # common to all values, once known


@dataclass(slots=True)
class Variables:
    """The variables at a point of a script; what is not known is a mark in their text."""

    budget: int = 0  # characters that expansions may still make
    marks: list[Unknown] = field(default_factory=list)
    scopes: list[dict[str, Value]] = field(default_factory=lambda: [{}])  # of nested branches, innermost last
    _known: dict[tuple[str, str], str] = field(default_factory=dict)

    def get(self, name: str) -> Value | None:
        """Return a value, or None without one."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def set(self, name: str, value: Value) -> None:
        """Set a value."""
        self.scopes[-1][name] = value

    def assign(self, word: Word | ArrayWord) -> None:
        """Follow ``NAME=value``, ``NAME+=value`` or ``NAME=(words)``."""
        if isinstance(word, ArrayWord):
            made = [one for text in word.words for one in self.words(text)]
            elements = (self.get(word.name) or []) if word.appends else []
            self.set(word.name, [*([elements] if isinstance(elements, str) else elements), *made])
            self.spend(len(made) + len(elements))
        elif found := ASSIGNS.fullmatch(word.text):
            name, appends, text = found.groups()
            value = self.text(text)
            before = (self.get(name) or "") if appends else ""
            self.set(name, f"{before}{value}" if isinstance(before, str) else [f"{before[0]}{value}", *before[1:]])
            self.spend(len(before))

    def mark(self, text: str, reason: str, values: tuple[list[str], ...] = (), *, empty: bool = False) -> str:
        """Return a mark for what is not known."""
        if not values and (text, reason) in self._known:
            return self._known[text, reason]
        self.marks.append(Unknown(text[:60], reason, values, empty))
        made = f"\0{len(self.marks) - 1}\0"
        if not values:
            self._known[text, reason] = made
        return made

    def spend(self, number: int) -> None:
        """Count characters; reject a script that makes too many of them."""
        self.budget -= number
        if self.budget < 0:
            raise UnsupportedConfigError("the script is too large once its variables are expanded")

    def text(self, word: str) -> str:
        """Return a word's expansion as one text."""
        return "".join(text for text, _ in self._pieces(word))

    def words(self, word: str) -> list[str]:
        """Return the words that a word becomes: expansions outside quotation marks are split."""
        made, fresh = list[str](), True
        for text, splits in self._pieces(word):
            parts = SPACES.split(text) if splits else [text]
            for number, part in enumerate(parts):
                if number or fresh:
                    made.append(part)
                    fresh = False
                else:
                    made[-1] += part
        return [one for one in made if one]

    def _pieces(self, word: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a word, expanded, and whether each is split."""
        at = 0
        while at < len(word):
            if found := _PLAIN.match(word, at):
                self.spend(len(found[0]))
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
                    yield self.mark(part, f"{part[:60]} is a command"), False
                case _:
                    value = self._expansion(part)
                    text = value if isinstance(value, str) else " ".join(value)
                    self.spend(len(text))
                    yield text, True

    def _quoted(self, text: str) -> Iterator[str]:
        at = 0
        while at < len(text):
            if found := _PLAIN_IN_QUOTES.match(text, at):
                self.spend(len(found[0]))
                yield found[0]
                at = found.end()
                continue
            end = end_of(text, at)
            part, at = text[at:end], end
            if part[0] == "\\":
                yield "" if part == "\\\n" else part[1:] if part[1:] in ("$", "`", '"', "\\") else part
            elif part[0] == "`":
                yield self.mark(part, f"{part[:60]} is a command")
            else:
                value = self._expansion(part)
                self.spend(sum(map(len, value)))
                yield value if isinstance(value, str) else " ".join(value)

    def _expansion(self, part: str) -> Value:  # noqa: PLR0911 - a case per form
        """Return the value of ``$NAME``, ``${NAME}``, ``$((…))`` or ``$(…)``."""
        if part.startswith("$(("):
            number = self.arithmetic(part[3:-2])
            return self.mark(part, f"{part[:60]} has a value that is not known") if number is None else str(number)
        if part.startswith("$("):
            return self.mark(part, f"{part[:60]} is a command")
        if part.startswith("$'"):
            return part[2:-1]
        if not part.startswith("${"):
            return self._parameter(part[1:]) if _NAME.fullmatch(part[1:]) else part
        found = _PARAMETER.fullmatch(part[2:-1])
        if found is None or (found[4] and not found[3]):
            return self.mark(part, f"{part[:60]} has a value that is not known")
        name, index, how, word = found.groups()
        known = self.get(name)
        if how and ("+" in how) == bool(known):
            return self.text(word) if "?" not in how else self._parameter(name)
        if how and "+" in how:
            return ""
        if index and index.isdecimal() and known is not None:
            listed = [known] if isinstance(known, str) else known
            return listed[int(index)] if len(index) < _DIGITS and int(index) < len(listed) else ""
        if isinstance(known, list) and not index:
            return known[0] if known else ""
        return self._parameter(name)

    def _parameter(self, name: str) -> Value:
        known = self.get(name)
        if known is not None:
            return known
        if name == "#":
            return "0"
        what = "is an argument of the script" if name.isdecimal() or name in "@*" else "is not set in the file"
        return self.mark(f"${name}", f"{name} {what}" if name.isidentifier() else f"${name} {what}", empty=True)

    def arithmetic(self, text: str) -> int | None:
        """Return the value of arithmetic, or None if it is not known."""
        whole = re.sub(r"(?<![\w\0])[A-Za-z_]\w*", lambda found: self.text(f"${found[0]}"), self.text(text))
        if len(whole) > 1000 or not re.fullmatch(r"[\d\s+*/%()<>=!-]+", whole):  # noqa: PLR2004 - long enough for any script
            return None
        try:
            return _number(ast.parse(whole.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError):
            return None


def _number(node: ast.expr) -> int:  # noqa: C901 - a case per operator
    """Return the value of an expression of integers; a shell divides toward zero."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=one):
            return -_number(one)
        case ast.BinOp(left=a, op=op, right=b):
            left, right = _number(a), _number(b)
            signed = -1 if (left < 0) != (right < 0) else 1
            match op:
                case ast.Add():
                    made = left + right
                case ast.Sub():
                    made = left - right
                case ast.Mult():
                    made = left * right
                case ast.Div():
                    made = signed * (abs(left) // abs(right))
                case ast.Mod():
                    made = left - right * signed * (abs(left) // abs(right))
                case _:
                    raise ValueError
            if abs(made) >= 2**63:
                raise ValueError
            return made
        case ast.Compare(left=a, ops=[op], comparators=[b]):
            compare = {ast.Lt: operator.lt, ast.Gt: operator.gt, ast.LtE: operator.le, ast.GtE: operator.ge, ast.Eq: operator.eq}
            return int(compare.get(type(op), operator.ne)(_number(a), _number(b)))
    raise ValueError
