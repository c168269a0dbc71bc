"""The page in headless Chromium, from a file: no errors, no requests, sorting and filtering of the first table, lengths of bars."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from planner import devices
from planner.report import overview, page, units
from planner.report.csv import capacity, components
from planner.report.planned import Planned

ROOT = Path(__file__).parent.parent.parent
NAMES = (
    "catalog/deepseek_v3/kimi-k2-instruct",
    "gpt2-small",
    "gpt3-175b",
    "llama-3-8b",
    "mistral-7b",
)  # the last has no tokens, so no total training FLOPs


@pytest.fixture(scope="module")
def models() -> list[Planned]:
    specs = [planner.load(ROOT / "specs" / f"{name}.yaml") for name in NAMES]
    return [Planned(spec, planner.plans(spec)) for spec in specs]


@pytest.fixture(scope="module")
def browser(models: list[Planned], chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401 - selenium may not be installed
    file = tmp_path_factory.mktemp("page") / "capacity.html"
    file.write_text(page.report(models), encoding="utf-8")
    chromium.get(file.as_uri())
    return chromium


def names(browser: Any) -> list[str]:  # noqa: ANN401
    script = """
        const rows = [...document.querySelectorAll('.n tr')].slice(1).filter(row => !row.hidden);
        return rows.map(row => row.cells[0].textContent.trim());
    """
    shown: list[str] = browser.execute_script(script)
    return shown


def test_the_page_has_no_errors_and_sends_no_requests(browser: Any) -> None:  # noqa: ANN401
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert {url.split(":")[0] for url in asked} <= {"file"}
    assert len(asked) == 1


def test_the_first_table_sorts_by_exact_values(browser: Any, models: list[Planned]) -> None:  # noqa: ANN401
    rows = list(csv.DictReader(io.StringIO(capacity([plan for model in models for plan in model.plans]))))
    title = {id(row): row["model"] if row["scenario"] == "base" else f"{row['model']} · {row['scenario']}" for row in rows}
    columns = {"parameters": "params_total", "activations": "activations_bytes", "train FLOPs": "train_flops", "model": "model"}
    for heading, column in columns.items():
        find = "return [...document.querySelectorAll('.n th button')].find(button => button.textContent === arguments[0])"
        for down in (False, True):
            browser.execute_script(find, heading).click()
            known = [row for row in rows if row[column]]
            key = (lambda row: title[id(row)]) if column == "model" else lambda row: int(row[column])  # noqa: B023
            right = [key(row) for row in sorted(known, key=key, reverse=down)]
            by_title = {title[id(row)]: key(row) for row in known}
            shown = names(browser)
            assert [by_title[name] for name in shown if name in by_title] == right
            assert shown[len(right) :] == [title[id(row)] for row in rows if not row[column]]  # empty cells come last
            state = browser.execute_script("return document.querySelector('[aria-sort]').ariaSort")
            assert state == ("descending" if down else "ascending")


def test_the_first_table_filters(browser: Any) -> None:  # noqa: ANN401
    field = browser.execute_script("return document.querySelector('[type=search]')")
    field.send_keys("llama recompute")
    assert names(browser) == ["llama-3-8b · full-recompute"]
    field.send_keys("\b" * 20)
    assert len(names(browser)) == 8


def test_the_length_of_each_bar_is_proportional_to_its_value(browser: Any, models: list[Planned]) -> None:  # noqa: ANN401
    plans = [model.plans[0] for model in models]
    quantities = list(csv.DictReader(io.StringIO(components(plans))))
    script = """
        const table = [...document.querySelectorAll('table')].filter(one => one.caption.textContent.startsWith('Parameters'))[arguments[0]];
        const group = [table.querySelector('svg'), ...table.querySelectorAll('g')].at(arguments[1]);
        const bar = [...group.children].filter(one => one.tagName === 'rect');
        const whole = table.querySelector('svg').getBoundingClientRect();
        const colour = one => getComputedStyle(one).getPropertyValue('--c');
        const name = rect => [...table.querySelectorAll('th')].find(cell => cell.className === rect.className.baseVal)?.textContent;
        return bar.map(rect => [name(rect), rect.getBoundingClientRect().width / whole.width]).reverse();
    """
    for number, plan in enumerate(plans):
        for which, group in ((0, "parameters"), (-1, "forward_flops")):
            right = {row["component"]: int(row["quantity"]) for row in quantities if (row["model"], row["group"]) == (plan.name, group)}
            ends = browser.execute_script(script, number, which)
            scale = sum(right.values())
            if which == 0 and ends[-1][1] < 0.99:  # an untied head beside it is longer
                scale = round(scale / ends[-1][1])
            start = 0.0
            for name, end in ends:
                assert end - start == pytest.approx(right[name] / scale, abs=0.003), name
                start = end
            assert [name for name, _ in ends] == [name for name, size in right.items() if size]


def test_devices_are_drawn_with_their_peak_and_their_memory(browser: Any, tmp_path: Path) -> None:  # noqa: ANN401
    spec, before = planner.load(ROOT / "specs" / "fleet" / "llama-3-8b-8-h100.yaml"), browser.current_url
    (tmp_path / "devices.html").write_text(page.report([Planned(spec, planner.plans(spec))]), encoding="utf-8")
    script = """
        const table = [...document.querySelectorAll('table')].find(one => one.caption.textContent.startsWith('Memory of each device'));
        const whole = table.querySelector('svg').getBoundingClientRect();
        const start = css => (table.querySelector('rect.' + css).getBoundingClientRect().left - whole.left) / whole.width;
        return [start('k'), start('l'), table.querySelector('th.m5').nextSibling.textContent];
    """
    plan = planner.plans(spec)[0]
    assert plan.fleet is not None
    cluster = plan.fleet.layout.cluster
    usable = cluster.memory_bytes - cluster.reserve_bytes
    browser.get((tmp_path / "devices.html").as_uri())
    peak, end, saved = browser.execute_script(script)
    browser.get(before)
    assert end == pytest.approx(1, abs=0.01)
    assert peak == pytest.approx(plan.memory.peak_bytes / usable, abs=0.01)
    assert saved == "53.20 GiB"  # as planner show prints


@pytest.mark.parametrize("width", [1600, 1440, 1280, 1024, 780, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_no_wider_than_the_window_and_follows_its_color_scheme(browser: Any, width: int, scheme: str) -> None:  # noqa: ANN401
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    hidden = "const box = document.querySelector('.n'); return box.scrollWidth - box.clientWidth"  # of the table of models
    assert browser.execute_script(hidden) == 0
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 27)"}[scheme]


def test_folded_sections_are_printed(browser: Any) -> None:  # noqa: ANN401
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    height = browser.execute_script("return document.querySelector('details ol').getBoundingClientRect().height")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})
    assert height > 0


def test_a_name_links_to_its_formula(browser: Any) -> None:  # noqa: ANN401
    browser.execute_script("document.querySelector('th.p0 a').click()")
    assert "params_embedding = V·d_model" in browser.execute_script("return document.querySelector(':target').textContent")


VERDICTS = """
    const rows = [...document.querySelectorAll('.n tbody tr')].slice(1).filter(row => !row.hidden);
    return rows.map(row => [row.cells[0].textContent.trim(), row.cells[row.cells.length - 1].textContent]);
