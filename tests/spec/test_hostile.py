"""Files that are not specs at all get a clear error, with bounded work and memory."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import spec
from planner.capacity import plan
from planner.spec import loading
from planner.spec.source import LIMIT
from tests.work import at_most

Write = Callable[..., Path]

GOOD = "name: x\nmodel: {vocab_size: 1, context_length: 1, d_model: 1, n_layers: 1, n_heads: 1}\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 30)
)
CALLS = 20 * LIMIT  # of functions: the longest file that is read makes 7 for each byte, an attack would make far more


@pytest.fixture(params=["libyaml", "pure Python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure Python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def first(data: bytes, write: Write) -> str:
    path = write(data)
    with at_most(CALLS):
        specs, problems = spec.read([path])
    assert specs == ()
    assert len(problems) <= loading.MAX_PROBLEMS + 1
    head = spec.render(problems).splitlines()[0]
    assert len(spec.render(problems[:1])) < 1000
    return head


@pytest.mark.parametrize(
    ("data", "rendered"),
    [
        (b"[" * 10_000_000, "x.yaml: error[too-large]: exceeds the limit of 1 MiB"),
        (b" " * (LIMIT + 1), "x.yaml: error[too-large]: exceeds the limit of 1 MiB"),
        (b"{a: " * (LIMIT // 4), "x.yaml:1:129: error[too-deep]: more than 32 levels of nesting"),
        (b"- " * (LIMIT // 2), "x.yaml:1:65: error[too-deep]: more than 32 levels of nesting"),
        (b"? " * (LIMIT // 2), "x.yaml:1:65: error[too-deep]: more than 32 levels of nesting"),
        (BOMB.encode(), "x.yaml:5:5: error[too-many-values]: more than 50,000 values, aliases written out"),
        (b"- 1\n" * (LIMIT // 4), "x.yaml:1:1: error[too-many-values]: more than 50,000 values, aliases written out"),
        (b"a: &a [*a]\n", "x.yaml:1:8: error[alias]: '*a' refers to itself"),
        (b"&a {b: {c: *a}}\n", "x.yaml:1:12: error[alias]: '*a' refers to itself"),
        (b"? &a {b: *a}\n: 1\n", "x.yaml:1:10: error[alias]: '*a' refers to itself"),
        (GOOD.encode("utf-16"), "x.yaml: error[encoding]: is UTF-16 or UTF-32; save it as UTF-8"),
        (GOOD.encode("utf-16-le"), "x.yaml: error[encoding]: is UTF-16 or UTF-32; save it as UTF-8"),
        (GOOD.encode("utf-16-be"), "x.yaml: error[encoding]: is UTF-16 or UTF-32; save it as UTF-8"),
        (GOOD.encode("utf-32"), "x.yaml: error[encoding]: is UTF-16 or UTF-32; save it as UTF-8"),
        ("name: é\n".encode("latin-1"), "x.yaml:1:7: error[encoding]: the byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00", ("x.yaml:1:1: error[character]: the character U+007F is not allowed; "
                                     "remove it, or write it as an escape in double quotes")),
        (b"\x1f\x8b\x08\x00", "x.yaml:1:2: error[encoding]: the byte 0x8b is not UTF-8; save the file as UTF-8"),
        (b"name: x\nfoo: \x00\n", ("x.yaml:2:6: error[character]: the character U+0000 is not allowed; "
                                  "remove it, or write it as an escape in double quotes")),
        (b"", "x.yaml:1:1: error[empty]: the file is empty; write at least name and model"),
        (b"\xef\xbb\xbf", "x.yaml:1:1: error[empty]: the file is empty; write at least name and model"),
        (b"- name: x\n", "x.yaml:1:1: error[type]: a spec must be a mapping, not a list; start with name: and model:"),
        (b"hello\n", "x.yaml:1:1: error[type]: a spec must be a mapping, not the text 'hello'; start with name: and model:"),
        (b"null\n", "x.yaml:1:1: error[type]: a spec must be a mapping, not empty; start with name: and model:"),
        (b"name: x\n---\nname: y\n", ("x.yaml:2:1: error[documents]: a second document starts here; "
                                     "one file is one spec: move it to a file of its own")),
    ],
)  # fmt: skip
def test_a_hostile_file_is_rejected_with_little_work(write: Write, data: bytes, rendered: str) -> None:
    assert first(data, write) == rendered


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        ("9" * 5000, "error[number]: a number of 5,000 characters; numbers have at most 100 digits"),
        ("1e999999999", "error[number]: the number '1e999999999' is out of bounds; numbers have at most 100 digits"),
        ("1e-999999999", "error[number]: the number '1e-999999999' is out of bounds; numbers have at most 100 digits"),
        ("0x" + "f" * 5000, "error[number]: a number of 5,002 characters; numbers have at most 100 digits"),
        ("1e100", "error[range]: model.vocab_size must be at most 9,007,199,254,740,991, not 1e100"),
        ("!!python/object/apply:os.system [ls]", ("error[tag]: the YAML tag '!!python/object/apply:os.system' is not supported; "
                                                 "remove the tag")),
        ("!!python/name:os.system", ("error[tag]: the YAML tag '!!python/name:os.system' is not supported; "
                                    "remove the tag")),
        ("!include /etc/passwd", "error[tag]: the YAML tag '!include' is not supported; remove the tag"),
        ("*nowhere", "error[alias]: undefined YAML anchor '&nowhere'"),
    ],
)  # fmt: skip
def test_a_hostile_value(write: Write, value: str, rendered: str) -> None:
    data = f"model:\n  vocab_size: {value}\n  context_length: 1\n  d_model: 1\n  n_layers: 1\n  n_heads: 1\nname: x\n"
    assert first(data.encode(), write) == f"x.yaml:2:15: {rendered}"


SMALL = "name: x\nmodel:\n  {{vocab_size: 100, context_length: 8, d_model: 4, n_heads: 1, {}}}\n"


@pytest.mark.parametrize(
    ("keys", "rendered"),
    [
        (f"layers: [{', '.join(f'{{d_ff: {width}}}' for width in range(1, 2_001))}]",
         ("error[too-many-layers]: layers lists 2,000 layers, not counting equal ones in a row; at most 512 can be planned; "
          "write layers that repeat as a group with a count")),
        (f"layers: [{{layers: [{', '.join(['{}', '{d_ff: 8}'] * 300)}]}}]",
         ("error[too-many-layers]: layers lists 600 layers, not counting equal ones in a row; at most 512 can be planned; "
          "write layers that repeat as a group with a count")),
        (f"layers: [{', '.join(['{}', '{d_ff: 8}'] * 200)}]}}\nscenarios: [{', '.join(f'{{name: s{one}}}' for one in range(20))}",
         ("error[too-many-layers]: 400 listed layers in 21 scenarios are more than 4,096 together; "
          "write layers that repeat as a group with a count")),
        (f"n_layers: 1}}\nscenarios: [{', '.join(f'{{name: s{one}}}' for one in range(501))}",
         "error[too-many-items]: scenarios must have at most 500 items; remove some of them"),
        (f"n_layers: 1, extra: [{{name: a, shape: [{', '.join(['9007199254740991'] * 300)}]}}]",
         "error[too-many-items]: model.extra[0].shape must have at most 8 items; remove some of them"),
        ("n_layers: 1, extra: [{name: a, shape: [V*V*V*V*V*V*V*V]}]",
         "error[shape]: 'V*V*V*V*V*V*V*V' is 1.0e+16, and the largest size 2^53 - 1; correct the product"),
    ],
    ids=["layers", "in a group", "with scenarios", "scenarios", "dimensions", "product"],
)  # fmt: skip
def test_a_spec_that_would_take_long_or_overflow_is_rejected(write: Write, keys: str, rendered: str) -> None:
    text = SMALL.format(keys).replace("}]}}", "}]}") if "scenarios" not in keys else SMALL.format(keys).removesuffix("}\n") + "]\n"
    assert first(text.encode(), write).partition(": ")[2] == rendered


# V·d + L·d + N·(12·d² + 13·d) + 2·d: the layers of GPT-2, with d = 4
def test_equal_layers_in_a_row_are_planned_as_one_group(write: Write) -> None:
    path = write(SMALL.format(f"layers: [{', '.join(['{}'] * 2_000)}]").encode())
    with at_most(CALLS):
        (listed,), problems = spec.read([path])
        assert not problems
        assert plan(listed, listed.scenarios[0]).parameters.total == 100 * 4 + 8 * 4 + 2_000 * (12 * 16 + 13 * 4) + 2 * 4
    assert [(run.count, len(run.layers)) for run in listed.model.runs] == [(2_000, 1)]


def test_nesting_up_to_the_size_limit(write: Write) -> None:
    assert "more than 32 levels of nesting" in first(b"[" * LIMIT, write)
    assert "more than 32 levels of nesting" in first(b"".join(b" " * level + b"a:\n" for level in range(1000)), write)


def test_reading_stops_at_the_size_limit(write: Write) -> None:
    path = write(b"")
    os.truncate(path, 2**40)  # a file of holes
    _, (problem,) = spec.read([path])
    assert problem.code == "too-large"


def test_a_device_is_not_read() -> None:
    _, (problem,) = spec.read(["/dev/zero"])
    assert (problem.code, problem.message) == ("unreadable", "is not a regular file")


def test_memory_stays_bounded(write: Write) -> None:
    files = [write(data, f"{number}.yaml") for number, data in enumerate([BOMB.encode(), b"[" * LIMIT])]
    tracemalloc.start()
    with at_most(CALLS):
        spec.read(files)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * 2**20


MANY = 5_000  # whose square is more than CALLS


@pytest.mark.parametrize(
    "text",
    [
        *(GOOD.replace("n_layers: 1", f"layers: [{', '.join([item] * MANY)}]") for item in ("{d_fff: 1}", "{n_heads: x}", "{count: 0}")),
        "name: x\nmodel:\n" + "".join(f"  n_lay{number}: 1\n" for number in range(MANY)),
        "".join(f"nam{number}: 1\n" for number in range(MANY)),
        "a: 1\n" * MANY,
    ],
    ids=lambda text: text[-20:],
)
def test_very_many_errors(write: Write, text: str) -> None:
    write(text)
    with at_most(CALLS):
        _, problems = spec.read(["x.yaml"])
    assert len(problems) == loading.MAX_PROBLEMS + 1
    assert problems[-1].render() == "x.yaml: error[too-many]: has more than 100 problems; the others are not shown"


def test_a_byte_order_mark_and_windows_line_endings_are_accepted(write: Write) -> None:
    text = GOOD.replace("d_model", "d_modle").replace("\n", "\r\n")
    assert first(b"\xef\xbb\xbf" + text.encode(), write).startswith("x.yaml:2:43: error[unknown-key]: unknown key 'd_modle'")
    assert spec.load(write(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())).name == "x"


def test_files_that_cannot_be_opened(write: Write, folder: Path) -> None:
    (folder / "folder.yaml").mkdir()
    (folder / "loop.yaml").symlink_to("loop.yaml")
    write(GOOD)
    for path, rendered in (
        ("missing.yaml", "missing.yaml: error[not-found]: no such file or directory"),
        ("folder.yaml", "folder.yaml: error[folder]: is a folder, not a spec file; name a file in it"),
        ("loop.yaml", "loop.yaml: error[unreadable]: cannot be read: Too many levels of symbolic links"),
        ("x.yaml/y.yaml", "x.yaml/y.yaml: error[unreadable]: cannot be read: Not a directory"),
        ("n" * 300, f"{'n' * 300}: error[unreadable]: cannot be read: File name too long"),
        ("a\0b", "a\ufffdb: error[unreadable]: cannot be read: embedded null byte"),
    ):
        with pytest.raises(spec.SpecError) as raised:
            spec.load(path)
        assert str(raised.value) == rendered


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert spec.read(["-"])[1][0].render() == "<stdin>: error[unreadable]: cannot be read: it is closed"


def test_a_file_without_permission(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(GOOD)
    monkeypatch.setattr(Path, "open", refuse)
    assert spec.read([path])[1][0].render() == "x.yaml: error[unreadable]: cannot be read: Permission denied"


ANY = st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
SPLICES = st.lists(
    st.tuples(st.integers(0, len(GOOD)), st.sampled_from([*":{}[],&*!|>\"'%@`#-? \n\t~", "<<", "*a", "&a ", "- ", ": "])), max_size=4
)


@settings(max_examples=200)
@given(ANY, SPLICES)
def test_no_input_causes_a_traceback(write: Write, data: bytes, splices: list[tuple[int, str]]) -> None:
    text = GOOD
    for at, piece in splices:
        text = text[:at] + piece + text[at:]
    for candidate in (data, text.encode(), text.encode() + data):
        specs, problems = spec.read([write(candidate)])
        assert bool(specs) != bool(problems)
        spec.render(problems).encode()
