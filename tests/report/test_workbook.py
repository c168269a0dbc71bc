"""capacity.xlsx: its formulas, calculated by LibreOffice, equal the planner's results for any inputs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import pytest

import planner
from planner import devices
from planner import spec as specs_room
from planner.report import workbook
from planner.report.columns import COLUMNS, COMPONENT_COLUMNS, component_rows, row
from planner.report.planned import BudgetLimit, Planned
from planner.report.xlsx.book import figure_columns
from planner.spec.records import RESERVE_BYTES, Spec
from planner.trace.sizes import Size, ceil_div, symbol
from planner.trace.spreadsheet import spreadsheet

ROOT = Path(__file__).parent.parent.parent
EXACT = 2**53  # doubles hold all whole numbers up to here

needs_libreoffice = pytest.mark.skipif(shutil.which("soffice") is None, reason="the workbook in LibreOffice: needs libreoffice-calc-nogui")

Sheets = Mapping[str, list[list[str]]]


def calculated(book: Path) -> Sheets:
    """Calculate a workbook without stored values in LibreOffice, and return the cells of every sheet with all digits."""
    form = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,false,false,-1"  # UTF-8, unformatted cells, every sheet
    profile = f"-env:UserInstallation={(book.parent.parent / 'profile').as_uri()}"
    folder = book.parent / f"calculated-{book.stem}"
    command = ["soffice", profile, "--headless", "--convert-to", form, "--outdir", str(folder), str(book)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    sheets = {}
    for path in folder.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            sheets[path.stem.partition("-")[2]] = list(csv.reader(file))
    return sheets


def planned(*specs: Spec) -> list[Planned]:
    return [Planned(spec, planner.plans(spec)) for spec in specs]


def changed(made: bytes, path: Path, changes: Mapping[int, Mapping[str, int | str]]) -> Path:
    """Write the workbook with other inputs; openpyxl drops the values that formulas had."""
    path.write_bytes(made)
    book = openpyxl.load_workbook(path)
    sheet = book["Inputs"]
    heads = [cell.value for cell in sheet[1]]
    for number, inputs in changes.items():
        for name, value in inputs.items():
            sheet.cell(number, heads.index(name) + 1).value = value
    book.save(path)
    return path


def same(given: str, expected: object) -> bool:
    """Whether a cell equals the planner's result, beyond 2⁵³ up to the precision of a double."""
    if expected is None:
        return given == ""
    if not isinstance(expected, int):
        return given == expected
    return int(given) == expected if expected <= EXACT else abs(int(float(given)) - expected) * EXACT <= 16 * expected


IN_GIB = [unit == "GiB" for _, unit in figure_columns()]


def figures(line: list[str]) -> list[str]:
    """Return a line of Figures without its columns in GiB, which must be the columns before them divided by 2³⁰."""
    for before, cell, gib in zip(line, line[1:], IN_GIB[1:], strict=False):
        assert not gib or (before and float(cell) == pytest.approx(int(before) / 2**30)), line
    return figures_of(line)


def figures_of(line: list[str]) -> list[str]:
    return [cell for cell, gib in zip(line, IN_GIB, strict=True) if not gib]


def headings_of(sheet: Any) -> list[str]:  # noqa: ANN401 - openpyxl has no types here
    return [str(cell.value) for cell in sheet[1]]


KEYS = {"B": "training.batch_size", "n": "training.sequence_length", "n_layers": "model.n_layers", "d_model": "model.d_model"}
CASES = (
    ("specs/gpt2-small.yaml", {"B": 37, "n": 777, "n_layers": 31, "d_model": 1152}),  # head_dim and d_ff follow: 96 and 4608
    ("specs/gpt2-xl.yaml", {"B": 1, "n": 1}),
    ("specs/llama-3-8b.yaml", {"B": 3, "n": 1000, "n_layers": 7, "d_model": 2048}),
    ("specs/catalog/deepseek_v3/deepseek-v3.yaml", {"B": 2, "n": 511, "d_model": 6144}),
    ("specs/catalog/gemma2/gemma-2-2b.yaml", {"B": 5, "n": 4095, "d_model": 2560}),
    ("specs/catalog/jamba/jamba-v0.1.yaml", {"B": 2, "n": 300}),
)


