from __future__ import annotations

import io
from dataclasses import replace

import pytest

from planner.capacity.figures import Plan
from planner.report.overview import text as overview
from planner.report.terminal import Style, shorten, style, table
from planner.spec.printable import printable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_overview_has_a_row_per_plan_and_fits_80_columns(plan: Plan) -> None:
    lines = overview([plan, replace(plan, name="gpt2-small-no-qkv-bias-untied"), replace(plan, scenario="long")]).splitlines()
    assert lines[0] == "model                           params  model states  activations       peak  train/token"
    assert lines[1] == "tiny                           1.028 k     16.06 KiB    1.918 KiB  24.09 KiB  6.168 kFLOP"
    assert lines[3].startswith("tiny · long")
    assert max(map(len, overview([plan], width=80).splitlines())) <= 80


def test_on_a_narrow_terminal_names_are_shortened_and_numbers_never(plan: Plan) -> None:
    plans = [plan, replace(plan, name="a-model-with-a-name-that-is-rather-long")]
    lines = overview(plans, width=80).splitlines()
    assert max(map(len, lines)) == 80
    assert lines[2].startswith("a-model-wi…ther-long  ")
    for width in (80, 40, 1):
        for line in overview(plans, width=width).splitlines()[1:3]:
            assert line.endswith("1.028 k     16.06 KiB    1.918 KiB  24.09 KiB  6.168 kFLOP")


def test_names_are_never_shortened_to_equality() -> None:
    names = ["model-of-a-ten-million", "model-of-b-ten-million", "model-of-a-two-billion"]
    assert list(table(("name", "n"), "lr", [(name, str(number)) for number, name in enumerate(names)], width=20)) == [
        "name               n",
        "model-of-a-ten-mi  0",
        "llion",
        "model-of-b-ten-mi  1",
        "llion",
        "model-of…-billion  2",
    ]
    assert shorten(["模型" * 5, "模型" * 4, "模型"], 12) == ["模型模型模型\n模型模型", "模型模型模型\n模型", "模型"]


def test_columns_line_up_under_wide_and_combining_characters() -> None:
    assert list(table(("name", "n"), "lr", [("模型", "1"), ("e\u0301", "22")])) == ["name   n", "模型   1", "e\u0301     22"]


def test_without_headings_there_is_no_line_for_them() -> None:
    assert list(table(("", ""), "lr", [("a", "1")])) == ["a  1"]


def test_text_cannot_send_control_characters_to_the_terminal() -> None:
    assert printable("a\x1b[2Jb\nc\u202ed\x9be") == "a\ufffd[2Jb c\ufffdd\ufffde"
    assert printable("模型 👩‍🔬") == "模型 👩‍🔬"


@pytest.mark.parametrize(
    ("environment", "color"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_terminals_get_color_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], color: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert style(Terminal()) == Style(color)
    assert style(io.StringIO()) == Style(False)


def test_color_is_only_in_the_headings(plan: Plan) -> None:
    colored = overview([plan], Style(True))
    assert colored.startswith("\x1b[1mmodel")
    assert colored.replace("\x1b[1m", "").replace("\x1b[0m", "") == overview([plan])
