"""Write the JSON Schema of a spec from the records that state its keys: `make docs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal, assert_never, get_args, get_origin, get_type_hints

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from planner.spec import records  # noqa: E402
from planner.spec.key import Key, keys  # noqa: E402
from planner.spec.language import schema as committed  # noqa: E402
from planner.spec.records import Extra, Layer, Model, Run, Scenario, Spec, Training, Waiver  # noqa: E402

PATH = ROOT / "planner" / "spec" / "schema" / "spec.schema.json"
LARGEST = 2**53 - 1  # the largest integer that every reader of JSON holds exactly
ONE_LINE = {
    "pattern": "^(\\S([\\s\\S]*\\S)?)?$",
    "not": {"type": "string", "pattern": "[\\u0000-\\u001f\\u007f-\\u009f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"},
}
ON_ONE_LINE = [{"$ref": "#/definitions/one_line"}]
NONE = {"type": "string", "enum": ["none"]}

Schema = dict[str, Any]


def schema() -> Schema:
    """Return the schema of a whole spec."""
    whole = mapping(Spec, complete=True)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "modelplan spec",
        "description": "One decoder-only transformer language model and how it is trained. Sizes are counts, never bytes.",
        **whole,
        "definitions": {"one_line": ONE_LINE},
    }


def mapping(kind: type, *, complete: bool) -> Schema:
    """Return the schema of a mapping whose keys a record states; ``complete`` where no other mapping lies beneath it."""
    held = {one.name for one in fields(kind)}
    required = [one.name for one, stated in keys(kind) if complete and one.name in held and needed(one.default, stated)]
    return {
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": properties(kind, complete=complete),
    }


def needed(default: object, stated: Key) -> bool:
    """Return whether a mapping without the key says too little."""
    return default is MISSING and stated.default is None and not stated.derived


def properties(kind: type, *, complete: bool) -> Schema:
    """Return the schemas of a record's keys; a path leads into the properties of the groups before it."""
    hints = get_type_hints(kind, {**vars(records), "Node": object})
    found: Schema = {}
    for one, stated in keys(kind):
        *above, name = (stated.path or one.name).split(".")
        home = found
        for step in above:
            home = inside(home[step])
        home[name] = of_key(stated.path or one.name, stated, hints[one.name], complete=complete)
    for path, order in ORDER.items():
        if kind.__name__ == path[0]:
            home = found
            for step in path[1:]:
                home = inside(home[step])
            again = {name: home[name] for name in order}
            home.clear()
            home.update(again)
    return found


ORDER = {
    ("FeedForward", "bias"): ("up", "gate", "down"),
    ("LatentAttention",): ("q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim", "bias", "indexer"),
}


def inside(group: Schema) -> Schema:
    """Return the properties of a group."""
    own: Schema = group["properties"] if "properties" in group else group["anyOf"][1]["properties"]
    return own


def of_key(path: str, stated: Key, hint: Any, *, complete: bool) -> Schema:  # noqa: ANN401 - any annotation
    """Return the schema of one key."""
    head = {"title": stated.title, "description": stated.meaning}
    default = {} if stated.default is None else {"default": int(stated.default) if isinstance(stated.default, Fraction) else stated.default}
    if path in LISTS:
        return {**head, **LISTS[path](stated)}
    inner: Schema = (
        mapping(stated.kind, complete=complete) if stated.kind else {"type": "object", "additionalProperties": False, "properties": {}}
    )
    match stated.form:
        case "value" if stated.none:
            own = {**default, "anyOf": [NONE, value(stated, hint)]}
        case "value":
            own = value(stated, hint, default)
        case "mapping":
            own = of_model(inner) if stated.kind is Model else inner
        case "none":
            own = {"anyOf": [NONE, inner]}
        case "type":
            own = {**default, "anyOf": [{key: inner["properties"]["type"][key] for key in ("type", "enum")}, inner]}
        case "boolean":
            own = {"type": ["boolean", "object"], **default, "additionalProperties": False, "properties": {}}
        case _ as never:
            assert_never(never)
    return {**head, **own}


