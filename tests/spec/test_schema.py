"""The JSON Schema is complete, matches the records, and is applied exactly as by a draft-07 validator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from planner import spec
from planner.spec import records, suggest, validate
from planner.spec.conforms import conforms
from planner.spec.defaults import OF_LAYER, RULES
from planner.spec.key import held, keys, of_the_layer
from planner.spec.language import inlined, leaves, properties
from planner.spec.mixers import RECORDS
from planner.spec.nodes import Source
from planner.spec.records import Model, Positions, Run, Serving, Spec, Training
from planner.spec.yaml12 import parse
from planner.trace.implementations import IMPLEMENTATIONS
from tools.schema import PATH, made

Schema = dict[str, Any]
SCHEMA = spec.schema()
ANNOTATIONS = {"$schema", "title", "description", "default", "examples", "items", "properties"}


def parts(part: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every schema within a schema."""
    yield path, part
    for key, inner in part.get("properties", {}).items():
        yield from parts(inner, f"{path}.{key}")
    if "items" in part:
        yield from parts(part["items"], f"{path}[]")
    for branch in (*part.get("anyOf", ()), *part.get("allOf", ())):
        yield from parts(branch, path)


PARTS = list(parts(inlined()))


def test_the_schema_is_valid_draft_07() -> None:
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    Draft7Validator.check_schema(SCHEMA)


def test_no_object_accepts_unknown_keys() -> None:
    for path, part in PARTS:
        if "properties" in part:
            assert part["additionalProperties"] is False, path
            assert "object" in part["type"], path


def test_every_property_has_a_title_and_a_description_and_integers_have_a_unit() -> None:
    for path, part in PARTS:
        for key, inner in part.get("properties", {}).items():
            where = f"{path}.{key}"
            assert inner["title"], where
            assert inner["description"].endswith("."), where
            assert ("Unit: " in inner["description"]) or inner.get("type") != "integer", where


def test_examples_and_defaults_are_valid() -> None:
    for path, part in PARTS:
        for value in (*part.get("examples", ()), *([part["default"]] if "default" in part else [])):
            assert Draft7Validator(part).is_valid(value), path


def test_sizes_are_positive_and_bounded() -> None:
    for path, part in PARTS:
        if part.get("type") == "integer" and not path.startswith(".expect"):
            from_zero = path.endswith(
                (".offset", ".empty", ".uses", "_bytes", ".segments", ".patches.tokens", ".shared_prefix", ".draft_tokens", "_stage_layers")
            )
            assert part["minimum"] == (0 if from_zero else 1), path
            assert part["maximum"] == 2**53 - 1, path


def test_every_keyword_has_an_error_message() -> None:
    used = (
        {keyword for _, part in PARTS for keyword in part} - ANNOTATIONS - {"allOf", "if", "then"}
    )  # whose errors are those of their parts
    assert used == set(validate._EXPLAIN)  # noqa: SLF001 - the table that must be complete


EVERY_RECORD = [kind for kind in vars(records).values() if isinstance(kind, type) and is_dataclass(kind)]


@pytest.mark.parametrize("kind", EVERY_RECORD)
def test_a_default_derived_from_other_settings_has_a_rule(kind: type[Any]) -> None:
    found = {
        Training: {"sequence_length", "images"},
        Model: {"n_layers", "runs"},
        Positions: {"rotary_dim"},
        Run: {"layers"},
        Spec: {"scenarios"},
        Serving: {"prompt"},
    }.get(kind, set())
    for field, key in keys(kind):
        if key.derived and held(kind, field) and field.default is not None:
            assert field.name in RULES.get(kind, {}) or field.name in found, field.name
    assert RULES.get(kind, {}).keys() <= {field.name for field in fields(kind)}
    assert set(of_the_layer(kind)) <= set(OF_LAYER)


@pytest.mark.parametrize("kind", EVERY_RECORD)
def test_aliases_of_values_point_to_values_of_their_key(kind: type[Any]) -> None:
    for field, key in keys(kind):
        known = set(properties(inlined())["expect"]["properties"]) if field.name == "claims" else values(kind, field.name)
        assert {name for names in key.values for name in names.split()} <= known, field.name


