"""Validation of a tree against the JSON Schema, with errors in plain words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from planner.spec.conforms import conforms, is_a
from planner.spec.language import inlined
from planner.spec.nodes import UNREADABLE, Node
from planner.spec.problems import Problem, quote
from planner.spec.suggest import key_hint, keys_meant, number_meant, truth_meant, value_hint

if TYPE_CHECKING:
    import jsonschema

MAX_FINDINGS = 200  # in one file; more is no help to anybody

Path = tuple[str | int, ...]
Finding = tuple[Path | None, Problem]  # the path of the value that the problem makes unusable, if it does

_WHOLE = {"spec": ("a spec", "start with name: and model:"), "policy": ("planner.yaml", "start with budgets:")}
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def validate(root: Node, language: str = "spec") -> tuple[Node, tuple[Problem, ...]]:
    """Return the tree with every wrong value made unreadable, and the problems; not more than MAX_FINDINGS of them."""
    findings = list(islice(_findings(root, language), MAX_FINDINGS + 1))
    problems = tuple(dict.fromkeys(problem for _, problem in findings))
    if len(findings) > MAX_FINDINGS:
        return root.mark_invalid(()), problems  # not all invalid values are known
    checked = root
    for path, _ in findings:
        if path is not None:
            checked = checked.mark_invalid(path)
    return checked, problems


def _findings(root: Node, language: str) -> Iterator[Finding]:
    plain: Any = root.plain()
    if conforms(plain, inlined(language)):
        return
    for error in _validator(language).iter_errors(plain):
        yield from _explain(root, language, error)


@cache
def _validator(language: str) -> jsonschema.protocols.Validator:
    """Return the compiled validator, for trees whose whole numbers are int and whose other numbers are Fraction."""
    from jsonschema import Draft7Validator, validators

    own = {kind: lambda _, value, kind=kind: is_a(value, kind) for kind in ("integer", "number")}
    checker = Draft7Validator.TYPE_CHECKER.redefine_many(own)
    extend: Any = validators.extend  # untyped
    compiled: jsonschema.protocols.Validator = extend(Draft7Validator, type_checker=checker)(inlined(language))
    return compiled


@dataclass(frozen=True)
class _Error:
    """An error of the validator: the value that breaks a keyword of its schema."""

    root: Node
    language: str
    path: Path
    wanted: Any  # the keyword's value
    schema: dict[str, Any]
    context: Sequence[jsonschema.ValidationError]

    @property
    def node(self) -> Node:
        node = self.root
        for step in self.path:
            node = node.items()[step] if isinstance(step, str) else node.elements()[step]
        return node

    @property
    def name(self) -> str:
        """The value as messages name it: ``model.layers[0].count``."""
        return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).removeprefix(".")

    @property
    def key(self) -> str:
        """The key that the value belongs to; the elements of a list belong to the list's."""
        return next((step for step in reversed(self.path) if isinstance(step, str)), "")

    def missing(self, key: str, or_else: str = "") -> Problem:
        """Return the problem of a missing key, at the key of the mapping that lacks it."""
        mark, inside = self.node.mark, f" in {self.name}" if self.name else ""
        if self.path and isinstance(self.path[-1], str):
            mark = replace(self, path=self.path[:-1]).node.keys[self.path[-1]]
        return mark.problem("missing-key", f"missing required key '{key}'{or_else}{inside}", _example(key, self.schema))

    def meant(self) -> set[str]:
        """Return the keys that unknown keys of the mapping mean."""
        return keys_meant(self.node.items(), self.schema["properties"], self.language)


def _explain(root: Node, language: str, error: jsonschema.ValidationError) -> Iterator[Finding]:
    """Yield what an error of the validator means."""
    schema: Any = error.schema
    own = _Error(root, language, tuple(error.absolute_path), error.validator_value, schema, error.context)
    if own.node.value is not UNREADABLE:  # else reported when it was read
        yield from _EXPLAIN[str(error.validator)](own)


def _unknown_keys(error: _Error) -> Iterator[Finding]:
    allowed = error.schema["properties"]
    for key in (key for key in error.node.items() if key not in allowed):
        inside = f" in {error.name}" if error.path else ""
        yield None, error.node.keys[key].problem("unknown-key", f"unknown key {quote(key)}{inside}", key_hint(key, allowed, error.language))


def _missing_keys(error: _Error) -> Iterator[Finding]:
    there = error.node.items().keys() | error.meant()
    for key in error.wanted:
        if key not in there:
            yield None, error.missing(key)


def _no_branch(error: _Error) -> Iterator[Finding]:
    """Explain ``anyOf``: one of several keys is missing, or the form that the user has chosen has errors."""
    if "required" in error.wanted[0]:
        first, *others = (branch["required"][0] for branch in error.wanted)
        if first not in error.meant():
            yield None, error.missing(first, "".join(f" or '{key}'" for key in others))
        return
    meant = _form(error.node.value, error.wanted)
    for inner in error.context:
        if inner.schema_path[0] == meant:
            yield from _explain(error.root, error.language, inner)


