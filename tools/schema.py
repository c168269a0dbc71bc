"""Write the JSON Schema of a spec from the fields of its records: `make docs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal, assert_never, get_args, get_origin, get_type_hints

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from planner.report.columns import CLAIMABLE  # noqa: E402
from planner.spec import records  # noqa: E402
from planner.spec.key import Key, keys, needed  # noqa: E402
from planner.spec.language import properties  # noqa: E402
from planner.spec.mixers import RECORDS  # noqa: E402
from planner.spec.records import Extra, Layer, Model, Run, Scenario, Spec, Training, Waiver  # noqa: E402

PATH = ROOT / "planner" / "spec" / "schema" / "spec.schema.json"
DIMENSIONS = 8  # of a tensor; more could make a number of elements that a report cannot show
SCENARIOS = 500  # each is a plan; planner sweep is for more
LARGEST = 2**53 - 1  # the largest integer that is exact in every JSON reader
ONE_LINE = {
    "pattern": "^(\\S([\\s\\S]*\\S)?)?$",
    "not": {"type": "string", "pattern": "[\\u0000-\\u001f\\u007f-\\u009f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"},
}
NONE = {"type": "string", "enum": ["none"]}
SIZE = {"type": ["integer", "string"], "minimum": 1, "maximum": LARGEST, "minLength": 1, "maxLength": 100}

Schema = dict[str, Any]


def schema() -> Schema:
    """Return the schema of a whole spec."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "modelplan spec",
        "description": "One decoder-only transformer language model and how it is trained. Sizes are counts, never bytes.",
        **mapping(Spec),
        "definitions": {"one_line": ONE_LINE},
    }


def mapping(kind: type[Any], above: str = "", *, whole: bool = True) -> Schema:
    """Return the schema of a mapping with the keys of a record; not ``whole`` if settings of a layer can add to it."""
    required = {"required": list(needed(kind))} if whole and needed(kind) else {}
    return {"type": "object", "additionalProperties": False, **required, "properties": of_record(kind, above, whole=whole)}


def of_record(kind: type[Any], above: str, *, whole: bool = True) -> Schema:
    """Return the schemas of a record's keys; a path leads into the groups before it."""
    hints = get_type_hints(kind, {**vars(records), **vars(sys.modules[kind.__module__]), "Node": object})
    found: Schema = {}
    for one, stated in keys(kind):
        path = stated.path or one.name
        *groups, name = path.split(".")
        home = found
        for step in groups:
            home = properties(home[step])
        lacking = () if whole else needed(stated.kind) if stated.kind else needed(kind, path)
        home[name] = of_key(above + path, stated, hints[one.name], lacking, whole=whole)
    return found


def of_key(path: str, stated: Key, hint: Any, lacking: Sequence[str], *, whole: bool) -> Schema:  # noqa: ANN401 - any annotation
    """Return the schema of one key."""
    own = OF_THEIR_OWN[path](stated) if path in OF_THEIR_OWN else in_its_form(path, stated, hint, whole=whole)
    return {"title": path, "description": description(stated, lacking), **own}


def in_its_form(path: str, stated: Key, hint: Any, *, whole: bool) -> Schema:  # noqa: ANN401
    """Return the schema of a value, or of a group in one of its forms."""
    default = {} if stated.default is None else {"default": number(stated.default)}
    if stated.form == "value":
        return {**default, "anyOf": [NONE, value(stated, hint)]} if stated.none else value(stated, hint, default)
    group = mapping(stated.kind or object, f"{path}.", whole=whole)
    match stated.form:
        case "mapping":
            return of_model(group) if stated.kind is Model else group
        case "none":
            return {"anyOf": [NONE, group]}
        case "type":
            return {**default, "anyOf": [{key: group["properties"]["type"][key] for key in ("type", "enum")}, group]}
        case "boolean":
            return {**group, "type": ["boolean", "object"], **default}
        case _ as never:
            assert_never(never)


def number(default: Any) -> Any:  # noqa: ANN401 - a value of any type
    """Return a default as JSON has it: a fraction as a number."""
    if not isinstance(default, Fraction):
        return default
    return int(default) if default.denominator == 1 else float(default)


def value(stated: Key, hint: Any, default: Mapping[str, Any] | None = None) -> Schema:  # noqa: ANN401
    """Return the schema of one scalar."""
    examples: Schema = {} if stated.example is None else {"examples": [stated.example]}
    if get_origin(hint) is ClassVar:
        (hint,) = get_args(hint)
    (one,) = {each for each in (get_args(hint) if get_origin(hint) not in (None, Literal) else [hint]) if each is not type(None)}
    if get_origin(one) is Literal:
        return {"type": "string", "enum": list(get_args(one)), **(default or {})}
    if one is bool:
        return {"type": "boolean", **(default or {})}
    if one is str:
        return {**text(stated.longest), **(default or {}), **examples}
    bounds = {"exclusiveMinimum": stated.above} if stated.above is not None else {"minimum": 1 if stated.least is None else stated.least}
    if one is int:
        return {"type": "integer", **bounds, "maximum": LARGEST, **(default or {}), **examples}
    below = {} if stated.below is None else {"exclusiveMaximum": stated.below}
    return {"type": "number", **bounds, **below, **(default or {}), **examples}


