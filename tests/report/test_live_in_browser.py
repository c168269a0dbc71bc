"""The live section of a page in headless Chromium: every figure equals the planner's after any change, and the state is in the address."""

from __future__ import annotations

import os
import random
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import planner
from planner import spec as spec_module
from planner.capacity.choices import CHOICES
from planner.capacity.figures import PHASES
from planner.capacity.layout_choices import LAYOUT_CHOICES
from planner.report import page, served, units
from planner.report.columns import CLAIMABLE, SERVED, component_rows
from planner.report.planned import Planned
from planner.spec.problems import SpecError

ROOT = Path(__file__).parent.parent.parent
NAMES = (
    "gpt2-small",
    "llama-3-8b",
    "catalog/gemma2/gemma-2-2b",
    "catalog/olmoe/olmoe-1b-7b-0924",
    "fleet/llama-3-8b-8-h100",
    "fleet/llama-3-70b-256-h100",
)
CHANGES = int(os.environ.get("CHANGES_OF_PAGE", "3"))  # of each model
READ = """
    const figures = {};
    for (const table of document.querySelectorAll('.every table'))
      for (const row of table.tBodies[0].rows)
        figures[table.caption.textContent + ': ' + row.cells[0].textContent] = row.cells[2].textContent;
    const parts = document.querySelector('[data-at=peak]').textContent.match(/[\\d,]+(?= bytes)/);
    if (parts && !document.querySelector('.memory').hidden && figures['Columns of capacity.csv: peak_bytes'])
      figures['Parts: peak_bytes'] = parts[0];
    if (parts && !document.querySelector('.memory').hidden && figures['Peak of each phase: forward'])
      for (const row of document.querySelectorAll('.phases tbody tr'))
        figures['Parts: ' + row.cells[0].textContent] = row.cells[2].textContent;
    const weights = [...document.querySelectorAll('.nested td:nth-of-type(1)')].map(cell => BigInt(cell.textContent.replaceAll(',', '')));
    if (figures['Columns of capacity.csv: params_total'])
      figures['Parts: params_total'] = exactly(weights.reduce((sum, one) => sum + one, 0n));
    return [document.querySelector('.refused').textContent, document.querySelector('.command').textContent, figures];
"""
GROUPS = {
    "parameters": "Parameters", "model_states": "Model states", "activations": "Activations", "peak": "Peak of each phase",
    "forward_flops": "FLOPs of a forward pass", "train_flops_per_step": "Training FLOPs per step, by convention",
}  # fmt: skip


def write(path: Path, name: str) -> str:
    spec = planner.load(ROOT / "specs" / f"{name}.yaml")
    path.write_text(page.report([Planned(spec, planner.plans(spec))]), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("live") / "gpt2-small.html", "gpt2-small")


def opened(chromium: Any, address: str, **state: object) -> tuple[str, str, dict[str, str]]:  # noqa: ANN401 - selenium may not be installed
    """Open the page with a state, and return why it has no figures, its command, and its figures."""
    chromium.get("about:blank")
    chromium.get(f"{address}#{urlencode(state)}")
    wait(chromium, "return !document.querySelector('.live').hidden")
    why, command, figures = chromium.execute_script(READ)
    return why, command, figures


def wait(chromium: Any, script: str) -> None:  # noqa: ANN401
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(chromium, 30).until(lambda driver: driver.execute_script(script))


