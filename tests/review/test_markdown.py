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
from planner.review.review import BudgetStatus, Change, Edit, Finding, Move, Review, ReviewedModel, ReviewedScenario
from planner.spec.records import Place, Waiver

from .conftest import Repo, spec

HOSTILE = [
    "a|b",
    "`code`",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "@octocat",
    "@org/team",
    "#1",
    "GH-1 owner/repo#2",
    "**bold** _it_ ~~gone~~",
    "[a](javascript:alert(1))",
    "![a](https://example.org/a.png)",
    "</details></table>",
    "<!-- modelplan-review id=default run=999.1 -->",
    "模型 🤖 é",
    "a\\|b",
    "&lt;b&gt;",
    "$x$",
    "- [ ] task",
]


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
    "a",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_shown_literally(repo: Repo, name: str) -> None:
    quoted = "'" + name.replace("'", "''") + "'"
    text = spec("tiny", n_layers="3").replace("name: tiny", f"name: {quoted}") + f"scenarios: [{{name: {quoted}, batch_size: 4}}]\n"
    waiver = f"waivers: [{{budget: {quoted}, reason: {quoted}, until: 2027-01-31}}]\n"
    repo.write(text + waiver, "specs/hostile.yaml")
    budget = f"  - name: {quoted}\n    figure: params_total\n    max: 1000\n    message: {quoted}\n"
    repo.write(f"budgets:\n{budget}  - {{name: plain, figure: peak_bytes, max: 1 bytes}}\n", "planner.yaml")
    base = repo.commit()
    repo.write(text.replace("n_layers: 3", "n_layers: 4"), "specs/hostile.yaml")
    for arguments in ((), ("--base", base), ("--today", "2027-01-01")):
        _, out, _ = repo.run("diff", "--format", "md", *arguments)
        seen = Seen(render(out))
        assert set(seen.tags) <= OURS
        assert {attribute for attribute, _ in seen.attributes} <= {"align", "href"}
        links = [value for attribute, value in seen.attributes if attribute == "href"]
        assert all(str(link).startswith("https://example.org/a.png") for link in links)  # as any text
        assert not re.search(r"(?<!\w)[@#](?=\w)", seen.text)  # GitHub links @name and #1 in the text that it shows
        assert " ".join(name.split()) in seen.text.replace("\u200b", "")
        tables = [row for row in seen.rows if row]
        assert {len(row) for row in tables if row[0] in ("❌", "⚠️", "🔕")} <= {3}


def test_a_name_stays_on_one_line(repo: Repo) -> None:
    repo.write(spec().replace("name: tiny", 'name: "a\\nb"'))
    code, out, _ = repo.run("diff", "--format", "md")
    assert code == 1
    assert "must be one line" in out


def test_the_overview_shows_values_before_and_after_and_the_change(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    _, out, _ = repo.run("diff", "--format", "md", "--links", "https://example.org/blob/abc")
    seen = Seen(render(out))
    heading, row = next((one, other) for one, other in zip(seen.rows, seen.rows[1:], strict=False) if one[:1] == ["model"])
    assert heading == ["model", "parameters", "model states", "activations", "peak", "train FLOPs per token"]
    assert row[:2] == ["tiny", "114.9 k → 164.9 k\n+49.98 k, +43.5 %"]  # 49,984 / 114,944 = 43.485 %
    assert ("href", "https://example.org/blob/abc/specs/tiny.yaml#L6") in seen.attributes
    assert "model.n_layers 2 → 3, specs/tiny.yaml:6: parameters +49.98 k" in seen.text
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
    )


@pytest.mark.parametrize(("models", "findings"), [(1, 0), (60, 0), (2000, 0), (2000, 2000), (2000, 5)])
@pytest.mark.parametrize("name", ["model-with-a-rather-long-name", "🤖" * 40, "|" * 90], ids=["long", "emoji", "escaped"])
def test_the_report_stays_under_the_limit_and_lists_omitted_parts(models: int, findings: int, name: str) -> None:
    text = markdown(many(models, findings, name))
    assert len(text.encode("utf-16-le")) // 2 <= LIMIT < 65_536
    assert text.endswith("\n")
    left_out = re.findall(r"_Omitted to fit GitHub's comment limit: (.*)\. The full review", text)
    seen = Seen(render(text))
    assert f"{models} changed model" in seen.text
    rows = sum(row[0].replace("\u200b", "").startswith(name) for row in seen.rows if len(row) > 5)
    missing = re.findall(r"([\d,]+) ([a-z ]+)", left_out[0]) if left_out else []
    counted = {what: int(number.replace(",", "")) for number, what in missing}
    assert rows + counted.get("rows of the overview", 0) == models
    assert sum(row[0] == "❌" for row in seen.rows if len(row) == 3) + counted.get("findings", 0) == findings
    assert bool(missing) is (models > 1)
    assert seen.tags.count("details") == text.count("</details>")


def test_parts_are_omitted_in_the_documented_order() -> None:
    order = ["findings", "rows of the overview", "waivers and notes", "explanations", "tables of metrics", "lists of unchanged models"]
    review = many(100, 100)
    dropped: list[str] = []
    for limit in range(150_000, 2_000, -1500):
        said = re.findall(r"_Omitted to fit GitHub's comment limit: (.*)\. The full review", markdown(review, limit=limit))
        now = re.findall(r"[\d,]+ ([a-z ]+)", said[0]) if said else []
        for what in now:
            if what not in dropped:
                dropped.append(what)
        assert [what for what in order if what in now] == now
    assert [what for what in dropped if what != "lists of unchanged models"] == list(reversed(order[:-1]))


def test_metrics_of_the_review_are_columns() -> None:
    assert set(FIGURES) < set(CLAIMABLE)
