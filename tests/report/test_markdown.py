from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from planner.report import markdown
from planner.report.breakdown import byte_sum
from planner.report.planned import Planned
from planner.spec.records import Scenario

EVIL = "| x | `a` <b>&amp; *c* _d_ [e](javascript:f) ![g](h) @octocat #712 $x^2$ ~~i~~ \\j\n# k\n\n</details>\n<script>"


def rendered(text: str) -> str:
    markdown_it = MarkdownIt("gfm-like", {"linkify": False})
    result: str = markdown_it.render(text)
    return result


def visible(text: str) -> str:
    """Return the visible text, without zero-width spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", rendered(text))).replace("\u200b", "").split())


def test_the_table_of_models_has_a_row_in_human_units(planned: Planned) -> None:
    row = next(line for line in markdown.report([planned]).splitlines() if line.startswith("| tiny |"))
    assert row == (
        "| tiny | base | 1.028 k | 2 × 8 | 16.06 KiB | 1.918 KiB | 24.09 KiB | 6.168 kFLOP | 616.8 ZFLOP "
        "| fp32 | adamw | none | pytorch | matmul |"
    )


def test_the_breakdown_shows_sums_shares_operators_and_conventions(planned: Planned) -> None:
    lines = markdown.report([planned]).splitlines()
    for line in (
        "| embedding | 416 | 40.5 % |",  # 416 / 1028
        "- 16 are padding: the vocabulary of 100 is padded to 104.",
        "| **total** | **4 + 4 + 8 = 16** | **16,448** | **16.06 KiB** |  |",
        "| logits | 832 | 832 B | 42.4 % |",  # 832 / 1964
        "| optimizer | 24,672 | 24.09 KiB | adamw |",
        "| matmul (chosen) | 2,056 | 6,168 | 98.69 kFLOP | 616.8 ZFLOP |",
        "| 6nd | 2,056 | 6,168 | 98.69 kFLOP | 616.8 ZFLOP |",
        "| initial loss | 4.605 | ln V for V = 100, in nats |",
        "| n_kv_heads | 2 | default |",
        "| n_heads | 2 |  |",
        "| dropout | 0.1 |  |",
        "- Source: <https://example.org/tiny>",
        "- Source: a note on paper",
        "- the CUDA context",
    ):
        assert line in lines


def test_bytes_per_parameter_that_differ_between_tensors_have_no_sum(planned: Planned) -> None:
    states = planned.plans[0].memory.states
    assert byte_sum(states) == "4 + 4 + 8 = 16"
    assert byte_sum([*states[:3], replace(states[3], bytes_per_param=None)]) == "4 + 4 + varies"
    assert byte_sum(states[:2]) == "4"


def test_a_scenario_lists_its_changes(planned: Planned) -> None:
    base = planned.plans[0]
    long = replace(base, scenario="long", training=replace(base.training, sequence_length=4))
    report = markdown.report([Planned(planned.spec, (base, long))])
    assert "#### Training: changes from base\n\n| setting | value |  |\n| --- | --- | --- |\n| sequence_length | 4 |  |\n\n" in report


def test_text_of_a_spec_is_shown_literally(planned: Planned) -> None:
    spec = replace(planned.spec, name=EVIL, description=EVIL, sources=(EVIL, "https://a.b/ <i>"), path=EVIL)
    spec = replace(spec, scenarios=(Scenario(EVIL, planned.plans[0].training),))
    plan = replace(planned.plans[0], name=EVIL, scenario=EVIL, spec_path=EVIL)
    plain, evil = (rendered(markdown.report([model])) for model in (planned, Planned(spec, (plan,))))
    counts = [Counter(re.findall(r"</?[a-z0-9]+", text)) for text in (plain, evil)]
    assert counts[0] - counts[1] == {"<a": 1, "</a": 1}  # the source in the plain report is a link
    assert not counts[1] - counts[0]
    assert "@octocat" not in evil
    assert "#712" not in evil
    assert visible(f"x {markdown.escape(EVIL)}") == f"x {' '.join(EVIL.split())}"


@given(st.text(alphabet="ab1 .)(&;<>|`*_~[]!#@$\\-+=:\n\t\"'é模"))
def test_escaped_text_renders_as_the_original(text: str) -> None:
    escaped = markdown.escape(text)
    assert "\n" not in escaped
    assert visible(f"- {escaped}") == " ".join(text.split())
    assert visible(f"| h |\n| --- |\n| {escaped} |") == " ".join(f"h {text}".split())
    assert re.findall(r"<[^>]*>", rendered(f"x {escaped}")) == ["<p>", "</p>"]


@pytest.mark.parametrize("text", ["# a", "- a", "+ a", "1. a", "12) a", "===", "---", "    a", "> a", "| a |", "* a", "#"])
def test_text_at_the_start_of_a_line_is_never_markup(text: str) -> None:
    assert rendered(markdown.escape(text)).startswith("<p>")
    assert visible(markdown.escape(text)) == text.strip()


@pytest.mark.parametrize(
    "text", ["gpt2-small", "llama-3.2-1b", "params_total", "model.layers.N.mlp", "模型 é", "👩‍🔬", "4 + 4 + 8 = 16", "a -- b"]
)
def test_harmless_text_stays_readable_in_the_source(text: str) -> None:
    assert markdown.escape(text) == text


def test_control_characters_and_direction_marks_are_made_visible() -> None:
    assert (
        markdown.escape("a\x1b[31mb\u202ec\x00") == "a\N{REPLACEMENT CHARACTER}&#91;31mb\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}"
    )


def test_the_report_ends_with_one_line_feed_and_has_no_other_line_ends(planned: Planned) -> None:
    report = markdown.report([planned])
    assert report.endswith("</details>\n")
    assert "\r" not in report
    assert report == markdown.report([planned])