def values(kind: type[Any], name: str) -> set[str]:
    """Return the allowed values of a record's field."""
    if name == "mixer":
        return {*RECORDS, "attention", "none"}
    hint = get_type_hints(kind, {**vars(records), "Node": object})[name]
    alone = [inner for inner in get_args(hint) if get_origin(inner) is Literal] or [hint]  # in a class variable, or beside None
    return set(get_args(alone[0]))


def test_conditions_and_divisors_of_a_key_exist() -> None:
    for path, key in suggest.stated():
        section, group = path.partition(".")[0], path.rpartition(".")[0]
        for condition in filter(None, key.only.split("; ")):
            other, _, said = condition.partition(": ")
            assert set(said.split(" or ")) <= {*leaves()[f"{section}.{other}"].get("enum", ("true", "false"))}, path
        assert all(f"{group}.{other}" in leaves() for other in key.divides.split()), path


def test_an_alias_points_to_one_key() -> None:
    names = [name for _, key in suggest.stated() for name in key.aliases.split()]
    assert len(names) == len(set(names))


def test_every_implementation_is_modeled() -> None:
    assert set(leaves()["training.implementation"]["enum"]) <= set(IMPLEMENTATIONS)


def test_shorthands_match_the_records_they_abbreviate() -> None:
    model = SCHEMA["properties"]["model"]["properties"]
    short, long = model["positions"]["anyOf"]
    assert short["enum"] == long["properties"]["type"]["enum"]
    assert model["positions"]["default"] == long["properties"]["type"]["default"]
    for part in ("attention", "feed_forward"):
        bias = properties(model[part])["bias"]
        assert {inner["default"] for inner in bias["properties"].values()} == {bias["default"]}


def test_the_defaults_are_those_of_the_records(write: Callable[[str], Path], minimal: str) -> None:
    loaded = spec.load(write(minimal))
    (run,) = loaded.model.runs
    (layer,) = run.layers
    base = loaded.scenarios[0].training
    assert layer == records.Layer(
        attention=records.Attention(n_heads=4, n_kv_heads=4, head_dim=12),
        feed_forward=records.FeedForward(d_ff=192, gate_bias=False),  # a plain feed-forward has no gate
    )
    assert loaded.model == records.Model(100, 100, 64, 48, 2, (records.Run(2, (layer,)),))
    assert base == records.Training(batch_size=1, sequence_length=64)
    assert type(base.dropout) is Fraction


def test_layer_groups_and_scenarios_describe_keys_like_model_and_training() -> None:
    model, training = inlined()["properties"]["model"]["properties"], inlined()["properties"]["training"]["properties"]
    run = model["layers"]["items"]["properties"]
    inner = run["layers"]["items"]["properties"]
    scenario = inlined()["properties"]["scenarios"]["items"]["properties"]
    assert {key: part for key, part in run.items() if key not in ("count", "layers")} == inner
    assert {**model, **inner} == model
    assert {key: part for key, part in scenario.items() if key not in ("name", "layout")} == training
    assert set(training) - {"steps", "global_batch_size"} == {field.name for field in fields(records.Training)} - {"layout"}


def test_changing_the_returned_schema_does_not_change_the_next() -> None:
    spec.schema().clear()
    assert spec.schema() == SCHEMA


def test_the_schema_file_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == made(), "run `make docs`"


def test_the_schema_file_is_in_the_package() -> None:
    file = Path(spec.__file__).parent / "schema" / "spec.schema.json"
    assert json.loads(file.read_text(encoding="utf-8")) == SCHEMA


# The reference is a standard validator on the shipped schema: the same documents are valid.
WORDS = sorted({key for _, part in PARTS for key in part.get("properties", {})} | {"d_modle", "hidden_size"})
VALUES = sorted({value for _, part in PARTS for value in part.get("enum", ())} | {"", " x", "a\nb", "bf16-mixed", "x" * 101})
scalars = st.none() | st.booleans() | st.integers(-1, 9) | st.sampled_from([0.5, 1.0, 1e30, 2**53]) | st.sampled_from(VALUES)
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4))


