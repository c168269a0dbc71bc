"""The commands in the text of a shell script, as a tree; ``shell.py`` follows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from planner.importer.reader import UnsupportedConfigError

_DEEP = 50  # nested constructs
_MOST = 100_000  # words and operators

_SPACE = re.compile(r"(?:[ \t\r]|\\\r?\n)*")
_COMMENT = re.compile(r"#[^\n]*")
_OPERATOR = re.compile(r"\n|;;&?|;&|;|&&|\|\||&>>?|[<>]&-?|<<<|<<-?|<\(|>\(|>>|>\||\|&?|[&<>()]")
_PLAIN = re.compile(r"[^\s\\'\"`$;&|<>()]+")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")
_INSIDE = re.compile(r"[\\'\"`$()]")  # of parentheses
_IN_QUOTES = re.compile(r"[\\\"`$]")
_IN_BRACES = re.compile(r"[\\'\"`$}]")
_HEREDOC = re.compile(r"[ \t]*(\\?[\w.!-]+|'[^'\n]*'|\"[^\"\n]*\")")

REDIRECTIONS = ("<", ">", ">>", "<<", "<<-", "<<<", ">|", "&>", "&>>", ">&", "<&")
_ENDS = ("\n", ";", "&")
_STARTS = {"if": "fi", "for": "done", "select": "done", "while": "done", "until": "done", "case": "esac", "{": "}"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word as written, with its quotation marks and expansions."""

    text: str


@dataclass(frozen=True, slots=True)
class Operator:
    """A separator of words or commands."""

    text: str


@dataclass(frozen=True, slots=True)
class ArrayWord:
    """``NAME=(words)`` or ``NAME+=(words)``."""

    name: str
    appends: bool
    words: tuple[str, ...]


Token = Word | Operator | ArrayWord


@dataclass(frozen=True, slots=True)
class Simple:
    """A command with its words, redirections removed."""

    words: tuple[Word | ArrayWord, ...]