def description(stated: Key, lacking: Sequence[str]) -> str:
    """Return a key's description: everything in its field except type, bounds and a constant default."""
    parts = (
        stated.meaning or " ".join((stated.kind.__doc__ or "").split()),
        f"Unit: {stated.unit}." if stated.unit else "",
        f"Divides {stated.divides.replace(' ', ' and ')}." if stated.divides else "",
        f"Only with {stated.only.replace('; ', ' and ')}." if stated.only else "",
        f"Default: {stated.derived}." if stated.derived else "",
        f"none: {stated.none}." if stated.none else "",
        f"Needs {', '.join(lacking[:-1])}{' and ' if lacking[1:] else ''}{lacking[-1]}." if lacking else "",
    )
    return " ".join(filter(None, parts))


def of_model(whole: Schema) -> Schema:
    """Return the model's schema with the keys of its layers and the conditions between keys."""
    ordered: Schema = {}
    for key, part in whole["properties"].items():
        ordered |= of_record(Layer, "model.", whole=False) if key == "layers" else {}
        ordered[key] = part
    return {
        **whole,
        "allOf": [
            {
                "if": {"not": {"required": ["patches"]}},
                "then": {"required": ["vocab_size", "context_length"], "properties": referred("model", ["vocab_size", "context_length"])},
            }
        ],
        "if": {"not": {"anyOf": [{"required": ["mixer"]}, {"required": ["layers"]}]}},
        "then": {"required": ["n_heads"], "properties": referred("model", ["n_heads"])},
        "anyOf": [{"required": ["n_layers"]}, {"required": ["layers"]}],
        "properties": ordered,
    }


def text(longest: int) -> Schema:
    """Return the schema of a text on one line."""
    return {"type": "string", "minLength": 1, "maxLength": longest, "allOf": [{"$ref": "#/definitions/one_line"}]}


def referred(section: str, names: Iterable[str]) -> Schema:
    """Return references to the properties of a section."""
    return {name: {"$ref": f"#/properties/{section}/properties/{name}"} for name in names}


def listed(items: Schema, example: object = None, least: int = 1, most: int = 0) -> Schema:
    """Return the schema of a list."""
    bounds = ({"minItems": least} if least else {}) | ({"maxItems": most} if most else {})
    return {"type": "array", **bounds, "items": items, **({"examples": [example]} if example else {})}


def runs(stated: Key) -> Schema:
    """Return the schema of layer groups, which have the keys of the model."""
    run = mapping(Run, "model.layers.")
    run["properties"] |= referred("model", [*of_record(Layer, ""), "extra"])
    return listed(run, stated.example)


def layers(_: Key) -> Schema:
    """Return the schema of the layers of a layer group."""
    return listed({**mapping(object), "properties": referred("model", [*of_record(Layer, ""), "extra"])})


def scenarios(stated: Key) -> Schema:
    """Return the schema of scenarios, which have the keys of training."""
    scenario = mapping(Scenario, "scenarios.")
    scenario["properties"] |= referred("training", of_record(Training, "training."))
    scenario["properties"]["layout"] = {"$ref": "#/properties/layout"}
    return listed(scenario, stated.example, least=0, most=SCENARIOS)


def mixers(stated: Key) -> Schema:
    """Return the schema of one mixer name or several."""
    names = ["attention", *RECORDS]
    several = listed({"type": "string", "enum": names}, ["attention", "mamba2"])
    return {"default": stated.default, "anyOf": [{"type": "string", "enum": [*names, "none"]}, several]}


def words(stated: Key) -> Schema:
    """Return the schema of a word or several."""
    default = {"default": stated.default[0]} if stated.default else {}
    return {**default, "anyOf": [text(100), listed(text(100), stated.example)]}


def device(stated: Key) -> Schema:
    """Return the schema of a device: its name, or a mapping with its memory."""
    memory = {"title": "cluster.device.memory", "description": "Memory of one device, with a unit.", **text(100), "examples": ["80GiB"]}
    other = {**mapping(object), "required": ["memory"], "properties": {"memory": memory}}
    return {"anyOf": [{**text(stated.longest), "examples": [stated.example]}, other]}


def claims(_: Key) -> Schema:
    """Return the schema of the columns allowed under expect."""
    of_column = {
        column.name: {
            "title": f"expect.{column.name}",
            "description": f"{column.description[0].upper()}{column.description[1:]}. Unit: {column.unit}.",
            "type": "integer",
            "minimum": 0,
        }
        for column in CLAIMABLE.values()
    }
    return {**mapping(object), "properties": of_column}


OF_THEIR_OWN: Mapping[str, Callable[[Key], Schema]] = {
    "description": lambda _: {"type": "string", "maxLength": 4000, "default": ""},
    "source": lambda stated: {**text(1000), "type": ["string", "array"], "items": text(1000), "examples": [stated.example]},
    "tags": lambda stated: listed(text(100), stated.example),
    "omits": lambda stated: listed(text(1000), stated.example),
    "model.mixer": mixers,
    "model.layers": runs,
    "model.layers.layers": layers,
    "model.extra": lambda stated: listed(mapping(Extra, "model.extra."), stated.example),
    "model.extra.shape": lambda stated: listed(SIZE, stated.example, most=DIMENSIONS),
    "cluster.device": device,
    "training.train": words,
    "training.also_train": words,
    "training.adapters.targets": words,
    "training.adapters.layers": words,
    "training.adapters.feedforward": words,
    "scenarios": scenarios,
    "waivers": lambda stated: listed(mapping(Waiver, "waivers."), stated.example),
    "waivers.until": lambda stated: {"type": "string", "minLength": 1, "maxLength": 100, "examples": [stated.example]},
    "expect": claims,
}


def made() -> str:
    """Return the text of the schema file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(made(), encoding="utf-8", newline="\n")
