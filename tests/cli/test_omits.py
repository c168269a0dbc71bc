"""What a spec leaves out of its source model, and that batches count as unpadded, in the outputs of all commands."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

Planner = Callable[..., tuple[int, str, str]]
PART = "vision tower 50% of it"
SWEEP = ("sweep", "specs/seer.yaml", "--set", "training.batch_size=1,2", "--set", "training.precision=fp32,bf16")
# LLaVA-1.5's shape, made small: the text part carries only what differs from the defaults of its class.
LLAVA = {
    "model_type": "llava_next",  # whose pictures are of many sizes
    "text_config": {"model_type": "llama", "vocab_size": 97, "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32},
}


@pytest.fixture(autouse=True)
def seer(home: Path) -> None:
    tiny = (home / "specs" / "tiny.yaml").read_text(encoding="utf-8")
    seer = tiny.replace("name: tiny", f'name: seer\nomits: ["{PART}"]')
    (home / "specs" / "seer.yaml").write_text(seer, encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "specs"),
        ("show", "specs/seer.yaml"),
        ("show", "specs/seer.yaml", "--explain"),
        ("show", "specs/seer.yaml", "--format", "json"),
        *(("fit", "specs/seer.yaml", "--memory", "1GiB", "--format", form) for form in ("text", "json")),
        *((*SWEEP, "--format", form) for form in ("text", "md", "json")),
        *(("compare", "specs", "--format", form) for form in ("text", "md", "json")),
    ],
)
def test_output_names_what_is_left_out_and_that_no_batch_is_padded(planner: Planner, arguments: tuple[str, ...]) -> None:
    code, out, _ = planner(*arguments)
    assert code == 0
    assert PART in out
    assert "padding" in out


@pytest.mark.parametrize("form", ["text", "json"])
def test_sizes_like_a_model_name_what_it_leaves_out(home: Path, planner: Planner, form: str) -> None:
    spec = (
        (home / "specs" / "seer.yaml").read_text(encoding="utf-8").partition("expect")[0].replace("n_heads: 4", "n_heads: 4\n  d_ff: 256")
    )
    (home / "like.yaml").write_text(spec, encoding="utf-8")
    assert PART in planner("size", "--params", "1e8", "--like", "like.yaml", "--format", form)[1]


def test_every_report_names_what_is_left_out(home: Path, planner: Planner) -> None:
    assert planner("run", "specs", "--format", "csv,md,json,html")[0] == 0
    reports = home / "reports"
    for name in ("capacity.csv", "capacity.md", "capacity.json", "capacity.html"):
        assert PART in (reports / name).read_text(encoding="utf-8")
    rows = (reports / "capacity.csv").read_text(encoding="utf-8").splitlines()
    assert [row.rpartition(",")[2] for row in rows] == ["omits", PART, PART, "", ""]
    package = json.loads((reports / "datapackage.json").read_text(encoding="utf-8"))
    fields = {field["name"]: field["description"] for field in package["resources"][0]["schema"]["fields"]}
    assert "in no value of this row" in fields["omits"]
    assert "no batch is padded" in fields["batch_size"]


def test_the_workbook_names_what_is_left_out(home: Path, planner: Planner) -> None:
    pytest.importorskip("xlsxwriter", reason="the extra xlsx is not installed")
    assert planner("run", "specs", "--format", "xlsx")[0] == 0
    with zipfile.ZipFile(io.BytesIO((home / "reports" / "capacity.xlsx").read_bytes())) as book:
        strings = book.read("xl/sharedStrings.xml").decode()
    assert f"Not counted in seer: {PART}." in strings
    assert "no padding" in strings


def test_every_file_of_a_sweep_names_what_is_left_out(home: Path, planner: Planner) -> None:
    assert planner(*SWEEP)[0] == 0
    for name in ("sweep.csv", "sweep.md", "sweep.svg"):
        assert PART in (home / "reports" / name).read_text(encoding="utf-8")
    rows = (home / "reports" / "sweep.csv").read_text(encoding="utf-8").splitlines()
    assert [row.rpartition(",")[2] for row in rows] == ["omits", *[PART] * 4]


@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_a_comparison_with_pytorch_names_what_is_left_out(planner: Planner, form: str) -> None:
    pytest.importorskip("torch", reason="the extra torch is not installed")
    code, out, _ = planner("verify", "specs/seer.yaml", "--format", form)
    assert (code, PART in out) == (0, True)


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_list_of_published_models_names_what_is_left_out(planner: Planner, form: str) -> None:
    assert "vision tower and projector" in planner("list", "llama-4-scout", "--format", form)[1]  # the spec has the text model alone
    assert "vision" not in planner("list", "llama-3-8b", "--format", form)[1]


def test_a_composite_config_that_is_planned_directly_names_its_towers(home: Path, planner: Planner) -> None:
    (home / "config.json").write_text(json.dumps(LLAVA), encoding="utf-8")
    assert "vision tower and projector" in planner("run", "config.json")[1]
    assert "vision tower and projector" in (home / "reports" / "capacity.csv").read_text(encoding="utf-8")
    assert "planner: not counted: vision tower and projector\n" in planner("import", "config.json")[2]


def test_a_spec_that_extends_another_leaves_out_the_same_parts(home: Path, planner: Planner) -> None:
    (home / "specs" / "more.yaml").write_text("name: more\nextends: seer.yaml\n", encoding="utf-8")
    assert f"Not counted in more, seer: {PART}." in planner("run", "specs")[1]
