"""The keys and values in a text: JSON, YAML, TOML, Python assignments, a command line, a printed list of arguments."""

from __future__ import annotations

import ast
import json
import operator
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from planner.importer.commands import command, is_command
from planner.importer.reader import UnsupportedConfigError, show
from planner.spec.nodes import UNREADABLE, Node, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

_ARITHMETIC: Mapping[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv,
}  # fmt: skip
_DOTS = re.compile(r" (\.{2,})(?: |$)")  # num_layers ...... 24
_SECTION = "---- arguments ----", "---- end of arguments"  # of the list that Megatron-LM prints
_GROUPED = re.compile(r"[-+]?\d{1,9}(?:_\d{1,9}){1,5}", re.ASCII)  # 739_328, an integer of YAML 1.1
_INCLUDE = re.compile(r"^( *[\w-]+: +)!include +(\S+)", re.MULTILINE)  # of another file, whose name is kept


def parsed(text: str, file: str) -> dict[str, Any]:
    """Return the keys and values of a file; its name helps to distinguish JSON from Python. Raises UnsupportedConfigError."""
    config = _value(text, file)
    if not isinstance(config, Mapping):
        raise UnsupportedConfigError(f"expected a mapping of keys to values, got {_kind(config)}")
    return dict(config)


def _value(text: str, file: str) -> Any:  # noqa: ANN401 - any value of a file
    if "\0" in text:
        raise UnsupportedConfigError("the file is binary")
    start = text.lstrip()[:1]
    if not start:
        raise UnsupportedConfigError("the file is empty")
    braces = start == "{" or (start == "[" and not _DOTS.search(text))
    if (braces and not file.endswith((".yml", ".yaml", ".toml"))) or file.endswith(".json"):
        return _json(text)
    if file.endswith(".toml"):
        return _toml(text)
    if file.endswith(".py"):
        return dict(_assignments(text))
    if len(printed := _printed(text)) > 2:  # noqa: PLR2004 - too few for a model
        return printed
    if is_command(text, file):
        return command(text, literal)
    return _yaml(text, file)


def _json(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        cut = " (the file seems to be cut off)" if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated") else ""
        raise UnsupportedConfigError(f"line {error.lineno}, column {error.colno}: invalid JSON: {error.msg}{cut}") from None
    except RecursionError:
        raise UnsupportedConfigError("the values are nested too deeply") from None
    except UnsupportedConfigError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise UnsupportedConfigError(f"invalid JSON: {str(error).split(';')[0]}") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise UnsupportedConfigError(f"duplicate key `{twice}`")
    return found


def _toml(text: str) -> Any:  # noqa: ANN401
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnsupportedConfigError(f"invalid TOML: {str(error).split(';')[0][:200]}") from None


def _yaml(text: str, file: str) -> Any:  # noqa: ANN401
    from planner.spec.problems import SpecError
    from planner.spec.yaml12 import parse

    try:
        tree, problems = parse(Source(file, _INCLUDE.sub(r"\1'\2'", text)))
    except SpecError as error:
        problems = tuple(error.problems)
    if problems:
        raise UnsupportedConfigError(f"line {problems[0].place.line}: invalid YAML: {problems[0].message}")
    return _plain(tree)


def _plain(node: Node) -> Any:  # noqa: ANN401
    if isinstance(node.value, dict):
        return {key: _plain(value) for key, value in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(value) for value in node.value]
    if isinstance(node.value, str) and _GROUPED.fullmatch(node.value):
        return int(node.value)
    if isinstance(node.value, (str, int, bool, type(None))):
        return node.value
    return None if node.value is UNREADABLE else literal(node.text)


def literal(text: str) -> Any:  # noqa: ANN401 - any value of a file
    """Return the number, Boolean, list or None of a Python literal; other text unchanged."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of text such as 3and
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def _printed(text: str) -> dict[str, Any]:
    """Return the arguments that Megatron-LM prints at start, one per line, which may begin with a time or a rank."""
    start = text.find(_SECTION[0])
    end = text.find(_SECTION[1], start) if start >= 0 else -1
    printed: dict[str, Any] = {}
    for line in text[max(start, 0) : end if end >= 0 else len(text)].splitlines():
        if not (dots := _DOTS.search(line)):
            continue
        name, value = re.split(r"[\s:\]>]", line[: dots.start()])[-1], literal(line[dots.end() :].strip())
        if name.isidentifier() and printed.setdefault(name, value) != value:
            raise UnsupportedConfigError(f"`{name}` is printed with several values: {show(printed[name])}, {show(value)}")
    return printed


def _assignments(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the assignments of literals and of arithmetic with them in a Python file, which is not run."""
    try:
        tree = ast.parse(text)
    except (RecursionError, MemoryError):
        raise UnsupportedConfigError("invalid Python: the expressions are nested too deeply") from None
    except (SyntaxError, ValueError) as error:
        raise UnsupportedConfigError(f"invalid Python: {str(error).splitlines()[0]}") from None
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                yield statement.targets[0].id, _constant(statement.value)
            except (ValueError, TypeError, MemoryError, RecursionError, ArithmeticError):
                continue


def _constant(node: ast.expr) -> Any:  # noqa: ANN401
    """Return the value of a literal, or of arithmetic with numbers such as ``5 * 8``."""
    if not isinstance(node, ast.BinOp) or type(node.op) not in _ARITHMETIC:
        return ast.literal_eval(node)
    left, right = _constant(node.left), _constant(node.right)
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        raise TypeError
    return _ARITHMETIC[type(node.op)](left, right)


def _kind(value: object) -> str:
    return {list: "a list", str: "a string", type(None): "nothing"}.get(type(value), "a single value")
