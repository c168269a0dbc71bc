"""The page as text: its content without scripts, its size, and hostile specs."""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections import defaultdict
from functools import cache
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import get_args

import pytest

import planner
from planner.capacity.figures import COMPONENTS
from planner.report import page
from planner.report.csv import capacity, components
from planner.report.curves import _around
from planner.report.files import files
from planner.report.html.markup import link
from planner.report.planned import BudgetLimit, Planned
from planner.spec.records import FlopsConvention

ROOT = Path(__file__).parent.parent.parent
EVIL = '</style><script>alert(1)</script><img src=x onerror=alert(2)>" onmouseover=alert(3) x="&amp;'
VOID = {"meta", "br", "rect", "circle", "path", "polyline", "input", "link", "img"}


class Reader(HTMLParser):
    """Collects the tables by caption, and every tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[list[str]]]] = defaultdict(list)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._caption: str | None = None
        self._rows: list[list[str]] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "caption":
            self._caption, self._rows = "", []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")
        if tag in ("caption", "td", "th", "svg", "style", "script"):
            self._in = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.tables[self._caption or ""].append(self._rows)
        if tag in ("svg", "style", "script", "table"):
            self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in not in ("style", "script"):
            self.words += data
        if self._in == "caption":
            self._caption = (self._caption or "") + data
        elif self._in in ("td", "th"):
            self._rows[-1][-1] += data.strip()


def planned(name: str) -> Planned:
    spec = planner.load(ROOT / "specs" / f"{name}.yaml")
    return Planned(spec, planner.plans(spec))


@cache
def gpt2() -> str:
    """Return the page of GPT-2 small."""
    return page.report([planned("gpt2-small")])


def table(read: Reader, caption: str) -> list[list[str]]:
    return next(rows for found, tables in read.tables.items() if found.startswith(caption) for rows in tables)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_metrics_of_a_small_model_equal_arithmetic_by_hand(planned: Planned) -> None:
    read = Reader(page.report([planned]))  # the plan made by hand in conftest.py
    rows = {row[0]: row[1:] for row in table(read, "Parameters and FLOPs")}
    assert rows["embedding"][:2] == ["416", "40.5 %"]  # 416 / 1028
    assert rows["sum"][0] == "1,028"
    memory = {row[0]: row[1:] for row in table(read, "Training memory")}
    assert memory["weights, 4·params"] == ["4,112", "4.016 KiB"]  # 4 · 1028
    assert memory["optimizer, 8·params"][0] == "8,224"
    assert memory["activations"][0] == "1,132"  # 1964 - 832
    assert memory["logits"][0] == "832"
    assert memory["sum"][0] == "18,412"  # 16448 + 1964
    assert memory["peak, optimizer"][0] == "24,672"
    # nvidia-smi: 81251MiB; 81,251 · 2²⁰ - 2 · 2³⁰
    assert memory["A100-80GB-SXM, less the reserve"] == ["83,050,364,928", "77.35 GiB"]


def test_gpt2_small_shows_38_million_parameters_for_an_untied_head() -> None:
    read = Reader(gpt2())
    rows = {row[0]: row[1:] for row in table(read, "Parameters and FLOPs")}
    assert number(rows["sum"][0]) == 124_439_808  # Radford et al. 2019, as released
    assert number(rows["untied head"][0]) == 124_439_808 + 50_257 * 768
    assert "queries by head, keys by head, values by head (8, 12, 1024, 64)" in read.words


@pytest.mark.parametrize("name", ["gpt2-small", "llama-3-8b", "gpt3-175b"])
def test_every_metric_equals_the_csv(name: str) -> None:
    model = planned(name)
    read = Reader(gpt2() if name == "gpt2-small" else page.report([model]))
    quantity = {
        (row["scenario"], row["group"], row["component"]): int(row["quantity"])
        for row in csv.DictReader(io.StringIO(components(model.plans)))
    }
    capacities = list(csv.DictReader(io.StringIO(capacity(model.plans))))
    for row in table(read, "Parameters and FLOPs")[1:]:
        if row[0] not in ("sum", "untied head", "tied head"):
            assert number(row[1]) == quantity["base", "parameters", row[0]]
    memories = [rows for caption, tables in read.tables.items() if caption.startswith("Training memory") for rows in tables]
    assert len(memories) == len(capacities)
    for line, rows in zip(capacities, memories, strict=True):
        listed = {re.sub(",? .*", "", row[0]): number(row[1]) for row in rows}
        assert listed["weights"] == int(line["weights_bytes"])
        assert listed["gradients"] == int(line["gradients_bytes"])
        assert listed["optimizer"] == int(line["optimizer_bytes"])
        assert listed["logits"] == int(line["logits_bytes"])
        assert listed["activations"] + listed["logits"] == int(line["activations_bytes"])
        assert listed["peak"] == int(line["peak_bytes"])
    for line, rows in zip(capacities, read.tables["Training FLOPs per token"], strict=True):
        (chosen,) = (number(row[1]) for row in rows if row[0].endswith("(chosen)"))
        assert chosen == int(line["train_flops_per_token"])


def test_a_router_in_float32_is_not_shown_with_two_bytes_per_parameter() -> None:
    spec = planner.load(ROOT / "specs" / "catalog" / "deepseek_v3" / "kimi-k2-instruct.yaml")
    read = Reader(page.report([Planned(spec, planner.plans(spec)[:1]), planned("gpt2-small")]))  # without the live section of one model
    rows = {row[0]: row[1:] for row in table(read, "Training memory")}
    # 60 routers of 384 · 7168 in fp32, all else in bf16
    assert number(rows["weights"][0]) == 2 * 1_026_408_209_408 + 2 * 60 * 384 * 7168
    assert number(rows["gradients, 4·params"][0]) == 4 * 1_026_408_209_408


def test_a_budget_replaces_the_device() -> None:
    model = planned("gpt2-small")
    budgets = (
        BudgetLimit("one-gpu", "base", "peak_bytes", "max", 40 * 10**9, "error"),
        BudgetLimit("other", "base", "params_total", "max", 1, "error"),
    )
    rows = {row[0]: row[1:] for row in table(Reader(page.report([Planned(model.spec, model.plans, budgets)])), "Training memory")}
    assert rows["budget one-gpu"][0] == "40,000,000,000"
    assert not any(name.startswith(("A100", "budget other")) for name in rows)


def test_each_formula_is_on_the_page_once_and_every_link_has_a_target() -> None:
    text = page.report([planned("gpt2-small"), planned("gpt2-medium"), planned("llama-3-8b")])
    ids = re.findall(r" id=(\w+)", text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"href=#(\w+)", text)) <= set(ids)
    assert text.count("<b>params_embedding</b> = V·d_model\n") == 1


def test_every_picture_has_a_title_and_a_description_and_is_in_the_caption_of_a_table() -> None:
    text = gpt2()
    pictures = re.findall(r"<svg.*?</svg>", text)
    assert len(pictures) == 4
    assert all(re.search(r" role=img><title>\w.*</title><desc>\w.*</desc>", one) for one in pictures)
    assert len(re.findall(r"<caption>[^<]*<svg", text)) == len(pictures)


def test_text_of_a_spec_is_shown_literally(tmp_path: Path) -> None:
    import yaml

    spec = yaml.safe_load((ROOT / "specs" / "gpt2-small.yaml").read_text(encoding="utf-8"))
    spec |= {"name": EVIL, "description": EVIL, "source": ["javascript:alert(1)", 'https://x.org/"onload="alert(1)']}
    path = tmp_path / "evil.yaml"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    model = planner.load(path)
    text = page.report([Planned(model, planner.plans(model))])
    read = Reader(text)
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not [tag for tag, attributes in read.tags if tag == "img" or any(name.startswith("on") for name in attributes)]
    assert {attributes["href"] for tag, attributes in read.tags if tag == "a"} <= {f"#{one}" for one in re.findall(r" id=(\w+)", text)}
    assert EVIL in read.words
    shown = Reader(planner.plans(model)[0]._repr_html_())
    assert "script" not in [tag for tag, _ in shown.tags]


def test_only_a_web_address_is_a_link() -> None:
    assert link("https://arxiv.org/abs/2005.14165") == '<a href="https://arxiv.org/abs/2005.14165">arxiv.org</a>'
    assert link("javascript:alert(1)") == "javascript:alert(1)"
    assert link("https://a.org/?x=<b>") == "https://a.org/?x=&lt;b&gt;"


def test_the_page_allows_only_its_own_style_and_script_and_requests_nothing() -> None:
    import base64
    import hashlib

    text = gpt2()
    policy = re.search(r'Content-Security-Policy content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert not re.search(r"\b(src|srcset|action|data)=|url\(|@import|fetch\(|XMLHttp", text)


def test_fifty_models_stay_under_250_kilobytes_and_a_smaller_page_omits_the_longest_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted((ROOT / "specs").glob("*.yaml"))
    paths += [
        path
        for family in ("llama", "gpt2", "qwen2", "opt", "gpt_neox")
        for path in sorted((ROOT / "specs/catalog" / family).glob("*.yaml"))
    ]
    models = [Planned(spec, planner.plans(spec)[:1]) for spec in map(planner.load, paths[:50])]
    assert len(models) == 50
    text = page.report(models)
    assert len(text.encode()) < 250_000
    assert "Formulas of more" not in text
    assert text.count("Shapes from token ids to logits</a>") == 50
    assert text.count("<summary><h2>") == 50
    monkeypatch.setattr(page, "_BYTES_EACH", 4300)
    smaller = page.report(models)
    assert len(re.sub(r' data-live="[^"]*"', "", smaller).encode()) < 215_000
    assert re.search(r"Formulas of more than \d+ characters are omitted to keep the page small", smaller)


def test_the_page_is_reproducible_and_only_written_on_request() -> None:
    model = planned("gpt2-small")
    assert files([model], ["html"])["capacity.html"].decode() == gpt2()
    assert "capacity.html" not in files([model], ["csv", "md", "json"])


def test_points_of_a_curve_double_around_the_current_one() -> None:
    assert _around(1024, 1024) == [64, 128, 256, 512, 1024]
    assert _around(8, None) == [2, 4, 8, 16, 32]
    assert _around(1, None) == [1, 2, 4, 8, 16]
    assert _around(1000, 2500) == [125, 250, 500, 1000, 2000]
    assert _around(1, 1) == [1]


# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB
SIGHT = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}


def lab(color: str, sight: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """Return the CIE 1976 L*a*b* (D65) coordinates of an sRGB color as seen with a color vision deficiency."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    seen = [min(1, max(0, sum(factor * part for factor, part in zip(row, linear, strict=True)))) for row in sight]
    white = ((0.4124564, 0.3575761, 0.1804375, 0.95047), (0.2126729, 0.7151522, 0.0721750, 1), (0.0193339, 0.1191920, 0.9503041, 1.08883))
    x, y, z = (sum(factor * part for factor, part in zip(row, seen, strict=False)) / row[3] for row in white)
    fx, fy, fz = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("palette", ["p", "m", "c"])
