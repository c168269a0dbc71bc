"""YAML is read by the core schema of YAML 1.2 (yaml.org/spec/1.2.2, chapter 10.3), with a location for every value, by both parsers."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.spec.nodes import UNREADABLE, Source
from planner.spec.problems import SpecError
from planner.spec.yaml12 import MAX_DEPTH, parse, parse_value


@pytest.fixture(params=["libyaml", "pure Python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure Python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def plain(text: str) -> object:
    node, problems = parse(Source("x.yaml", text))
    assert not problems
    return node.plain()


def problems(text: str) -> list[str]:
    try:
        _, found = parse(Source("x.yaml", text))
    except SpecError as error:
        found = error.problems
    return [f"{problem.place.line}:{problem.place.column} {problem.code}" for problem in found]


# From examples 10.3 to 10.9 of the specification, and scalars that YAML 1.1 reads differently.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None), ("Null", None), ("NULL", None), ("~", None),
        ("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False), ("FALSE", False),
        ("0", 0), ("0o7", 7), ("0x3A", 58), ("-19", -19), ("+12", 12), ("00", 0), ("010", 10), ("-010", -10), ("0o10", 8), ("0xff", 255),
        ("0.", 0), ("-0.0", 0), (".5", Fraction(1, 2)), ("+12e03", 12000), ("-2E+05", -200000), ("12e-1", Fraction(6, 5)),
        ("300e9", 300_000_000_000), ("1e-4", Fraction(1, 10_000)), ("1E3", 1000), ("1024.0", 1024), ("0.1", Fraction(1, 10)),
        ("123456789012345678e3", 123456789012345678000), ("9007199254740993.0", 9007199254740993),
        (".inf", math.inf), ("-.Inf", -math.inf), ("+.INF", math.inf),
        # text in 1.2, something else in 1.1
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("nO", "nO"), ("tRue", "tRue"), ("nULL", "nULL"),
        ("1_000", "1_000"), ("0b11", "0b11"), ("1:30", "1:30"), ("190:20:30", "190:20:30"), ("2001-12-14", "2001-12-14"),
        ("0O7", "0O7"), ("0X1", "0X1"), ("0o8", "0o8"), ("-0o7", "-0o7"), ("-0x1", "-0x1"), ("1e", "1e"), ("e1", "e1"), (".", "."),
        ("1.2.3", "1.2.3"), ("inf", "inf"), ("nan", "nan"), ("-.nan", "-.nan"), (".iNf", ".iNf"), ("1 000", "1 000"), ("0x", "0x"),
        ("+", "+"), ("=", "="), ("--1", "--1"),
        # quoted scalars are text
        ('"1"', "1"), ("'true'", "true"), ('""', ""), ("'~'", "~"), ('"a\\nb"', "a\nb"), ("'it''s'", "it's"),
    ],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    read = plain(f"key: {text}")
    assert read == {"key": value}
    assert isinstance(read, dict)
    assert type(read["key"]) is type(value)


def test_nan_is_nan() -> None:
    for text in (".nan", ".NaN", ".NAN"):
        value = parse_value(text)
        assert isinstance(value, float)
        assert math.isnan(value)


def test_an_omitted_value_is_null() -> None:
    assert plain("a:\nb: 1\nc: [1, ~]") == {"a": None, "b": 1, "c": [1, None]}


def test_collections_in_block_and_in_flow_style() -> None:
    assert plain("a:\n- 1\n- {b: c, d: [e, 2]}\nf: {}\ng: []\nh: |\n  two\n  lines\n") == {
        "a": [1, {"b": "c", "d": ["e", 2]}],
        "f": {},
        "g": [],
        "h": "two\nlines\n",
    }


def test_json_is_yaml() -> None:
    assert plain('{"a": [1, 2.5, "x", null, true], "b": {"c": 1e+3}}') == {"a": [1, Fraction(5, 2), "x", None, True], "b": {"c": 1000}}


@given(st.decimals(allow_nan=False, allow_infinity=False, places=None).filter(lambda number: abs(number.adjusted()) < 90))
def test_a_number_is_read_exactly(number: Decimal) -> None:
    text = str(number)
    value = parse_value(text)
    if len(text) <= 90:
        assert value == Fraction(number)
    assert isinstance(value, int | Fraction)
    assert isinstance(value, int) == (Fraction(number).denominator == 1)


@given(st.integers())
def test_an_integer_is_read_exactly(number: int) -> None:
    if len(str(number)) <= 100:
        assert parse_value(str(number)) == number


def test_anchors_and_aliases() -> None:
    assert plain("a: &x {b: 1}\nc: *x\nd: [*x, &y 2, *y]") == {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, 2, 2]}
    assert plain("a: &x 1\nb: &x 2\nc: *x") == {"a": 1, "b": 2, "c": 2}


def test_the_location_of_an_alias_is_its_anchor() -> None:
    node, _ = parse(Source("x.yaml", "a: &x 1\nb: *x\n"))
    assert node.items()["b"].mark.place == node.items()["a"].mark.place
    assert node.keys["b"].place.line == 2


def test_core_tags_are_read_and_others_rejected() -> None:
    assert plain('a: !!str 010\nb: !!int "010"\nc: !!float 3\nd: ! 5\ne: !!map {f: !!seq [1]}\ng: !!null ~\nh: !!bool true') == {
        "a": "010", "b": 10, "c": 3, "d": "5", "e": {"f": [1]}, "g": None, "h": True,
    }  # fmt: skip
    assert problems("a: !!int x\nb: !!bool 1\nc: !!int true") == ["1:4 tag", "2:4 tag", "3:4 tag"]
    assert problems("a: !!python/object:os.system {}\nb: !!python/name:os.system\nc: !mine 1\nd: !!set {e}\nf: !<tag:x> 1") == [
        "1:4 tag", "2:4 tag", "3:4 tag", "4:4 tag", "5:4 tag",
    ]  # fmt: skip


def test_every_value_has_a_location() -> None:
    text = "name: x\nmodel:\n  d_model: 3 # comment\n  head: {tied: true,\n    bias: 'no'}\nlist:\n- 1\n-   - 2\n"
    node, _ = parse(Source("x.yaml", text))
    places = {path: (inner.mark.place.line, inner.mark.place.column) for path, inner in node.walk()}
    assert places == {
        (): (1, 1),
        ("name",): (1, 7),
        ("model",): (3, 3),
        ("model", "d_model"): (3, 12),
        ("model", "head"): (4, 9),
        ("model", "head", "tied"): (4, 16),
        ("model", "head", "bias"): (5, 11),
        ("list",): (7, 1),
        ("list", 0): (7, 3),
        ("list", 1): (8, 5),
        ("list", 1, 0): (8, 7),
    }
    assert node.keys["model"].place.line == 2


def test_columns_count_characters() -> None:
    node, _ = parse(Source("x.yaml", "{é日😀: 1, b: 2}"))
    assert node.items()["b"].mark.place.column == 13


def test_a_duplicate_key_names_both_lines_and_the_first_is_kept() -> None:
    node, found = parse(Source("x.yaml", "a: 1\nb: {c: 1, c: 2}\na: 3\n'a': 4"))
    assert [problem.message for problem in found] == [
        "duplicate key 'c' (first used on line 2)",
        "duplicate key 'a' (first used on line 1)",
        "duplicate key 'a' (first used on line 1)",
    ]
    assert node.plain() == {"a": 1, "b": {"c": 1}}


def test_keys_that_are_not_text() -> None:
    assert problems("1: a\ntrue: b\n~: c\n[d]: e\n{f: g}: h\n? - i\n: j\nok: 1\n1.5: k") == [
        "1:1 key-type", "2:1 key-type", "3:1 key-type", "4:1 key-type", "5:1 key-type", "6:3 key-type", "9:1 key-type",
    ]  # fmt: skip
    assert plain("no: 1\non: 2\n'1': 3") == {"no": 1, "on": 2, "1": 3}


def test_after_an_unknown_alias_the_rest_is_read() -> None:
    node, found = parse(Source("x.yaml", "a: *nope\nb: 1"))
    assert [problem.code for problem in found] == ["alias"]
    assert node.items()["a"].value is UNREADABLE
    assert node.items()["b"].value == 1


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "---\n...\n", "%YAML 1.2\n---\n"])
def test_an_empty_document(text: str) -> None:
    assert problems(text) == ["1:1 empty"]


def test_only_one_document() -> None:
    assert problems("---\na: 1\n---\nb: 2") == ["3:1 documents"]
    assert plain("---\na: 1\n...\n") == {"a": 1}
    assert plain("%YAML 1.2\n---\na: 1\n") == {"a": 1}


def test_nesting_up_to_the_limit() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert plain(deep)
    assert problems(f"[{deep}]") == [f"1:{MAX_DEPTH + 1} too-deep"]


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("a:\n\tb: 1\n", "2:1", "a tab cannot indent"),
        ("a: b: c", "1:5", "a 'key: value' inside another value"),
        ('a: "b\nc: 1\n', "1:4", "the quotes opened here are not closed"),
        ("a: 'b\nc: 1\n", "1:4", "the quotes opened here are not closed"),
        ("a: @b", "1:4", "this character cannot start a value"),
        ("a: 1\n  b: 2\n", "2:4", "a 'key: value' inside another value"),
        ("a:\n  b: 1\n c: 2\n", "3:2", "inconsistent indentation"),
        ("a: [1, 2\nb: 3\n", "2:2", "a list or mapping in brackets is not closed"),
        ("a: {b: 1\nc: 3\n", "2:2", "a list or mapping in brackets is not closed"),
        ("a: [1, 2", "1:9", "a list or mapping in brackets is not closed"),
        ("a: 1\nb\n", "3:1", "a key without ':'"),
        ("a: 1\x07", "1:5", "the character U+0007 is not allowed"),
        ("a: 1\nb: \x00", "2:4", "the character U+0000 is not allowed"),
        ("a: b\u2028c", "1:5", "the character U+2028 is not allowed"),
        ("a: b\ud800c", "1:5", "the character U+D800 is not allowed"),
    ],
)
def test_text_that_is_not_yaml_gets_a_plain_error(text: str, where: str, message: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse(Source("x.yaml", text))
    (problem,) = raised.value.problems
    assert problem.message == message
    assert f"{problem.place.line}:{problem.place.column}" == where