@dataclass(frozen=True, slots=True)
class Branches:
    """``if`` or ``case``: bodies by condition; the last condition may be None, which is the ``else``."""

    subject: str | None  # the word of ``case``
    cases: tuple[tuple[Block | tuple[str, ...] | None, Block], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop; its variable, if any."""

    variable: str
    condition: Block
    body: Block


@dataclass(frozen=True, slots=True)
class Function:
    """The definition of a function."""

    name: str
    body: Block


@dataclass(frozen=True, slots=True)
class Chain:
    """Commands joined by ``&&`` and ``||``."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


Node = Simple | Branches | Loop | Function | Chain | list["Node"]  # a list: the commands of a pipeline
Block = list[Node]


def end_of(text: str, start: int, depth: int = 0) -> int:
    """Return the end of what begins with a quotation mark, a backslash, a backquote or ``$``."""
    if depth > _DEEP:
        raise UnsupportedConfigError("the script is nested too deeply")
    mark = text[start]
    if mark == "\\":
        return min(start + 2, len(text))
    if mark in "'`":
        end = text.find(mark, start + 1)
    elif mark == '"':
        end = _closing(text, start + 1, _IN_QUOTES, '"', depth)
    elif text.startswith("$(", start):
        end = _closing(text, start + 2, _INSIDE, ")", depth)
    elif text.startswith("${", start):
        end = _closing(text, start + 2, _IN_BRACES, "}", depth)
    elif text.startswith("$'", start):
        return end_of(text, start + 1, depth)
    else:
        found = re.compile(r"\w+|[@*#?$!-]").match(text, start + 1)
        return found.end() if found else start + 1
    if end < 0:
        raise UnsupportedConfigError(f"line {text.count(chr(10), 0, start) + 1}: {mark} is not closed")
    return end + 1


def _closing(text: str, at: int, marks: re.Pattern[str], closing: str, depth: int) -> int:
    """Return where a construct closes, or -1."""
    opened = 0
    while found := marks.search(text, at):
        if found[0] == closing and not opened:
            return found.start()
        opened += {"(": 1, ")": -1}.get(found[0], 0) if marks is _INSIDE else 0
        at = found.end() if found[0] in "()}" else end_of(text, found.start(), depth + 1)
    return -1


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of what a pattern matches, or the same position."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _word_end(text: str, at: int) -> int:
    while at < len(text):
        if plain := _PLAIN.match(text, at):
            at = plain.end()
        elif text[at] in "\\'\"`$" and not text.startswith(("\\\n", "\\\r\n"), at):
            at = end_of(text, at)
        elif text.startswith("\\", at):
            at = text.index("\n", at) + 1
        else:
            break
    return at


def tokens(text: str) -> Iterator[Token]:
    """Yield the words and operators of a script."""
    at, heredocs = 0, list[str]()
    while True:
        at = _end(_SPACE, text, at)
        if at >= len(text):
            return
        if text[at] == "#":
            at = _end(_COMMENT, text, at)
        elif array := _ARRAY.match(text, at):
            name = array[0].rstrip("(=+")
            words, at = _array(text, array.end())
            yield ArrayWord(name, "+=" in array[0], words)
        elif (end := _word_end(text, at)) > at:
            yield Word(text[at:end])
            at = end
        elif operator := _OPERATOR.match(text, at):
            at = operator.end()
            if operator[0] in ("<<", "<<-") and (found := _HEREDOC.match(text, at)):
                heredocs.append(found[1].strip("\\'\""))
            if operator[0] == "\n":
                for ending in heredocs:
                    at = _after_line(text, at, ending)
                heredocs.clear()
            yield Operator(operator[0])
        else:
            at += 1


def _after_line(text: str, at: int, ending: str) -> int:
    """Return the position after the line that ends a here-document."""
    found = re.compile(rf"^\t*{re.escape(ending)}$\n?", re.MULTILINE).search(text, at)
    return found.end() if found else len(text)


def _array(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """Return the words of an array up to its closing parenthesis, and the position after it."""
    start, words = at, list[str]()
    while at < len(text) and len(words) < _MOST:
        if text[at] == ")":
            return tuple(words), at + 1
        end = _word_end(text, at)
        if text[at] == "#":
            at = _end(_COMMENT, text, at)
        elif end > at:
            words.append(text[at:end])
            at = end
        elif text[at] == "(":  # an array inside an array means nothing
            break
        else:
            at += 1
    raise UnsupportedConfigError(f"line {text.count(chr(10), 0, start) + 1}: ( is not closed within {_MOST:,} words")


class Parser:
    """Turns tokens into commands."""

    def __init__(self, text: str) -> None:
        """Read the tokens of a script."""
        self._tokens = list(islice(tokens(text), _MOST))
        if len(self._tokens) == _MOST:
            raise UnsupportedConfigError(f"the script has more than {_MOST:,} words")
        self._at, self._depth = 0, 0

    def script(self) -> Block:
        """Return the commands of the whole script."""
        made: Block = []
        while self._at < len(self._tokens):
            made += self._block(())
            self._at += 1  # a closing word without an opening one
        return made

    def _peek(self) -> str:
        """Return a word or an operator by its text; an array and the end as nothing."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        return token.text if isinstance(token, (Word, Operator)) else ""

    def _more(self) -> bool:
        return self._at < len(self._tokens)

    def _skip(self, *texts: str) -> bool:
        """Skip one of these words or operators."""
        if self._more() and self._peek() in texts:
            self._at += 1
            return True
        return False

    def _block(self, closing: tuple[str, ...]) -> Block:
        """Return the commands before one of these words."""
        self._depth += 1
        if self._depth > _DEEP:
            raise UnsupportedConfigError("the script is nested too deeply")
        made: Block = []
        closes = {*closing, ")", ";;", ";&", ";;&"} if closing else {*_STARTS.values(), ")", ";;", ";&", ";;&"}
        while self._more():
            if self._skip(*_ENDS):
                continue
            if self._peek() in closes:
                break
            made.append(self._chain())
        self._depth -= 1
        return made

    def _chain(self) -> Node:
        first, rest = self._pipeline(), list[tuple[str, Node]]()
        while (joint := self._peek()) in ("&&", "||"):
            self._at += 1
            while self._skip("\n"):
                pass
            rest.append((joint, self._pipeline()))
        return Chain(first, tuple(rest)) if rest else first

    def _pipeline(self) -> Node:
        made = [self._command()]
        while self._skip("|", "|&"):
            while self._skip("\n"):
                pass
            made.append(self._command())
        return made[0] if len(made) == 1 else made

    def _command(self) -> Node:
        start = self._at
        match self._peek():
            case "if":
                node: Node = self._if()
            case "case":
                node = self._case()
            case "for" | "select" | "while" | "until":
                node = self._loop()
            case "{" | "(":
                node = self._group()
            case "function":
                self._at += 1
                node = self._function()
            case _:
                node = self._function() if self._is_function() else self._simple()
        if self._at == start:  # a misplaced operator
            self._at += 1
        if not isinstance(node, Simple):
            self._redirections()
        return node

    def _is_function(self) -> bool:
        three = self._tokens[self._at : self._at + 3]
        return len(three) == 3 and isinstance(three[0], Word) and three[1:] == [Operator("("), Operator(")")]  # noqa: PLR2004

    def _function(self) -> Node:
        name = self._peek()
        self._at += 1
        while self._skip("(", ")", "\n"):
            pass
        body = self._command()
        return Function(name, [body])

    def _group(self) -> Node:
        opening = self._peek()
        self._at += 1
        if opening == "(" and self._skip("("):  # arithmetic
            return self._arithmetic()
        body = self._block(("}",) if opening == "{" else (")",))
        self._skip("}", ")")
        return body

    def _arithmetic(self) -> Node:
        words = [Word("((")]
        opened = 2
        while self._more() and opened:
            text = self._peek()
            opened += (text == "(") - (text == ")")
            words.append(Word(text))
            self._at += 1
        return Simple((*words[:-2],))

    def _if(self) -> Node:
        cases: list[tuple[Block | None, Block]] = []
        while self._skip("if", "elif"):
            condition = self._block(("then", "fi"))
            self._skip("then")
            cases.append((condition, self._block(("elif", "else", "fi"))))
        if self._skip("else"):
            cases.append((None, self._block(("fi",))))
        self._skip("fi")
        return Branches(None, tuple(cases))

    def _case(self) -> Node:
        self._at += 1
        subject = self._peek()
        self._at += 1
        cases: list[tuple[tuple[str, ...], Block]] = []
        while self._skip("\n", "in"):
            pass
        while self._more() and not self._skip("esac"):
            patterns = []
            self._skip("(")
            while self._more() and not self._skip(")"):
                if not self._skip("|", "\n"):
                    patterns.append(self._peek())
                    self._at += 1
            cases.append((tuple(patterns), self._block(("esac",))))
            while self._skip(";;", ";&", ";;&", "\n", ";"):
                pass
        return Branches(subject, tuple(cases))

    def _loop(self) -> Node:
        kind, variable = self._peek(), ""
        self._at += 1
        if kind in ("for", "select"):
            variable = self._peek()
            while self._more() and self._peek() not in ("do", "\n", ";"):
                self._at += 1
            if variable == "(":
                while self._more() and self._peek() != "do":
                    self._at += 1
        condition = self._block(("do",))
        self._skip("do")
        body = self._block(("done",))
        self._skip("done")
        return Loop(variable, condition, body)

    def _simple(self) -> Node:
        words: list[Word | ArrayWord] = []
        while self._more():
            token = self._tokens[self._at]
            if isinstance(token, Operator):
                if words and words[0] == Word("[[") and Word("]]") not in words[-1:] and token.text != "\n":
                    words.append(Word(token.text))
                    self._at += 1
                elif token.text in REDIRECTIONS:
                    self._at += 2
                    if words and isinstance(words[-1], Word) and words[-1].text.isdecimal():  # 2>
                        words.pop()
                else:
                    break
            else:
                words.append(token)
                self._at += 1
        return Simple(tuple(words))

    def _redirections(self) -> None:
        while self._peek() in REDIRECTIONS:
            self._at += 2