def test_colors_are_distinguishable_with_color_vision_deficiency(sight: str, palette: str) -> None:
    colours = re.findall(rf"\.{palette}\d+{{--c:(#\w{{6}})", page.sheet())
    assert len(colours) == {"p": len(COMPONENTS), "m": 7, "c": len(get_args(FlopsConvention))}[palette]  # one for each bar
    for one, other in combinations(colours, 2):
        apart = sum((a - b) ** 2 for a, b in zip(lab(one, SIGHT[sight]), lab(other, SIGHT[sight]), strict=True)) ** 0.5
        assert apart > 10, (one, other)  # a difference of 2.3 is just noticeable


def test_plans_are_displayed_in_notebooks() -> None:
    plans = planned("llama-3-8b").plans
    (alone,) = Reader(plans[0]._repr_html_()).tables["Training FLOPs per token"]
    assert len(alone) == len(plans[0].flops.by_convention)
    together = planner.plans(planner.load(ROOT / "specs" / "llama-3-8b.yaml"))
    assert len(Reader(together._repr_html_()).tables["Models"][0]) == 3
    assert "| total | " not in together._repr_markdown_()
    assert "| **total** | **8,030,261,248** |" in together._repr_markdown_()
    assert "## llama-3-8b, scenario full-recompute" in together._repr_markdown_()