def value(stated: Key, hint: Any, default: Mapping[str, Any] | None = None) -> Schema:  # noqa: ANN401
    """Return the schema of one scalar."""
    examples: Schema = {} if stated.example is None else {"examples": [stated.example]}
    if get_origin(hint) is ClassVar:
        (hint,) = get_args(hint)
    kinds = {each for each in (get_args(hint) if get_origin(hint) not in (None, Literal) else [hint]) if each is not type(None)}
    (one,) = kinds
    if get_origin(one) is Literal:
        return {"type": "string", "enum": list(get_args(one)), **(default or {})}
    if one is bool:
        return {"type": "boolean", **(default or {})}
    if one is str and stated.example == "lambda_q1":
        return {"type": "string", "minLength": 1, "maxLength": 100, **examples}
    if one is str:
        return {**text(stated.longest), **examples}
    bounds = {"exclusiveMinimum": stated.above} if stated.above is not None else {"minimum": 1 if stated.least is None else stated.least}
    if one is int:
        return {"type": "integer", **bounds, "maximum": LARGEST, **(default or {}), **examples}
    below = {} if stated.below is None else {"exclusiveMaximum": stated.below}
    return {"type": "number", **bounds, **below, **(default or {}), **examples}


def text(longest: int) -> Schema:
    """Return the schema of a text on one line."""
    return {"type": "string", "minLength": 1, "maxLength": longest, "allOf": ON_ONE_LINE}


def of_model(whole: Schema) -> Schema:
    """Return the model's schema with the keys of its layers, and what one of them asks of another."""
    heads = {"n_heads": {"$ref": "#/properties/model/properties/n_heads"}}
    of_layers = properties(Layer, complete=False)
    ordered: Schema = {}
    for key, part in whole["properties"].items():
        if key == "layers":
            ordered |= of_layers
        ordered[key] = part
    return {
        **{key: part for key, part in whole.items() if key != "properties"},
        "if": {"not": {"anyOf": [{"required": ["mixer"]}, {"required": ["layers"]}]}},
        "then": {"required": ["n_heads"], "properties": heads},
        "anyOf": [{"required": ["n_layers"]}, {"required": ["layers"]}],
        "properties": ordered,
    }


def referred(section: str, names: Iterable[str]) -> Schema:
    """Return properties that are those of a section."""
    return {name: {"$ref": f"#/properties/{section}/properties/{name}"} for name in names}


def listed(items: Schema, stated: Key, least: int = 1) -> Schema:
    """Return the schema of a list."""
    examples = {"examples": [stated.example]} if stated.example else {}
    return {"type": "array", **({"minItems": least} if least else {}), "items": items, **examples}


def runs(stated: Key) -> Schema:
    """Return the schema of the runs of layers, whose keys are the model's."""
    of_layer = referred("model", [*properties(Layer, complete=False), "extra"])
    of_run = properties(Run, complete=False)
    of_run["layers"] |= listed({"type": "object", "additionalProperties": False, "properties": of_layer}, Key("", "", "", None))
    return listed({"type": "object", "additionalProperties": False, "properties": {**of_run, **of_layer}}, stated)


def scenarios(stated: Key) -> Schema:
    """Return the schema of the scenarios, whose keys are those of training."""
    whole = mapping(Scenario, complete=True)
    whole["properties"] |= referred("training", properties(Training, complete=False))
    return listed(whole, stated, 0)


def sources(stated: Key) -> Schema:
    """Return the schema of a text or a list of them."""
    one = text(1000)
    return {**one, "type": ["string", "array"], "items": one, "examples": [stated.example]}


def mixers(stated: Key) -> Schema:
    """Return the schema of one mixer's name or several."""
    others = (one.name for one, part in keys(Layer) if part.form == "none" and one.name not in ("feed_forward", "experts"))
    names = ["attention", *others]
    several = {**listed({"type": "string", "enum": names}, stated), "examples": [["attention", "mamba2"]]}
    return {"default": "attention", "anyOf": [{"type": "string", "enum": [*names, "none"]}, several]}


def claims(_: Key) -> Schema:
    """Return the schema of the columns that can be claimed, which the records do not know."""
    return {key: part for key, part in committed()["properties"]["expect"].items() if key not in ("title", "description")}


SIZE = {"type": ["integer", "string"], "minimum": 1, "maximum": LARGEST, "minLength": 1, "maxLength": 100}
LISTS: Mapping[str, Callable[[Key], Schema]] = {
    "layers": lambda stated: runs(stated) if stated.example else {},  # those of a run are written there
    "scenarios": scenarios,
    "waivers": lambda stated: listed(mapping(Waiver, complete=True), stated),
    "extra": lambda stated: listed(mapping(Extra, complete=True), stated),
    "source": sources,
    "tags": lambda stated: listed(text(100), stated),
    "mixer": mixers,
    "shape": lambda stated: listed(SIZE, stated),
    "until": lambda stated: {"type": "string", "minLength": 1, "maxLength": 100, "examples": [stated.example]},
    "description": lambda _: {"type": "string", "maxLength": 4000, "default": ""},
    "expect": claims,
}


def made() -> str:
    """Return the text of the file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(made(), encoding="utf-8", newline="\n")
