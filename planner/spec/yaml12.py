"""YAML text to a tree of nodes, read by the core schema of YAML 1.2.

PyYAML only cuts the text into events; which scalar is a number, what is refused, and how deep and how large a document may be is decided
here. The tree is built without recursion, so no document can overflow a stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

from planner.spec.nodes import UNREADABLE, Mark, Node, Scalar, Source
from planner.spec.problems import Problem, SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    import yaml

MAX_DEPTH = 32
_TOO_DEEP = f"more than {MAX_DEPTH} levels of nesting"
MAX_VALUES = 50_000  # with every alias written out
MAX_DIGITS = 100  # of a number as written; also the largest exponent

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((f"{sign}{word}" for sign in ("", "+") for word in (".inf", ".Inf", ".INF")), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER = re.compile(
    r"(?P<decimal>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE](?P<exponent>[-+]?[0-9]+))?"
)
_NUMBER_START = frozenset("+-.0123456789")

_OLD_LINE_END = re.compile("[\x85\u2028\u2029]")  # in YAML 1.1, which the parser follows, and no longer in 1.2

_TAG = "tag:yaml.org,2002:"
_TAGGED = {_TAG + "int": (int,), _TAG + "float": (int, Fraction, float), _TAG + "bool": (bool,), _TAG + "null": (type(None),)}


def parse(source: Source) -> tuple[Node, tuple[Problem, ...]]:
    """Return the tree of a text and what is wrong in it without hindering the reading of the rest.

    Raises SpecError: the text is not YAML, empty, more than one document, too deep or too large.
    """
    import yaml

    if found := yaml.reader.Reader.NON_PRINTABLE.search(source.text) or _OLD_LINE_END.search(source.text):
        before = Source(source.file, source.text[: found.start()]).lines
        mark = Mark(source, len(before) - 1, len(before[-1]))
        message = f"the character U+{ord(found[0]):04X} is not allowed"
        raise SpecError([mark.problem("character", message, "remove it, or write it as an escape in double quotes")])
    builder = _Builder(source)
    try:
        for event in _events(source.text):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise SpecError([_syntax_problem(source, error)]) from None
    return builder.document(), tuple(builder.problems)


def parse_value(text: str) -> Scalar:
    """Return what a plain scalar means. Raises ValueError for a number that is too long to be meant."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START or not (number := _NUMBER.fullmatch(text)):
        return text
    if len(text) > MAX_DIGITS or abs(int(number["exponent"] or 0)) > MAX_DIGITS:
        raise ValueError(text)
    if number["decimal"]:
        return int(text)
    if number["octal"]:
        return int(number["octal"], 8)
    if number["hex"]:
        return int(number["hex"], 16)
    exact = Fraction(text)
    return exact.numerator if exact.denominator == 1 else exact