def _form(value: object, forms: list[dict[str, Any]]) -> int:
    """Return which form of a setting is meant: that of the value's kind, else the first; where that is but ``none``, the second."""
    kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else ""
    of_kind = [number for number, form in enumerate(forms) if form["type"] == kind]
    return of_kind[0] if of_kind else int(forms[0].get("enum") == ["none"])


def _wrong_type(error: _Error) -> Iterator[Finding]:
    if "enum" in error.schema:
        return  # which fails too, with a better message
    node, types = error.node, [error.wanted] if isinstance(error.wanted, str) else error.wanted
    if not error.path:
        whole, hint = _WHOLE[error.language]
        message = f"{whole} must be a mapping, not {_said(node)}"
    else:
        message = f"{error.name} must be {' or '.join(_TYPES[name] for name in types)}, not {_said(node)}"
        hint = _instead(node, error.key, types, error.schema) or _example(error.key, {"properties": {error.key: error.schema}})
    yield error.path, node.mark.problem("type", message, hint)


def _wrong_value(error: _Error) -> Iterator[Finding]:
    node = error.node
    value = None if isinstance(node.value, dict | list) else node.value
    hint = value_hint(error.key, value, node.text, error.wanted)
    yield error.path, node.mark.problem("value", _invalid(error), hint)


def _invalid(error: _Error) -> str:
    node = error.node
    if node.value is None or isinstance(node.value, dict | list):
        return f"{error.name} cannot be {_said(node)}"
    return f"invalid value {quote(node.text) if isinstance(node.value, str) else node.text} for {error.name}"


def _out_of_bounds(code: str, text: str, hint: str = "") -> Callable[[_Error], Iterator[Finding]]:
    def explain(error: _Error) -> Iterator[Finding]:
        bound = f"{error.wanted:,}" if isinstance(error.wanted, int) else ""
        message = f"{error.name} {text.format(bound=bound, said=_said(error.node))}"
        yield error.path, error.node.mark.problem(code, message, hint)

    return explain


_AMOUNT = re.compile(r"\d+([A-Za-z]+(?:/s)?)")  # a number and its unit

_EXPLAIN: dict[str, Callable[[_Error], Iterator[Finding]]] = {
    "additionalProperties": _unknown_keys,
    "required": _missing_keys,
    "anyOf": _no_branch,
    "type": _wrong_type,
    "enum": _wrong_value,
    "minimum": _out_of_bounds("range", "must be at least {bound}, not {said}"),
    "maximum": _out_of_bounds("range", "must be at most {bound}, not {said}"),
    "exclusiveMinimum": _out_of_bounds("range", "must be above {bound}, not {said}"),
    "exclusiveMaximum": _out_of_bounds("range", "must be below {bound}, not {said}"),
    "minLength": _out_of_bounds("text", "must not be empty"),
    "maxLength": _out_of_bounds("text", "exceeds {bound} characters", "shorten it"),
    "minItems": _out_of_bounds("empty-list", "must not be an empty list", "remove the key"),
    "maxItems": _out_of_bounds("too-many-items", "must have at most {bound} items", "remove some of them"),
    "pattern": _out_of_bounds("text", "must not begin or end with a space", "remove the space"),
    "not": _out_of_bounds("text", "must be one line without control characters", "write it on one line"),
}


def _instead(node: Node, key: str, types: list[str], schema: dict[str, Any]) -> str:
    """Return what to write instead of a value of the wrong type, where the value shows it. A number may lack the unit of an example."""
    if isinstance(node.value, str):
        if types[0] in ("integer", "number") and (number := number_meant(node.value)):
            return f"write {key}: {number}"
        if types[0] == "boolean" and (truth := truth_meant(node.value)):
            return f"YAML 1.2 reads {quote(node.value)} as text: write {key}: {truth}"
    example = str(next(iter(schema.get("examples", [])), schema.get("default")))
    if (found := _AMOUNT.fullmatch(example)) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return f"write {key}: {node.text}{found[1]}"
    if types[0] == "string" and node.text and not isinstance(node.value, dict | list):
        return f'put it in quotes: {key}: "{node.text}"'
    return ""


def _example(key: str, schema: dict[str, Any]) -> str:
    inner = schema["properties"][key]
    examples = [*inner.get("examples", []), *([inner["default"]] if "default" in inner else [])]
    if not examples or isinstance(examples[0], list) or examples[0] == "":
        return ""
    return f"for example {key}: {str(examples[0]).lower() if isinstance(examples[0], bool) else examples[0]}"


def _said(node: Node) -> str:
    """Return the value as the user wrote it, and what it is where that could surprise."""
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list"
    if node.value is None:
        return "empty"
    return f"the text {quote(node.text)}" if isinstance(node.value, str) else node.text
