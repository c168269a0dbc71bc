"""The pull-request comment, rendered as by GitHub: tables are intact, no mentions, no injection, within the size limit."""

from __future__ import annotations

import re
from datetime import date
from html.parser import HTMLParser

import cmarkgfm  # type: ignore[import-untyped]
import pytest
from cmarkgfm.cmark import Options  # type: ignore[import-untyped]

from planner.report.columns import CLAIMABLE, FIGURES
from planner.review.markdown import LIMIT, markdown
from planner.review.review import BudgetStatus, Change, Edit, Finding, FormulaChange, Move, Review, ReviewedModel, ReviewedScenario, Trend
from planner.review.text import text
from planner.spec.records import Place, Waiver
from tests.hostile_words import HTML, LINKS, MARKDOWN, WORDS

from .conftest import Repo, spec


class Seen(HTMLParser):
    """The visible parts of a page: tags, and the text of each cell."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self.feed(page.replace("\N{NO-BREAK SPACE}", " "))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.text += "\n" if tag in ("br", "td", "th") else ""
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "br" and self.rows and self.rows[-1]:
            self.rows[-1][-1] += "\n"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1] and data.strip():
            self.rows[-1][-1] += data


def render(text: str) -> str:
    """Render like GitHub before it sanitizes the page: raw HTML stays."""
    result: str = cmarkgfm.github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE)
    return result


OURS = {
    "h2",
    "h3",
    "p",
    "strong",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "br",
    "ul",
    "ol",
    "li",
    "code",
    "details",
    "summary",
    "em",
    "sub",
}


def of_words(word: str) -> Review:
    """Return a review in which every text is the word."""
    place, figures = Place(word, 3, 5), dict.fromkeys(FIGURES, 10**9)
    waiver = Waiver(word, word, date(2027, 1, 31), place)
    changes = (Change("peak_bytes", 10**9, 2 * 10**9, (Move((0,), 1), Move((1,), 2)), 3),)
    row = ReviewedScenario(word, "changed", figures, figures | {"peak_bytes": 2 * 10**9}, changes)
    return Review(
        base=word,
        models=(
            ReviewedModel(word, "changed", word, (row,), (Edit(word, word, word, place), Edit(word, word, word, None)), word, word, word),
            ReviewedModel(f"{word} 2", "unchanged", word, moved_from=word),
        ),
        findings=(
            Finding(word, "error", word, place, word, word, word),
            Finding(word, "waived", word, place, word, word, word, waiver=waiver),
        ),
        budget_statuses=(BudgetStatus(word, word, word, "error"),),
        waivers=((word, waiver),),
        notes=(word,),
        formulas=(FormulaChange(word, word, "peak_bytes", 1, 2, word, word),),
        policy_edits=(Edit(word, "", word, None),),
        trends=(Trend(word, word, "peak_bytes", (1, 2, 3)),),
    )


@pytest.mark.parametrize("word", WORDS, ids=ascii)
def test_texts_of_users_are_shown_literally(word: str) -> None:
    seen, plain = (Seen(render(markdown(of_words(text)))) for text in (word, "x"))
    assert seen.tags == plain.tags
    assert seen.attributes == plain.attributes
    assert [len(row) for row in seen.rows] == [len(row) for row in plain.rows]
    assert not re.search(r"(?<!\w)[@#](?=\w)|\bGH-\d|[0-9a-f]{40}|:[\w+-]+:|https?://|www\.", seen.text, re.IGNORECASE)
    linked = Seen(render(markdown(of_words(word), blob="https://example.org")))
    assert {tag for tag, _ in linked.attributes} <= {"align", "href"}
    assert all(str(link).startswith("https://example.org/") for tag, link in linked.attributes if tag == "href")


@pytest.mark.parametrize("word", WORDS, ids=ascii)
def test_a_terminal_shows_texts_of_users_on_one_line_each(word: str) -> None:
    shown, plain = text(of_words(word)).split("\n"), text(of_words("x")).split("\n")
    assert len(shown) == len(plain)
    for line in shown:
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u202e]|^\s*::|##\[|##vso\[", line)


@pytest.mark.parametrize("name", [MARKDOWN[0], HTML[0], HTML[4], *LINKS[8:12]])
def test_a_name_in_a_spec_is_shown_literally(repo: Repo, name: str) -> None:
    quoted = "'" + name.replace("'", "''") + "'"
    written = spec("tiny", n_layers="3").replace("name: tiny", f"name: {quoted}") + f"scenarios: [{{name: {quoted}, batch_size: 4}}]\n"
    waiver = f"waivers: [{{budget: {quoted}, reason: {quoted}, until: 2027-01-31}}]\n"
    repo.write(written + waiver, "specs/hostile.yaml")
    budget = f"  - name: {quoted}\n    figure: params_total\n    max: 1000\n    message: {quoted}\n"
    repo.write(f"budgets:\n{budget}  - {{name: plain, figure: peak_bytes, max: 1 bytes}}\n", "planner.yaml")
    base = repo.commit()
    repo.write(written.replace("n_layers: 3", "n_layers: 4"), "specs/hostile.yaml")
    for arguments in ((), ("--base", base), ("--today", "2027-01-01")):
        _, out, _ = repo.run("diff", "--format", "md", *arguments)
        seen = Seen(render(out))
        assert set(seen.tags) <= OURS
        assert {attribute for attribute, _ in seen.attributes} <= {"align"}
        assert name in seen.text.replace("\u200b", "")


def test_a_name_stays_on_one_line(repo: Repo) -> None:
    repo.write(spec().replace("name: tiny", 'name: "a\\nb"'))
    code, out, _ = repo.run("diff", "--format", "md")
    assert code == 1
    assert "must be one line" in out


def test_the_overview_shows_values_before_and_after_and_the_change(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    _, out, _ = repo.run("diff", "--format", "md", "--links", "https://example.org/blob/abc")
    seen = Seen(render(out))
    first = seen.rows.index(["model", "before", "after", "change"])
    assert seen.rows[first + 1 : first + 3] == [
        ["tiny", "", "", ""],
        ["parameters", "114.9 k", "164.9 k", "+49.98 k, +43.5 %"],
    ]  # 49,984 / 114,944
    assert [row[0] for row in seen.rows[first + 3 : first + 7]] == ["model states", "activations", "peak", "train FLOPs per token"]
    assert ("href", "https://example.org/blob/abc/specs/tiny.yaml#L6") in seen.attributes
    assert "model.n_layers 2 → 3, specs/tiny.yaml:6 — parameters +49.98 k" in seen.text
    assert next(one for one in seen.rows if one[0] == "params_attention")[3] == "+16.64 k, +50.0 %"  # 4·64² + 4·64 = 16,640


def test_without_changes_the_report_is_one_sentence(repo: Repo) -> None:
    assert "**No changes: the only model matches the base.**" in repo.run("diff", "--format", "md")[1]


def test_the_same_review_gives_the_same_bytes_in_any_folder(repo: Repo, tmp_path: object) -> None:
    repo.write(spec(n_layers="3"))
    first = repo.run("diff", "--format", "md")[1]
    assert repo.run("diff", "--format", "md")[1] == first
    assert repo.run("diff", "--format", "md", folder=repo.root / "specs")[1] == first
    assert str(tmp_path) not in first
    assert "\r" not in first


def many(models: int, findings: int = 0, name: str = "model-with-a-rather-long-name") -> Review:
    """Return a review of many changed models, some of which exceed a budget."""
    figures = dict.fromkeys(FIGURES, 10**12)
    after = dict.fromkeys(FIGURES, 10**12 + 12345)
    changes = tuple(Change(figure, figures[figure], after[figure], (Move((0,), 12345),)) for figure in FIGURES)
    place = Place("specs/a/rather/long/path/to/a/spec.yaml", 23, 5)
    edits = (Edit("training.batch_size", "8", "16", place), Edit("model.n_layers", "8", "9", place))
    rows = (ReviewedScenario("base", "changed", figures, after, changes),)
    return Review(
        base="main",
        models=(
            *(ReviewedModel(f"{name}-{n}", "changed", place.file, rows, edits) for n in range(models)),
            *(ReviewedModel(f"same-{n}", "unchanged", place.file) for n in range(50)),
        ),
        findings=tuple(Finding("budget:cap", "error", "is 🤖 too much", place, f"{name}-{n}") for n in range(findings)),
        budget_statuses=tuple(BudgetStatus(f"{name}-{n}", "base", "cap", "error") for n in range(findings)),
        waivers=tuple((f"{name}-{n}", Waiver("cap", "a reason", date(2027, 1, 31), place)) for n in range(20)),
        trends=tuple(Trend(f"{name}-{n}", "base", "peak_bytes", (1, 2, 3)) for n in range(models)),
    )


@pytest.mark.parametrize(("models", "findings"), [(1, 0), (60, 0), (2000, 0), (2000, 2000), (2000, 5)])
@pytest.mark.parametrize("name", ["model-with-a-rather-long-name", "🤖" * 40, "|" * 90], ids=["long", "emoji", "escaped"])
def test_the_report_stays_under_the_limit_and_lists_omitted_parts(models: int, findings: int, name: str) -> None:
    text = markdown(many(models, findings, name))
    assert len(text.encode("utf-16-le")) // 2 <= LIMIT < 65_536
    assert text.endswith("\n")
    left_out = re.findall(r"_Omitted to fit the limit of a comment: (.*)\. The full review", text)
    seen = Seen(render(text))
    assert f"{models} changed model" in seen.text
    rows = sum(row[0].replace("\u200b", "").startswith(name) for row in seen.rows if len(row) == 4 and row[0] != "model")
    missing = re.findall(r"([\d,]+) ([a-z ]+)", left_out[0]) if left_out else []
    counted = {what: int(number.replace(",", "")) for number, what in missing}
    assert rows + counted.get("rows of the overview", 0) == models
    assert sum(row[0] == "❌" for row in seen.rows if len(row) == 3) + counted.get("findings", 0) == findings
    assert bool(missing) is (models > 1)
    assert seen.tags.count("details") == text.count("</details>")


def test_parts_are_omitted_in_the_documented_order() -> None:
    order = [
        "findings",
        "rows of the overview",
        "trends",
        "waivers and notes",
        "explanations",
        "tables of metrics",
        "lists of unchanged models",
    ]
    review = many(100, 100)
    dropped: list[str] = []
    for limit in range(150_000, 2_000, -1500):
        said = re.findall(r"_Omitted to fit the limit of a comment: (.*)\. The full review", markdown(review, limit=limit))
        now = re.findall(r"[\d,]+ ([a-z ]+)", said[0]) if said else []
        for what in now:
            if what not in dropped:
                dropped.append(what)
        assert [what for what in order if what in now] == now
    assert [what for what in dropped if what != "lists of unchanged models"] == list(reversed(order[:-1]))


def test_metrics_of_the_review_are_columns() -> None:
    assert set(FIGURES) < set(CLAIMABLE)