def drawn(generator: random.Random, spec: planner.Spec) -> dict[str, object]:
    """Draw a change of some settings."""
    base = spec.scenarios[0].training
    heads = generator.choice([4, 8, 12, 16, 20, 32, 40])
    state: dict[str, object] = {
        "B": generator.randint(1, 40), "n": generator.randint(1, spec.model.context_length), "n_layers": generator.randint(1, 70),
        "n_heads": heads, "d_model": heads * generator.choice([32, 48, 64, 80, 96, 128, 136, 256]), "tokens": generator.randint(1, 10**15),
        **{kind: generator.choice(values) for kind, values in CHOICES.items()},
    }  # fmt: skip
    if base.tokens is None:
        del state["tokens"]
    several = generator.sample(list(state), generator.randint(1, len(state)))
    if base.layout is None:
        return {key: state[key] for key in several}
    tp, pp, dp = (generator.choice(degrees) for degrees in ([1, 2, 4, 8], [1, 1, 2, 4, 8, 16], [1, 2, 3, 8, 64]))
    passes = pp * generator.randint(1, 6)
    together = {
        "tensor_parallel": tp, "pipeline_parallel": pp, "devices": tp * pp * dp * base.layout.context_parallel,
        "gradient_accumulation": passes, "global_batch_size": passes * dp * base.batch_size,
    }  # fmt: skip
    parts = generator.choice(["false", "true"])
    state |= {
        "n": 512 * generator.randint(1, 16), "n_layers": 16 * generator.randint(1, 8), "B": generator.randint(1, 4),
        "data_parallel": generator.choice(LAYOUT_CHOICES["data_parallel"]), "sequence_parallel": parts, "loss_parallel": parts,
    }  # fmt: skip
    often = ("B", "n", "n_layers", "recompute") if generator.random() < 0.7 else several
    return together | {key: state[key] for key in generator.sample(often, generator.randint(0, len(often)))}


@pytest.mark.parametrize("name", NAMES)
def test_figures_after_random_changes_equal_the_planner(chromium: Any, tmp_path: Path, name: str) -> None:  # noqa: ANN401
    address, path = write(tmp_path / "page.html", name), ROOT / "specs" / f"{name}.yaml"
    generator, compared = random.Random(name), 0  # noqa: S311 - no secret
    for _ in range(CHANGES):
        state = drawn(generator, planner.load(path))
        why, command, figures = opened(chromium, address, **state)
        words = shlex.split(command)
        assert words[:2] == ["planner", "run"]
        overrides = words[4::2]
        try:
            plan = planner.plan(spec_module.load(path, overrides))
        except (SpecError, planner.UnsupportedError):
            assert why, overrides
            continue
        if why:
            assert "call for other" in why or "for them together" in why, (why, overrides)
            assert set(figures.values()) == {""}
            continue
        for label, shown in figures.items():
            group, _, figure = label.rpartition(": ")
            value: int | None
            if group == "Parts" and figure in PHASES:
                value = next(phase.peak_bytes for phase in plan.memory.phases if phase.phase == figure)
            elif group in ("Columns of capacity.csv", "Parts"):
                value = CLAIMABLE[figure].value(plan)
            else:
                value = next(row.quantity for row in component_rows(plan) if (GROUPS[row.group], row.component) == (group, figure))
            assert shown == ("" if value is None else units.exact(value).replace("-", "−")), (label, overrides)
            compared += 1
    assert compared > 20 * CHANGES / 4


def field(chromium: Any, name: str) -> Any:  # noqa: ANN401
    return chromium.execute_script("return document.querySelector(`.live [name=${arguments[0]}]`)", name)


def press(chromium: Any, what: str) -> None:  # noqa: ANN401
    chromium.execute_script("document.querySelector(`.live [data-do=${arguments[0]}]`).click()", what)


def shown(chromium: Any, selector: str) -> str:  # noqa: ANN401
    text: str = chromium.execute_script("return document.querySelector(`.live ${arguments[0]}`).textContent", selector)
    return text


def test_typing_changes_the_figures_the_address_and_the_command_and_reset_restores_them(chromium: Any, address: str) -> None:  # noqa: ANN401
    before = opened(chromium, address)
    field(chromium, "B").send_keys("\b16")
    field(chromium, "device").send_keys("H100-80GB-SXM")
    assert shown(chromium, ".key dd button") == "14.43 GiB"  # as planner diff prints in the README
    # nvidia-smi: 81559MiB, or 79.6475 GiB, less 2 and 14.4343
    verdict = "✓ Fits H100-80GB-SXM with 63.21 GiB free: peak 14.43 GiB, memory 79.65 GiB less 2.000 GiB reserved"
    assert shown(chromium, ".verdict") == verdict
    assert shown(chromium, ".command") == "planner run specs/gpt2-small.yaml --set training.batch_size=16"
    assert chromium.current_url.endswith("#B=16&device=H100-80GB-SXM")
    changed = chromium.execute_script(READ)
    assert opened(chromium, address, B=16, device="H100-80GB-SXM") == tuple(changed)
    press(chromium, "reset")
    assert tuple(chromium.execute_script(READ)) == before
    assert "#" not in chromium.current_url