"""


def _needed(models: list[Planned]) -> dict[str, int]:
    """Return each model's peak and what a step may not use of a device: the cluster's reserve, on one device 2 GiB."""
    layouts = {overview.title(plan): (plan, plan.training.layout) for model in models for plan in model.plans}
    return {name: plan.memory.peak_bytes + (of.cluster.reserve_bytes if of else 2 * 2**30) for name, (plan, of) in layouts.items()}


def test_models_are_compared_with_a_device_that_the_fragment_holds(browser: Any, models: list[Planned]) -> None:  # noqa: ANN401
    before, device = browser.current_url, devices.find("B200-180GB-SXM")
    assert device is not None
    script = "const select = document.querySelector('select'); select.value = arguments[0]; select.oninput()"
    browser.execute_script(script, device.name)
    assert "device=B200-180GB-SXM" in browser.current_url
    peaks = {overview.title(plan): plan.memory.peak_bytes for model in models for plan in model.plans}
    free = {name: device.memory_bytes - needed for name, needed in _needed(models).items()}
    texts = {name: f"✓ {units.memory(size)} free" if size >= 0 else f"✕ {units.memory(-size)} over" for name, size in free.items()}
    assert dict(browser.execute_script(VERDICTS)) == texts
    fitting = sum(size >= 0 for size in free.values())
    said = browser.execute_script("return document.querySelector('[role=status]').textContent")
    assert said == f"{fitting} of {len(peaks)} fit B200-180GB-SXM, {units.memory(device.memory_bytes)} with the reserve."
    browser.get("about:blank")
    browser.get(before.partition("#")[0] + "#device=B200-180GB-SXM&filter=llama&sort=-verdict")
    right = sorted((name for name in peaks if "llama" in name), key=lambda name: -peaks[name])
    assert browser.execute_script(VERDICTS) == [[name, texts[name]] for name in right]
    browser.get("about:blank")
    browser.get(before.partition("#")[0])


def test_all_models_follow_another_batch_size_and_sequence_length(browser: Any, models: list[Planned]) -> None:  # noqa: ANN401
    from selenium.webdriver.support.ui import WebDriverWait

    before = browser.current_url
    browser.get("about:blank")
    browser.get(before.partition("#")[0] + "#B=3&n=1536")
    size = "return document.querySelector('.n td').nextSibling.textContent"
    WebDriverWait(browser, 30).until(lambda driver: driver.execute_script(size) == "3")
    script = """
        const rows = [...document.querySelectorAll('.n tbody tr')].slice(1);
        const texts = row => [...row.cells].slice(5).map(cell => cell.textContent);
        return Object.fromEntries(rows.map(row => [row.cells[0].textContent.trim(), texts(row)]));
    """
    shown, wrong = browser.execute_script(script), []
    for model in models:
        for scenario in model.spec.scenarios:
            training = replace(scenario.training, batch_size=3, sequence_length=1536)
            plan = planner.capacity.plan(model.spec, replace(scenario, training=training))
            cells = shown[overview.title(plan)]
            if model.spec.model.positions.type == "learned" and model.spec.model.context_length < 1536:
                assert cells[0] == "–"
                assert "context_length" in cells[-1]
                continue
            if cells[0] == "–":
                wrong.append(cells[-1])
                continue
            total = plan.flops.chosen.train_total
            assert cells[:4] == [
                units.memory(plan.memory.activations_bytes), units.memory(plan.memory.peak_bytes),
                units.flops(plan.flops.chosen.train_per_token),
                "" if total is None else units.flops(total),
            ]  # fmt: skip
    assert len(wrong) < 2, wrong
    browser.get("about:blank")
    browser.get(before.partition("#")[0])
    assert dict(browser.execute_script(VERDICTS)).keys() == shown.keys()


def test_candidates_are_put_side_by_side_with_what_differs_first(browser: Any, models: list[Planned]) -> None:  # noqa: ANN401
    before = browser.current_url
    for name in ("gpt2-small", "llama-3-8b"):
        browser.execute_script("document.querySelector(`[aria-label='Put ${arguments[0]} side by side']`).click()", name)
    script = """
        const text = cell => cell.firstChild ? cell.firstChild.textContent : '';
        const tables = [...document.querySelectorAll('.side table')];
        return Object.fromEntries(tables.map(one => [one.caption.textContent, [...one.rows].map(row => [...row.cells].map(text))]));
    """
    shown = browser.execute_script(script)
    one, other = (
        next(plan for model in models for plan in model.plans if overview.title(plan) == name) for name in ("gpt2-small", "llama-3-8b")
    )
    assert list(shown) == ["Figures that differ", "Settings that differ", "The same in all"]
    assert shown["Figures that differ"][0] == ["", "gpt2-small", "llama-3-8b"]
    assert ["peak", units.memory(one.memory.peak_bytes), units.memory(other.memory.peak_bytes)] in shown["Figures that differ"]
    assert ["layers", "12", "32"] in shown["Settings that differ"]
    assert ["optimizer", "adamw", "adamw"] in shown["The same in all"]
    ratio = browser.execute_script("return document.querySelector('.side small').textContent")
    assert ratio == f"× {other.parameters.total / one.parameters.total:.3g}"
    address = browser.current_url
    assert "compare=gpt2-small%7Cllama-3-8b" in address
    browser.get("about:blank")
    browser.get(address)
    assert browser.execute_script(script) == shown
    browser.get("about:blank")
    browser.get(before.partition("#")[0])


def test_bars_of_peaks_end_where_the_peak_does_on_the_scale_of_the_devices_line(browser: Any, models: list[Planned]) -> None:  # noqa: ANN401
    script = """
        const share = (one, name) => parseFloat(getComputedStyle(one).getPropertyValue(name));
        const cells = [...document.querySelectorAll('td.w:not(.cut)')];
        return cells.map(cell => [cell.parentElement.cells[0].textContent.trim(), share(cell, '--w') / share(cell, '--d')]);
    """
    needed = _needed(models)
    shown = dict(browser.execute_script(script))
    device = devices.find("A100-80GB-SXM")
    assert device is not None
    assert shown.keys() == {name for name, size in needed.items() if size <= 2.5 * device.memory_bytes}
    assert shown == {name: pytest.approx(needed[name] / device.memory_bytes, rel=1e-6) for name in shown}