def _events(text: str) -> Iterator[yaml.Event]:
    """Yield parser events, from libyaml where PyYAML has it."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # typed by neither class: both parse
    try:
        while event := loader.get_event():
            yield event
    finally:
        loader.dispose()


@dataclass(slots=True)
class _Open:
    """A collection that is being read."""

    node: Node
    anchor: str | None
    key: Node | None = None  # of a mapping: read, and waiting for its value


class _Builder:
    """Takes events and builds the tree."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self.open: list[_Open] = []
        self.anchors: dict[str, Node | None] = {}  # None: its collection is still open

    def document(self) -> Node:
        """Return the root."""
        if self.root is None or (self.root.value is None and not self.root.text):
            raise SpecError([Mark(self.source, 0, 0).problem("empty", "the file is empty", "write at least name and model")])
        return self.root

    def take(self, event: Any) -> None:  # noqa: ANN401 - each kind of event has attributes of its own
        """Take the next event."""
        kind = type(event).__name__
        if kind == "ScalarEvent":
            self._close(self._scalar(event), event.anchor)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._start(event, {} if kind == "MappingStartEvent" else [])
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            done = self.open.pop()
            self._close(done.node, done.anchor)
        elif kind == "AliasEvent":
            self._close(self._alias(event), None)
        elif kind == "DocumentStartEvent" and self.root is not None:
            self._stop(event, "documents", "a second document starts here", "one file is one spec: move it to a file of its own")

    def _mark(self, event: Any) -> Mark:  # noqa: ANN401 - as above
        return Mark(self.source, event.start_mark.line, event.start_mark.column)

    def _stop(self, event: yaml.Event, code: str, message: str, hint: str = "") -> NoReturn:
        raise SpecError([*self.problems, self._mark(event).problem(code, message, hint)])

    def _start(self, event: yaml.CollectionStartEvent, value: dict[str, Node] | list[Node]) -> None:
        if len(self.open) == MAX_DEPTH:
            self._stop(event, "too-deep", _TOO_DEEP)
        node = Node(self._mark(event), value)
        if event.tag not in (None, "!", _TAG + ("map" if isinstance(value, dict) else "seq")):
            self.problems.append(_tag_problem(node.mark, event.tag))
        if event.anchor:
            self.anchors[event.anchor] = None
        self.open.append(_Open(node, event.anchor))

    def _close(self, node: Node, anchor: str | None) -> None:
        """Put a finished node where it belongs."""
        if anchor:
            self.anchors[anchor] = node
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        parent.node.size += node.size
        if parent.node.size > MAX_VALUES:
            problem = parent.node.mark.problem("too-many-values", f"more than {MAX_VALUES:,} values, aliases written out")
            raise SpecError([*self.problems, problem])
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            self._entry(parent.node, parent.key, node)
            parent.key = None

    def _entry(self, mapping: Node, key: Node, node: Node) -> None:
        name, entries, mark = key.value, mapping.items(), key.mark
        if name is UNREADABLE:
            return
        if not isinstance(name, str):
            self.problems.append(mark.problem("key-type", f"keys must be strings, not {quote(key.text) if key.text else 'a collection'}"))
        elif name in entries:
            first = mapping.keys[name].line + 1
            message = f"duplicate key {quote(name)} (first used on line {first})"
            self.problems.append(mark.problem("duplicate-key", message, "keep one of them"))
        else:
            entries[name] = node
            mapping.keys[name] = mark

    def _alias(self, event: yaml.AliasEvent) -> Node:
        name = event.anchor
        if name not in self.anchors:
            mark = self._mark(event)
            self.problems.append(mark.problem("alias", f"undefined YAML anchor {quote(f'&{name}')}"))
            return Node(mark, UNREADABLE)
        node = self.anchors[name]
        if node is None:
            self._stop(event, "alias", f"{quote(f'*{name}')} refers to itself")
        return node

    def _scalar(self, event: Any) -> Node:  # noqa: ANN401 - as above
        text: str = event.value
        tag: str | None = event.tag
        mark = self._mark(event)
        if tag in ("!", _TAG + "str") or (tag is None and not event.implicit[0]):
            return Node(mark, text, text)
        if tag is not None and tag not in _TAGGED:
            self.problems.append(_tag_problem(mark, tag))
            return Node(mark, UNREADABLE, text)
        try:
            value = parse_value(text)
        except ValueError:
            message = f"a number of {len(text):,} characters" if len(text) > MAX_DIGITS else f"the number {quote(text)} is out of bounds"
            self.problems.append(mark.problem("number", message, f"numbers have at most {MAX_DIGITS} digits"))
            return Node(mark, UNREADABLE, text)
        if tag is not None and type(value) not in _TAGGED[tag]:
            self.problems.append(mark.problem("tag", f"{quote(text)} does not match its YAML tag", "remove the tag"))
            return Node(mark, UNREADABLE, text)
        return Node(mark, value, text)


def _tag_problem(mark: Mark, tag: str) -> Problem:
    short = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
    return mark.problem("tag", f"the YAML tag {quote(short)} is not supported", "remove the tag")


# The parser's words, and ours.
_SYNTAX = {
    "maximum nesting depth": (_TOO_DEEP, ""),
    "found character '\\t' that cannot start any token": ("a tab cannot indent", "use spaces"),
    "cannot start any token": ("this character cannot start a value", "use spaces to indent and quotes around text"),
    "mapping values are not allowed": ("a 'key: value' inside another value", "quote text with ': ', align keys, add a ':' missing above"),
    "could not find expected ':'": ("a key without ':'", "write key: value"),
    "did not find expected key": ("inconsistent indentation", "indent all keys of a mapping by the same amount"),
    "expected <block end>": ("inconsistent indentation", "indent all keys of a mapping by the same amount"),
    "unexpected end of stream": ("the quotes opened here are not closed", "close them"),
    "expected ',' or": ("a list or mapping in brackets is not closed", "close it, or put a ',' before this"),
}


def _syntax_problem(source: Source, error: yaml.MarkedYAMLError) -> Problem:
    said = error.problem or "is not YAML"
    at = error.problem_mark or error.context_mark
    if "end of stream" in said and "quoted" in (error.context or ""):
        at = error.context_mark or at
    mark = Mark(source, at.line, at.column) if at else Mark(source, 0, 0)
    if mark.line >= len(source.lines):  # the parser's end of a text without a last line end
        mark = Mark(source, len(source.lines) - 1, len(source.lines[-1]))
    if source.lines[mark.line][mark.column : mark.column + 1] == "\t":
        said = "found character '\\t' that cannot start any token"
    for words, (message, hint) in _SYNTAX.items():
        if words in said:
            return mark.problem("yaml", message, hint)
    return mark.problem("yaml", f"not YAML: {' '.join(filter(None, (error.context, said)))}")