def test_sizes_that_the_planner_refuses_have_no_figures(chromium: Any, address: str) -> None:  # noqa: ANN401
    for state, why in (
        ({"n": 1025}, "context_length"),
        ({"n_heads": 7}, "divide"),
        ({"B": "1e3"}, "positive integer"),
        ({"B": 0}, "positive"),
    ):
        refused, _, figures = opened(chromium, address, **state)
        assert why in refused
        assert set(figures.values()) == {""}


def test_a_figure_opens_its_formula_with_the_numbers_in_place(chromium: Any, address: str) -> None:  # noqa: ANN401
    opened(chromium, address, B=3)
    script = (
        "[...document.querySelectorAll('.every tr')].find(row => row.textContent.startsWith(arguments[0])).querySelector('button').click()"
    )
    chromium.execute_script(script, "params_embedding")
    assert shown(chromium, ".formula") == "V·d_model"
    assert shown(chromium, ".numbers") == "50257·768"
    press(chromium, "close")


def test_training_flops_of_another_convention_are_shown_on_request(chromium: Any, address: str) -> None:  # noqa: ANN401
    opened(chromium, address)
    assert shown(chromium, "[data-at=convention]").startswith("7.000 TFLOP a step")  # as planner show prints for matmul
    field(chromium, "convention").send_keys("hardware")
    assert shown(chromium, "[data-at=convention]").startswith("7.154 TFLOP a step")  # and for hardware
    assert chromium.current_url.endswith("#convention=hardware")
    assert shown(chromium, ".command") == "planner run specs/gpt2-small.yaml"


def test_the_width_of_each_component_is_its_share_of_the_parameters(chromium: Any, address: str) -> None:  # noqa: ANN401
    opened(chromium, address)
    script = "return [...document.querySelectorAll('.areas > div')].map(one => one.getBoundingClientRect().width)"
    widths = chromium.execute_script(script)
    counts = sorted(planner.plan(planner.load(ROOT / "specs" / "gpt2-small.yaml")).parameters.by_component.values(), reverse=True)
    assert widths == pytest.approx([count / sum(counts) * sum(widths) for count in counts if count], abs=3)


def test_the_page_of_one_model_is_small_and_sends_no_requests(chromium: Any, address: str) -> None:  # noqa: ANN401
    chromium.get_log("browser")
    opened(chromium, address)
    assert chromium.get_log("browser") == []
    assert Path(address.removeprefix("file://")).stat().st_size < 150_000


