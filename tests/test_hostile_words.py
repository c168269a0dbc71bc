"""Texts of users stay text in every medium: each is read with a parser of its own."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm  # type: ignore[import-untyped]
import pytest
from cmarkgfm.cmark import Options  # type: ignore[import-untyped]

from planner import spec
from planner.cli import main
from planner.report import csv as report_csv
from planner.report.html import markup
from planner.report.markdown import escape
from planner.review import ci_formats
from planner.review.review import Finding, Review
from planner.spec.printable import printable, visible
from planner.spec.problems import Problem
from planner.spec.records import Place
from tests.hostile_words import PLAIN, WORDS

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
# What GitHub links after rendering, in any text: mentions, numbers, commits (seven digits are enough) and emoji.
REFERENCE = re.compile(r"(?<!\w)[@#](?=\w)|\bGH-\d|\b(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b|:[\w+-]+:|https?://|www\.", re.IGNORECASE)
# actions/runner, src/Runner.Common/ActionCommand.cs: the first at the start of a line, after spaces; the second anywhere. Azure's is alike.
COMMAND = re.compile(r"^\s*::|##\[|##vso\[|##teamcity\[", re.MULTILINE)

each_word = pytest.mark.parametrize("word", WORDS, ids=ascii)


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags |= {tag, *(f"{tag}.{name}" for name, _ in attrs)}

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:  # noqa: ARG002 - of the base class
        self.tags.add("!--")


def shown(word: str) -> str:
    """Return a word on one line, with control characters replaced."""
    return CONTROL.sub("\ufffd", " ".join(word.split())).replace("\u200b", "\ufffd").replace("\u00ad", "\ufffd")


@each_word
def test_markdown_shows_a_word_literally_and_links_nothing(word: str) -> None:
    for around in ("{}", "x {} x", "- {}", "| h |\n| --- |\n| {} |", "<b>{}</b>", "# {}"):
        options = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES
        plain, page = (
            Page(cmarkgfm.github_flavored_markdown_to_html(around.format(text), options=options)) for text in ("x", escape(word))
        )
        assert page.tags == plain.tags
        assert shown(word) in page.text.replace("\u200b", "")
        assert not REFERENCE.search(page.text)
        assert not CONTROL.search(escape(word))


@each_word
def test_html_shows_a_word_literally(word: str) -> None:
    page = Page(f'<p title="{markup.text(word)}">{markup.text(word)}</p>')
    assert page.tags == {"p", "p.title"}
    assert page.text == shown(word)


@each_word
def test_a_terminal_and_a_log_show_a_word_on_one_line_without_commands(word: str) -> None:
    for line in (printable(word), printable(f"  {word}"), f"x {printable(word)}"):
        assert not CONTROL.search(line)
        assert not COMMAND.search(line)
    assert len(printable(word)) == len(word)
    if word in PLAIN:
        assert printable(word) == word


@each_word
def test_errors_of_a_spec_have_no_control_characters_or_commands(word: str) -> None:
    text = Problem(Place(word, 1, 1), "value", word, word, word).render()
    assert len(re.split("[\r\n]", text)) == (3 if word.strip() else 1)
    for line in text.split("\n"):
        assert not CONTROL.search(line)
        assert not COMMAND.search(line)


@each_word
def test_a_workflow_command_is_one_line(word: str) -> None:
    finding = Finding(word, "error", word, Place(word, 3, 7), word)
    command, _, end = ci_formats.github(Review(word, (), (finding,))).split("\n")
    assert end == ""
    assert not CONTROL.search(command)
    match = re.fullmatch(r"::error file=([^,:]*),line=3,col=7,title=([^,:]*)::(.*)", command)
    assert match
    assert match[1].replace("%3A", ":").replace("%2C", ",").replace("%25", "%") == visible(word)


@each_word
def test_sarif_and_junit_are_valid(word: str) -> None:
    review = Review(word, (), (Finding(word, "error", word, Place(word, 3, 7), word),))
    (run,) = json.loads(ci_formats.sarif(review))["runs"]
    assert run["results"][0]["ruleId"] == word
    assert len(ET.fromstring(ci_formats.junit(review))[0]) == 1  # noqa: S314 - our own


@each_word
def test_a_spreadsheet_finds_no_formula(word: str) -> None:
    cell = report_csv.safe(word)
    assert not re.match(r"[\s'\"]*[=+\-@＝＋－＠]", cell) or cell.startswith("'")
    assert not re.search(r"[;\t\r\n]\s*[=+\-@＝＋－＠]", cell)
    assert report_csv.original(cell) == word
    text = io.StringIO()
    csv.writer(text).writerow([cell])
    assert next(csv.reader(io.StringIO(text.getvalue(), newline=""))) == [cell]


GPT2 = {"model_type": "gpt2", "vocab_size": 100, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}


def test_the_keys_of_a_configuration_are_only_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, made = tmp_path / "config.json", tmp_path / "made.yaml"
    config.write_text(json.dumps(GPT2 | {f"{word} x": 1 for word in WORDS}), encoding="utf-8")
    assert main(["import", str(config), "-o", str(made), "--name", "made"]) == 0
    out, err = capsys.readouterr()
    for text in (out, err, made.read_text(encoding="utf-8")):
        assert not CONTROL.search(text.replace("\n", ""))
        assert not COMMAND.search(text)
    assert len(err.splitlines()) == 2  # the keys, and the name of the file
    assert spec.load(str(made)).model.d_model == 8


@each_word
def test_an_argument_is_only_text(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "spec.yaml", f"--{word}"]) == 2
    assert main(["show", f"{word}.yaml"]) == 2
    err = capsys.readouterr().err
    assert not CONTROL.search(err.replace("\n", ""))
    assert not COMMAND.search(err)