@st.composite
def near_specs(draw: st.DrawFn) -> object:
    """Return a valid spec with a few places changed."""
    document: Any = {
        "name": "x",
        "model": {
            "vocab_size": 9, "context_length": 9, "d_model": 8, "n_layers": 2, "n_heads": 2, "positions": {"type": "rope"},
            "attention": {"bias": {"q": True}}, "norm": {"type": "rmsnorm"}, "layers": [{"count": 2, "layers": [{"d_ff": 3}]}], "head": {},
        },
        "training": {"dropout": 0.5, "steps": 3},
        "scenarios": [{"name": "s", "batch_size": 2}],
        "expect": {"params_total": 1},
    }  # fmt: skip
    if draw(st.booleans()):
        document["model"] = {
            "vocab_size": 9, "context_length": 9, "d_model": 8, "n_heads": 2, "positions": "rope", "mixer": ["latent_attention", "mamba"],
            "latent_attention": {
                "kv_rank": 3, "nope_dim": 2, "rope_dim": 2, "v_dim": 2, "indexer": {"n_heads": 1, "head_dim": 2, "top_k": 2},
            },
            "mamba": {"d_inner": 4}, "experts": {"count": 4, "top_k": 2, "d_ff": 3, "shared": {"d_ff": 3}, "capacity_factor": 1.5},
            "layers": [
                {"count": 2, "experts": "none"},
                {"layers": [{"mixer": "mlstm", "mlstm": {"n_heads": 1, "qk_dim": 2, "v_dim": 2}}, {"mixer": "attention"}]},
                {"mixer": "none", "extra": [{"name": "x", "shape": ["2*d_model", "n_heads*head_dim", 3], "uses": 1}]},
            ],
            "head": {"logit_softcap": 3.0}, "per_layer_embedding": {"vocab_size": 3, "dim": 2}, "prediction": {}, "embedding_dim": 3,
            "extra": [{"name": "y", "shape": ["V"]}],
        }  # fmt: skip
    for _ in range(draw(st.integers(0, 3))):
        part = document
        while True:
            keys = [*part] if isinstance(part, dict) else [*range(len(part))]
            key = draw(st.sampled_from([*keys, draw(st.sampled_from(WORDS))] if isinstance(part, dict) else keys or [0]))
            inner = part.get(key) if isinstance(part, dict) else part[key] if keys else None
            if isinstance(inner, dict | list) and draw(st.integers(0, 3)):
                part = inner
                continue
            if isinstance(part, dict):
                if draw(st.booleans()):
                    part[key] = draw(anything)
                else:
                    part.pop(key, None)
            elif keys:
                part[key] = draw(anything)
            break
    return document


@settings(max_examples=150)
@given(near_specs() | anything)
def test_the_same_documents_are_valid_as_for_a_standard_validator(document: object) -> None:
    text = json.dumps(document)
    node, read = parse(Source("x.yaml", text)) if document is not None else (None, ())
    if node is None:
        return
    assert not read
    _, problems = validate.validate(node)
    assert (not problems) == Draft7Validator(SCHEMA).is_valid(document)
    assert conforms(node.plain(), inlined()) == Draft7Validator(SCHEMA).is_valid(document)
    for problem in problems:
        assert "is not of type" not in problem.message
        assert "is not valid under" not in problem.message
        assert problem.place.file == "x.yaml"


@settings(max_examples=60)
@given(near_specs(), st.booleans())
def test_no_document_similar_to_a_spec_causes_a_traceback(
    write: Callable[..., Path], minimal: str, document: object, extends: bool
) -> None:
    write(minimal.replace("small", "base") + "  positions: {offset: 2}\n  attention: {bias: false}\n", "base.yaml")
    if extends and isinstance(document, dict):
        document = {**document, "extends": "base.yaml"}
    specs, problems = spec.read([write(json.dumps(document))])
    assert bool(specs) != bool(problems)
    spec.render(problems)