@needs_libreoffice
def test_other_inputs_give_the_results_of_the_planner(tmp_path: Path) -> None:
    """Compare every cell of Figures and Components, for dense models, experts, windows and state spaces."""
    models = planned(*(planner.load(ROOT / path) for path, _ in CASES))
    rows, number = {}, 2
    for model, (_, changes) in zip(models, CASES, strict=True):
        for _ in model.plans:  # in every scenario
            rows[number] = changes
            number += 1
    sheets = calculated(changed(workbook.workbook(models), tmp_path / "book.xlsx", rows))
    capacity, components = sheets["Figures"][1:], sheets["Components"][1:]
    compared = 0
    for model, (path, changes) in zip(models, CASES, strict=True):
        overrides = [f"{KEYS[name]}={value}" for name, value in changes.items()]
        (other,), problems = specs_room.read([ROOT / path], overrides)
        assert not problems
        for before, scenario in zip(model.plans, other.scenarios, strict=True):
            plan = planner.plan(other, scenario.name)
            line = figures(capacity.pop(0))
            if any(
                step in changes and getattr(plan.training, key) != changes[step]
                for step, key in (("B", "batch_size"), ("n", "sequence_length"))
            ):
                components = components[len(list(component_rows(before))) :]
                continue  # the scenario sets its own batch or length, which --set does not change
            wrong = [
                (column.name, given, value) for column, given, value in zip(COLUMNS, line, row(plan), strict=True) if not same(given, value)
            ]
            assert not wrong, path
            for expected in component_rows(plan):
                given = components.pop(0)
                assert given[:4] == list(expected[:4])
                assert same(given[4], expected.quantity), (path, expected, given)
                compared += 1
    assert compared > 6 * 30


@needs_libreoffice
@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "fp32", "recompute": "full", "optimizer": "muon", "B": 3, "n_layers": 5},
        {"precision": "bf16-master", "recompute": "selective", "optimizer": "adamw-8bit", "n": 500, "d_model": 1536},
    ],
)
def test_other_choices_give_the_results_of_the_planner(tmp_path: Path, changes: dict[str, int | str]) -> None:
    path = ROOT / "specs/gpt2-small.yaml"
    sheets = calculated(changed(workbook.workbook(planned(planner.load(path))), tmp_path / "book.xlsx", {2: changes}))
    plan = planner.plan(specs_room.load(path, [f"{KEYS.get(name, f'training.{name}')}={value}" for name, value in changes.items()]))
    given = figures(sheets["Figures"][1])
    assert [(column.name, cell) for column, cell, value in zip(COLUMNS, given, row(plan), strict=True) if not same(cell, value)] == []
    for line, expected in zip(sheets["Components"][1:], component_rows(plan), strict=True):
        assert same(line[4], expected.quantity), line
    assert sheets["Inputs"][1][sheets["Inputs"][0].index("check")] == ""


@needs_libreoffice
def test_choices_that_cannot_be_combined_and_sizes_of_other_kernels_are_reported(tmp_path: Path) -> None:
    made = workbook.workbook(planned(planner.load(ROOT / "specs/gpt2-small.yaml")))
    for changes, why in (
        ({"precision": "fp32", "optimizer": "unknown"}, "precision, recompute, optimizer cannot be combined; "),
        ({"d_model": 12 * 65}, "these sizes call for other kernels than the figures have; "),  # flash attention needs a multiple of 8
    ):
        inputs = calculated(changed(made, tmp_path / f"{len(why)}.xlsx", {2: changes}))["Inputs"]
        assert inputs[1][inputs[0].index("check")] == why