def test_a_curve_equals_the_plans_at_its_points() -> None:
    from dataclasses import replace

    from planner import capacity
    from planner.report import units
    from planner.spec.records import Scenario

    spec = planner.load(ROOT / "specs" / "gpt2-small.yaml")
    training = spec.scenarios[0].training
    rows = table(Reader(gpt2()), "Peak memory over")

    def peak(**changed: int) -> str:
        scenario = Scenario("base", replace(training, **changed))  # type: ignore[arg-type]
        return units.memory(capacity.plan(spec, scenario).memory.peak_bytes)

    assert rows[0] == ["n", "B = 8", "B", "n = 1,024"]
    for n, over_n, B, over_B in rows[1:]:
        assert over_n == peak(sequence_length=number(n))
        assert over_B == peak(batch_size=number(B))


def test_the_page_is_imported_only_on_request() -> None:
    import subprocess
    import sys

    script = "import sys, planner.cli; planner.cli.main(['run', *sys.argv[1:]]); print('planner.report.page' in sys.modules)"
    for form, imported in (("csv,md,json", "False"), ("html", "True")):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", script, str(ROOT / "specs" / "gpt2-small.yaml"), "--output", folder, "--format", form]
            run = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT, check=True)
        assert run.stdout.splitlines()[-1] == imported


def test_coordinates_of_a_picture_are_rounded_to_the_nearest_step() -> None:
    from planner.report import units

    assert [units.along(part, 3, 100) for part in (0, 1, 2, 3)] == [0, 33, 67, 100]
    assert units.along(0, 0, 100) == 0
    assert [units.along_log(value, 1, 1024, 100) for value in (1, 2, 32, 1024)] == [0, 10, 50, 100]
    assert units.along_log(5, 5, 5, 100) == 0
    assert [units.power_of_two(1 << power) for power in (0, 9, 10, 35, 41)] == ["1 B", "512 B", "1 KiB", "32 GiB", "2,048 GiB"]


def test_the_formula_of_forward_flops_by_component_equals_the_csv() -> None:
    from planner import capacity

    spec = planner.load(ROOT / "specs" / "gpt2-small.yaml")
    worth = {one.figure: one.value for one in capacity.explain(spec, spec.scenarios[0])}
    # 12 layers of 8 · 1024 tokens: 2 · 768 · 2304 + 2 · 768 · 768 for projections, 4 · 1024 · 768 for scores and values
    assert worth["forward FLOPs in attention"] == 12 * 8192 * (2 * 768 * 2304 + 2 * 768 * 768 + 4 * 1024 * 768)
    assert worth["forward FLOPs in head"] == 8192 * 2 * 768 * 50_257
