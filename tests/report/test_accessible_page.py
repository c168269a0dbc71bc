"""The page with the keyboard alone, and for eyes that need contrast, light and dark, in headless Chromium.

Limits are those of WCAG 2.2, level AA.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import planner
from planner.report import page
from planner.report.planned import Planned

ROOT = Path(__file__).parent.parent.parent
PAGES = {"one model": ("gpt2-small",), "several models": ("gpt2-small", "llama-3-8b")}

# Relative luminance and contrast by https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio; a background that lets through shows its parent's.
CONTRAST = """
    const linear = part => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const numbers = color => (color.match(/[\\d.]+/g) || []).map(Number);
    const luminance = color => numbers(color).slice(0, 3).reduce((sum, part, at) => sum + linear(part) * [0.2126, 0.7152, 0.0722][at], 0);
    const clear = color => color === 'transparent' || numbers(color)[3] === 0;
    const ground = at => {
      while (at && clear(getComputedStyle(at).backgroundColor)) at = at.parentElement;
      return at ? getComputedStyle(at).backgroundColor : 'rgb(255, 255, 255)';
    };
    const contrast = (one, other) => {
      const [dark, light] = [luminance(one), luminance(other)].sort((x, y) => x - y);
      return (light + 0.05) / (dark + 0.05);
    };
"""
CONTROLS = "a[href], button, input, select, summary, [tabindex='0']"
FOCUSED = f"""{CONTRAST}
    const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
    return {{
      number: [...document.querySelectorAll(`{CONTROLS}`)].indexOf(at),
      name: at.ariaLabel || at.textContent.trim() || [...(at.labels || [])].map(one => one.textContent).join(),
      outline: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth),
      contrast: contrast(style.outlineColor, ground(at.parentElement)),
      inside: box.bottom > 0 && box.top < innerHeight,
    }};
"""
REACHABLE = f"""
    return [...document.querySelectorAll(`{CONTROLS}`)].flatMap((one, number) => one.checkVisibility() && !one.disabled ? [number] : []);
"""
FAINT = f"""{CONTRAST}
    const faint = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {{
      const text = walker.currentNode.textContent.trim(), at = walker.currentNode.parentElement, style = getComputedStyle(at);
      if (!text || !at.checkVisibility() || at.closest('script, style, option, :disabled, title')) continue;
      const ratio = contrast(at.closest('svg') ? style.fill : style.color, ground(at));
      if (ratio < 4.5) faint.push(`${{text.slice(0, 40)}}: ${{ratio.toFixed(2)}}`);
    }}
    return faint;
"""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, made = tmp_path_factory.mktemp("accessible"), {}
    for name, specs in PAGES.items():
        loaded = [planner.load(ROOT / "specs" / f"{spec}.yaml") for spec in specs]
        path = folder / f"{len(specs)}.html"
        path.write_text(page.report([Planned(spec, planner.plans(spec)) for spec in loaded]), encoding="utf-8")
        made[name] = path.as_uri()
    return made


@pytest.fixture(params=[(name, scheme) for name in PAGES for scheme in ("light", "dark")], ids=" ".join)
def browser(chromium: Any, addresses: dict[str, str], request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - selenium may not be installed
    name, scheme = request.param
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    chromium.get("about:blank")
    chromium.get(addresses[name])
    live = "return ![...document.querySelectorAll('.live')].some(one => one.hidden)"
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(chromium, 30).until(lambda driver: driver.execute_script(live))
    return chromium


def test_tab_reaches_every_control_in_order_with_a_visible_focus(browser: Any) -> None:  # noqa: ANN401
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    expected = browser.execute_script(REACHABLE)
    assert len(expected) > 20
    reached = []
    for _ in expected[:150]:  # of a long table the rest is alike
        ActionChains(browser, duration=0).send_keys(Keys.TAB).perform()
        seen = browser.execute_script(FOCUSED)
        reached.append(seen["number"])
        assert seen["name"], f"control {seen['number']} has no name"
        assert seen["outline"] >= 2, seen
        assert seen["contrast"] >= 3, seen  # 1.4.11: of parts that are no text
        assert seen["inside"], seen
    assert reached == expected[:150]


def test_text_stands_out_from_its_background(browser: Any) -> None:  # noqa: ANN401
    assert browser.execute_script(FAINT) == []  # 1.4.3: at least 4.5


def test_nothing_moves_by_itself(browser: Any) -> None:  # noqa: ANN401
    moving = """
        return [...document.querySelectorAll('*')].filter(one => {
          const style = getComputedStyle(one);
          const lasting = style.transitionDuration.split(', ').some(time => parseFloat(time));
          return lasting || style.animationName !== 'none' || style.scrollBehavior !== 'auto';
        }).map(one => one.tagName);
    """
    assert browser.execute_script(moving) == []


def test_every_picture_has_a_name_and_every_chart_words_on_its_axes(browser: Any) -> None:  # noqa: ANN401
    pictures = """
        return [...document.querySelectorAll('svg')].filter(one => one.checkVisibility()).map(one =>
          [one.getAttribute('aria-label') || one.getAttribute('aria-hidden') || one.querySelector('title')?.textContent || '',
           one.hasAttribute('viewBox'), one.querySelectorAll('text').length]);
    """
    for name, has_axes, words in browser.execute_script(pictures):
        assert name
        assert not has_axes or words >= 2, name


def test_a_formula_opens_with_enter_and_closes_with_escape_where_the_focus_was(chromium: Any, addresses: dict[str, str]) -> None:  # noqa: ANN401
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    chromium.get(addresses["one model"])
    WebDriverWait(chromium, 30).until(lambda driver: driver.execute_script("return !document.querySelector('.live').hidden"))
    chromium.execute_script("document.querySelector('.live .key dd button').focus()")
    ActionChains(chromium, duration=0).send_keys(Keys.ENTER).perform()
    assert chromium.execute_script("return document.querySelector('dialog').open")
    ActionChains(chromium, duration=0).send_keys(Keys.ESCAPE).perform()
    assert not chromium.execute_script("return document.querySelector('dialog').open")
    assert chromium.execute_script("return document.activeElement === document.querySelector('.live .key dd button')")


def test_the_table_sorts_and_sections_open_with_enter(chromium: Any, addresses: dict[str, str]) -> None:  # noqa: ANN401
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    chromium.get("about:blank")
    chromium.get(addresses["several models"])
    chromium.execute_script("document.querySelector('.n th button').focus()")
    for order in ("ascending", "descending"):
        ActionChains(chromium, duration=0).send_keys(Keys.ENTER).perform()
        assert chromium.execute_script("return document.querySelector('.n th').ariaSort") == order
    chromium.execute_script("document.querySelector('summary').focus()")
    before = chromium.execute_script("return document.activeElement.parentElement.open")
    ActionChains(chromium, duration=0).send_keys(Keys.ENTER).perform()
    assert chromium.execute_script("return document.activeElement.parentElement.open") == (not before)