@needs_libreoffice
def test_quotients_are_exact_where_a_double_rounds_them_to_the_next_integer(tmp_path: Path) -> None:
    """The right values are Python's integers; LibreOffice's own INT((2⁵³ - 1) / 512) is one too high."""
    pairs = [
        (EXACT - 1, 512),
        (EXACT - 1, 4096),
        (EXACT - 512, 512),
        (2**49 - 1, 256),
        (10**15 - 1, 3),
        (9 * 10**15 - 1, 7),
        (0, 5),
        (4, 5),
    ]
    a, b = symbol("a"), symbol("b")
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for number, (dividend, divisor) in enumerate(pairs, start=1):
        cells: dict[Any, str] = {"a": f"A{number}", "b": f"B{number}"}
        sizes: tuple[Size, Size] = (a // b, ceil_div(a, b))
        sheet.append([dividend, divisor, *(f"={spreadsheet(size, cells)}" for size in sizes)])
    book.save(tmp_path / "quotients.xlsx")
    (cells_of,) = calculated(tmp_path / "quotients.xlsx").values()
    assert [[int(cell) for cell in line] for line in cells_of] == [[x, y, x // y, -(-x // y)] for x, y in pairs]


def test_every_formula_is_stored_with_its_value(tmp_path: Path) -> None:
    """A viewer that does not calculate shows the report."""
    models = planned(planner.load(ROOT / "specs/gpt2-small.yaml"))
    (tmp_path / "book.xlsx").write_bytes(workbook.workbook(models))
    values = openpyxl.load_workbook(tmp_path / "book.xlsx", data_only=True)
    formulas = openpyxl.load_workbook(tmp_path / "book.xlsx")
    assert values.sheetnames == ["Summary", "Inputs", "Figures", "Components", "Sources", "Budgets", "Choices", "Workings", "Lists"]
    (plan,) = models[0].plans
    headings = [str(cell.value) for cell in values["Figures"][1]]
    assert [heading.partition(" (")[0] for heading in figures_of(headings)] == [column.name for column in COLUMNS]
    assert {"params_total (parameters)", "peak_bytes (bytes)", "peak_bytes (GiB)", "precision"} <= set(headings)
    stored = figures(["" if cell.value is None else str(cell.value) for cell in values["Figures"][2]])
    assert all(map(same, stored, row(plan)))
    components = [tuple(cell.value for cell in line)[:-1] for line in values["Components"]]
    assert components == [COMPONENT_COLUMNS, *map(tuple, component_rows(plan))]
    total = headings.index("params_total (parameters)") + 1
    assert str(formulas["Figures"].cell(2, total).value).startswith("=4*Inputs!$")
    assert values["Figures"].cell(2, total).value == 124_439_808
    described = {(line[0].value, line[1].value) for line in values["Sources"].iter_rows(min_row=2)}
    assert {("Figures", column.name) for column in COLUMNS} | {("Inputs", "B"), ("specs", "gpt2-small")} <= described


def test_sheets_are_set_up_for_print_and_only_inputs_are_open(tmp_path: Path) -> None:
    models = planned(planner.load(ROOT / "specs/gpt2-small.yaml"))
    (tmp_path / "book.xlsx").write_bytes(workbook.workbook(models))
    book = openpyxl.load_workbook(tmp_path / "book.xlsx")
    for sheet in book:
        assert sheet.protection.sheet
        assert sheet.sheet_properties.pageSetUpPr.fitToPage
        assert (sheet.page_setup.orientation, sheet.page_setup.fitToWidth or 1, sheet.page_setup.fitToHeight) == ("landscape", 1, 0)
        assert sheet.print_title_rows == {"Summary": "$22:$22", "Choices": "$2:$2"}.get(sheet.title, "$1:$1")
        for line in sheet.iter_rows():
            for cell in line:
                assert cell.protection.locked or sheet.title == "Inputs", cell.coordinate
    inputs = book["Inputs"]
    open_cells = {str(inputs.cell(1, cell.column).value) for cell in inputs[2] if not cell.protection.locked}
    assert {"B", "n", "n_layers", "d_model", "n_heads", "device"} <= open_cells
    assert "head_dim" not in open_cells  # it follows d_model and n_heads
    width = inputs.cell(1, headings_of(inputs).index("d_model") + 1).column_letter
    assert book.defined_names["d_model"].attr_text == f"Inputs!${width}$2"
    assert len(book["Summary"]._charts) == 2  # noqa: SLF001 - openpyxl has no other way to list what it read


@needs_libreoffice
def test_the_summary_compares_the_peak_with_the_chosen_device(tmp_path: Path) -> None:
    specs = [planner.load(ROOT / "specs" / name) for name in ("gpt2-small.yaml", "fleet/llama-3-8b-8-h100.yaml")]
    models = planned(*specs)
    made = workbook.workbook(models)
    summary = calculated(changed(made, tmp_path / "own.xlsx", {}))["Summary"]
    h200 = devices.find("H200-141GB-SXM")
    assert h200 is not None
    other = calculated(changed(made, tmp_path / "other.xlsx", {2: {"device": h200.name, "B": 400}, 3: {"device": h200.name}}))["Summary"]
    head = summary[21]
    free, verdict = head.index("free (GiB)"), head.index("verdict")
    peaks = [model.plans[0].memory.peak_bytes for model in models]
    larger = planner.plan(specs_room.load(ROOT / "specs/gpt2-small.yaml", ["training.batch_size=400"])).memory.peak_bytes
    fleet = models[1].plans[0].training.layout
    a100 = devices.find("a100")
    assert a100 is not None
    assert fleet is not None
    left = [a100.memory_bytes - RESERVE_BYTES - peaks[0], fleet.cluster.memory_bytes - fleet.cluster.reserve_bytes - peaks[1]]
    assert [float(line[free]) for line in summary[22:24]] == pytest.approx([size / 2**30 for size in left])
    assert [line[verdict] for line in summary[22:24]] == ["fits", "fits"]
    left = [h200.memory_bytes - RESERVE_BYTES - larger, h200.memory_bytes - fleet.cluster.reserve_bytes - peaks[1]]
    assert [float(line[free]) for line in other[22:24]] == pytest.approx([size / 2**30 for size in left])
    assert [line[verdict] for line in other[22:24]] == ["exceeds the device", "fits"]


class Calculator:
    """A spreadsheet of whole numbers, in Python's exact arithmetic, for machines without LibreOffice."""

    def __init__(self, path: Path) -> None:
        self.sheets = openpyxl.load_workbook(path)
        self.made: dict[tuple[str, str], int] = {}

    def cell(self, sheet: str, name: str) -> int:
        """Return the value of a cell."""
        if (sheet, name) not in self.made:
            held = self.sheets[sheet][name].value
            self.made[sheet, name] = self.formula(sheet, held) if isinstance(held, str) else int(held)
        return self.made[sheet, name]

    def formula(self, sheet: str, text: str) -> int:
        """Calculate a formula: references become calls; quotients only occur inside INT."""
        refers = re.sub(
            r"(?:(\w+)!)?\$?([A-Z]{1,3})\$?(\d+)", lambda found: f"cell('{found[1] or sheet}', '{found[2]}{found[3]}')", text[1:]
        )
        names = {"cell": self.cell, "INT": int, "GESTEP": lambda a, b: int(a >= b), "MIN": min, "MAX": max}
        value: int = eval(refers.replace("/", "//"), {"__builtins__": {}}, names)  # noqa: S307 - our own workbook
        return value


def test_every_formula_gives_its_stored_value(tmp_path: Path) -> None:
    """For every spec in the folder specs, two on several devices, and one with rounding in optimizer and allocator."""
    paths = [*sorted((ROOT / "specs").glob("*.yaml")), *sorted((ROOT / "specs/fleet").glob("llama-3-*-h100.yaml"))]
    rounding = ["training.round_allocations=true", "training.optimizer=adamw-8bit"]
    specs, problems = specs_room.read(paths)
    more, _ = specs_room.read([ROOT / "specs/gpt2-small.yaml"], rounding)
    assert not problems
    (tmp_path / "book.xlsx").write_bytes(workbook.workbook(planned(*specs, *(replace(spec, name="rounded") for spec in more))))
    calculator = Calculator(tmp_path / "book.xlsx")
    values = openpyxl.load_workbook(tmp_path / "book.xlsx", data_only=True)
    compared = 0
    for sheet in ("Figures", "Components", "Workings"):
        for line in calculator.sheets[sheet].iter_rows(min_row=2):
            for cell in line:
                if cell.data_type == "f" and cell.number_format == "#,##0":
                    assert same(str(values[sheet][cell.coordinate].value), calculator.cell(sheet, cell.coordinate)), (
                        sheet,
                        cell.coordinate,
                    )
                    compared += 1
    assert compared > 50 * len(specs)


def test_the_same_plans_give_the_same_bytes() -> None:
    models = planned(planner.load(ROOT / "specs/gpt2-small.yaml"))
    assert workbook.workbook(models) == workbook.workbook(models)


@pytest.fixture
def load(tmp_path: Path) -> Callable[[dict[str, Any]], Spec]:
    def read(written: dict[str, Any]) -> Spec:
        path = tmp_path / "model.yaml"
        path.write_text(json.dumps(written), encoding="utf-8")
        return planner.load(path)

    return read


SMALL = {"vocab_size": 200, "context_length": 32, "d_model": 64, "n_heads": 4}


@needs_libreoffice
def test_counts_of_layer_groups_are_inputs(load: Callable[[dict[str, Any]], Spec], tmp_path: Path) -> None:
    def model(first: int, last: int) -> dict[str, Any]:
        return {"name": "runs", "model": SMALL | {"layers": [{"count": first, "d_ff": 100}, {"count": last, "n_kv_heads": 1}]}}

    made = workbook.workbook(planned(load(model(2, 3))))
    sheets = calculated(changed(made, tmp_path / "book.xlsx", {2: {"layers.count": 5, "layers.count_2": 7}}))
    expected = row(planner.plan(load(model(5, 7))))
    assert all(same(given, value) for given, value in zip(figures(sheets["Figures"][1]), expected, strict=True))


@needs_libreoffice
def test_invalid_inputs_are_reported(load: Callable[[dict[str, Any]], Spec], tmp_path: Path) -> None:
    made = workbook.workbook(planned(load({"name": "learned", "model": SMALL | {"n_layers": 2}})))
    good = calculated(changed(made, tmp_path / "good.xlsx", {2: {"n": 32, "d_model": 128}}))["Inputs"]
    assert good[1][good[0].index("check")] == ""
    bad = calculated(changed(made, tmp_path / "bad.xlsx", {2: {"n": 33, "d_model": 90}}))["Inputs"]
    assert bad[1][bad[0].index("check")] == (
        "n is beyond context_length; n_heads does not divide d_model; these sizes call for other kernels than the figures have; "
    )


DELTA_RULE = {"mixer": "gated_delta_net", "gated_delta_net": {"n_key_heads": 2, "n_value_heads": 2, "key_dim": 8, "value_dim": 8}}


@needs_libreoffice
@pytest.mark.parametrize(
    ("parts", "longest", "why"),
    [
        ({"attention": {"window": 16}}, 15, "a window begins or ceases to limit n, which calls for other kernels; "),
        (
            DELTA_RULE,
            64,
            "n begins or ceases to fill several chunks, which calls for other operators; ",
        ),
    ],
)
def test_a_sequence_that_crosses_a_limit_is_reported(
    load: Callable[[dict[str, Any]], Spec], tmp_path: Path, parts: dict[str, Any], longest: int, why: str
) -> None:
    model = SMALL | {"n_layers": 2, "positions": "rope", "context_length": 128} | parts
    training = {"implementation": "transformers", "sequence_length": 8}
    made = workbook.workbook(planned(load({"name": "windowed", "model": model, "training": training})))
    good = calculated(changed(made, tmp_path / "good.xlsx", {2: {"n": longest}}))["Inputs"]
    bad = calculated(changed(made, tmp_path / "bad.xlsx", {2: {"n": longest + 1}}))["Inputs"]
    column = good[0].index("check")
    assert (good[1][column], bad[1][column]) == ("", f"{why}these sizes call for other kernels than the figures have; ")


@needs_libreoffice
def test_extra_tensors_do_not_follow_the_inputs_and_this_is_stated(load: Callable[[dict[str, Any]], Spec], tmp_path: Path) -> None:
    extra = [{"name": "scale", "shape": ["d_model"], "component": "norm"}]
    made = workbook.workbook(planned(load({"name": "extra", "model": SMALL | {"n_layers": 2, "extra": extra}})))
    kept = calculated(changed(made, tmp_path / "kept.xlsx", {2: {"n": 7}}))["Inputs"]
    moved = calculated(changed(made, tmp_path / "moved.xlsx", {2: {"d_model": 128}}))["Inputs"]
    column = kept[0].index("check")
    assert (kept[1][column], moved[1][column]) == ("", "the spec's extra tensors keep the sizes that they have; ")


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "sep-10", "+1", "@SUM(A1)", "1e5", '=HYPERLINK("http://x")'])
def test_a_name_stays_text(load: Callable[[dict[str, Any]], Spec], tmp_path: Path, name: str) -> None:
    (tmp_path / "book.xlsx").write_bytes(workbook.workbook(planned(load({"name": name, "model": SMALL | {"n_layers": 2}}))))
    book = openpyxl.load_workbook(tmp_path / "book.xlsx")
    cells = [book[sheet].cell(2, 1) for sheet in ("Inputs", "Figures", "Components", "Workings")]
    assert [(cell.value, cell.data_type) for cell in cells] == [(name, "s")] * 4


@needs_libreoffice
def test_budgets_follow_the_inputs(load: Callable[[dict[str, Any]], Spec], tmp_path: Path) -> None:
    spec = load({"name": "tiny", "model": SMALL | {"n_layers": 2}, "training": {"batch_size": 1, "sequence_length": 8}})
    # 200·64 + 32·64 + 2·(12·64² + 13·64) + 2·64 = 114,944 parameters; a third layer makes 49,984 more
    limits = (
        BudgetLimit("size", "base", "params_total", "max", 120_000, "error"),
        BudgetLimit("floor", "base", "params_total", "min", 114_944, "warning"),
        BudgetLimit("growth", "base", "params_total", "max_increase", None, "error"),
    )
    made = workbook.workbook([Planned(spec, planner.plans(spec), budgets=limits)])
    (tmp_path / "stored.xlsx").write_bytes(made)
    stored = openpyxl.load_workbook(tmp_path / "stored.xlsx", data_only=True)["Budgets"]
    assert [[cell.value for cell in line[4:9]] for line in stored.iter_rows(min_row=2)] == [
        ["max", 120_000, 114_944, 5_056, "ok"],
        ["min", 114_944, 114_944, 0, "ok"],
        ["max_increase", None, 114_944, None, "needs a base; use planner diff"],
    ]
    budgets = calculated(changed(made, tmp_path / "book.xlsx", {2: {"n_layers": 3}}))["Budgets"]
    assert [line[6:9] for line in budgets[1:3]] == [["164928", "-44928", "exceeded"], ["164928", "49984", "ok"]]