def test_layouts_show_each_kind_of_device_and_say_what_does_not_divide(chromium: Any, tmp_path: Path) -> None:  # noqa: ANN401
    name = "fleet/llama-3-8b-8-h100"
    address = write(tmp_path / "page.html", name)
    state = {"devices": 64, "pipeline_parallel": 4, "tensor_parallel": 2, "gradient_accumulation": 8}
    why, command, _ = opened(chromium, address, **state)
    plan = planner.plan(spec_module.load(ROOT / "specs" / f"{name}.yaml", shlex.split(command)[4::2]))
    assert not why
    assert plan.fleet is not None
    said = chromium.execute_script("return [...document.querySelectorAll('.ranks .drawn .sub')].map(one => one.textContent)")
    memory = units.memory(plan.fleet.layout.cluster.memory_bytes - plan.fleet.layout.cluster.reserve_bytes)
    shown = [plan.fleet.ranks[number] for number in (0, 1, 3)]  # those between the second and the last one need less than the second
    assert said == [f"{rank.which.partition(':')[0]}: {units.memory(rank.peak_bytes)} of {memory}" for rank in shown]
    assert opened(chromium, address, tensor_parallel=3)[0] == (
        "tensor_parallel 3 * pipeline_parallel 1 * context_parallel 1 does not divide devices 8."
    )
    assert opened(chromium, address, pipeline_parallel=3, devices=24)[0] == "pipeline_parallel 3 does not divide n_layers 32."
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    opened(chromium, address, **state)
    assert chromium.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_spec_with_the_changes_has_the_same_figures(chromium: Any, tmp_path: Path) -> None:  # noqa: ANN401
    name = "llama-3-8b-8-h100"
    address = write(tmp_path / "page.html", f"fleet/{name}")
    opened(chromium, address, devices=16, tensor_parallel=2, n=4096, recompute="full")
    script = "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }"
    chromium.execute_script(script)
    press(chromium, "yaml")
    for path in (ROOT / "specs" / "fleet" / f"{name}.yaml", ROOT / "specs" / "catalog"):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "changed.yaml").write_text(chromium.execute_script("return window.copied"), encoding="utf-8")
    plan = planner.plan(planner.load(tmp_path / "changed.yaml"))
    assert shown(chromium, ".key dd button") == units.memory(plan.memory.peak_bytes)


@pytest.mark.parametrize("engine", ["transformers", "vllm", "llama.cpp"])
def test_serving_follows_users_and_context_as_the_planner_does(chromium: Any, tmp_path: Path, engine: str) -> None:  # noqa: ANN401
    serving = f"{{engine: {engine}, prompt: 2000, output: 128, batch_size: 4, memory: H100-80GB-SXM}}"
    path = tmp_path / "served.yaml"
    path.write_text(f"name: served\nextends: catalog/llama-3-8b\nserving: {serving}\n", encoding="utf-8")
    spec = planner.load(path)
    (tmp_path / "page.html").write_text(page.report([Planned(spec, planner.plans(spec))]), encoding="utf-8")
    generator = random.Random(engine)  # noqa: S311 - no secret
    for _ in range(CHANGES):
        state = {"users": generator.randint(1, 300), "prompt": generator.randint(1, 8000), "output": generator.randint(2, 500)}
        _, command, _ = opened(chromium, (tmp_path / "page.html").as_uri(), **state, memory="A100-40GB-PCIe")
        plan = planner.plan(spec_module.load(path, shlex.split(command)[4::2]))
        rows = "return [...document.querySelectorAll('.served tr')].map(row => [row.cells[0].title, row.cells[1].textContent])"
        values = {column.name: column.value(plan) for column in SERVED if not column.name.endswith(("_us", "_per_s"))}
        right = {name: units.exact(value).replace("-", "−") for name, value in values.items() if isinstance(value, int)}
        assert dict(chromium.execute_script(rows)) == right, command
        said, most = shown(chromium, "[data-at=users]"), re.compile(r"([\d,]+) users fit")
        found = most.search(said)
        assert found
        fits = int(found[1].replace(",", ""))
        for users in (fits, fits + 1) if fits else (1,):
            other = planner.plan(spec_module.load(path, [*shlex.split(command)[4::2], f"serving.batch_size={users}"]))
            assert other.served is not None
            assert served.fits(other.served) == (users == fits)


@pytest.mark.parametrize("width", [390, 1024, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_live_section_is_no_wider_than_the_window(chromium: Any, address: str, width: int, scheme: str) -> None:  # noqa: ANN401
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    opened(chromium, address)
    chromium.execute_script("document.querySelector('.live details').open = true")
    assert chromium.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_without_script_the_figures_of_the_spec_remain(chromium: Any, address: str) -> None:  # noqa: ANN401
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    chromium.get(address)
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert chromium.execute_script("return document.querySelector('.live').hidden")
    assert "8,619,550,076" in chromium.execute_script("return document.body.innerText")  # the peak in reports/capacity.csv
