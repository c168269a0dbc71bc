"""The Python API, and the examples in its docstrings, which docs/python.md shows."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest

import planner
from planner import api
from planner import spec as spec_room
from planner.cli import main
from planner.explore import table

ROOT = Path(__file__).parent.parent
TINY = "name: tiny\nmodel: {vocab_size: 200, context_length: 32, d_model: 64, n_layers: 2, n_heads: 4}\n"


@pytest.mark.parametrize("module", [planner, api, spec_room], ids=lambda module: str(module.__name__))
def test_docstring_examples_run(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testmod(module, extraglobs={"planner": planner})
    assert tried
    assert not failed


def test_every_scenario_can_be_planned_by_name_or_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(f"{TINY}scenarios: [{{name: short, sequence_length: 4}}]\n", encoding="utf-8")
    spec = planner.load(path)
    base, short = planner.plans(spec)
    assert planner.plan(spec) == base
    assert planner.plan(spec, "short") == short
    assert (base.training.sequence_length, short.training.sequence_length) == (32, 4)
    with pytest.raises(ValueError, match="unknown scenario 'shrt' of tiny; its scenarios are base, short"):
        planner.plan(spec, "shrt")


def test_an_invalid_spec_raises_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(TINY.replace("d_model", "d_modl"), encoding="utf-8")
    with pytest.raises(spec_room.SpecError, match="did you mean 'd_model'") as caught:
        planner.load(path)
    assert caught.value.problems[0].place.line == 2


MAPPING = {"name": "tiny", "model": {"vocab_size": 200, "context_length": 32, "d_model": 64, "n_layers": 2, "n_heads": 4}}


def test_a_mapping_is_read_as_a_file_of_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY, encoding="utf-8")
    assert planner.plan(MAPPING).memory == planner.plan(path).memory == planner.plan(planner.load(path)).memory
    with pytest.raises(planner.SpecError, match=r"<mapping>:1:\d+: error\[unknown-key\]: unknown key 'modle'"):
        planner.load({"modle": {}, **MAPPING})


# GPT-2's block: 12·d² + 13·d parameters (4 matrices of attention, 8 of the feed-forward; biases and norms).
def test_settings_change_by_keyword_and_by_dotted_key() -> None:
    block = 12 * 64**2 + 13 * 64
    total = planner.plan(MAPPING).parameters.total
    assert planner.plan(MAPPING, n_layers=5).parameters.total == total + 3 * block
    assert planner.plan(MAPPING, set={"model.n_layers": 5}).parameters.total == total + 3 * block
    assert planner.plan(planner.load(MAPPING), n_layers=np.int64(5), batch_size=3).training.batch_size == 3


def test_a_keyword_holds_in_the_scenario_that_is_planned() -> None:
    spec = planner.load({**MAPPING, "scenarios": [{"name": "short", "sequence_length": 4}]})
    assert planner.plan(spec, "short", sequence_length=8).training.sequence_length == 8
    assert planner.plan(spec, "short", batch_size=8).training.sequence_length == 4
    assert [plan.training.batch_size for plan in planner.plans(spec, set={"training.batch_size": 8})] == [8, 8]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: planner.plan(MAPPING, batchsize=4), TypeError, "unknown setting 'batchsize'; did you mean batch_size?"),
        (lambda: planner.plan(MAPPING, batch_size=0), planner.SpecError, "training.batch_size must be at least 1, not 0"),
        (lambda: planner.plan(MAPPING, set={"training.batch_size": 2.5}), planner.SpecError, "must be a whole number, not 2.5"),
        (lambda: planner.plan(MAPPING, set={"training.batch_size": object()}), TypeError, "cannot be interpreted as an integer"),
        (lambda: planner.plan(MAPPING, set={"training.tokens": float("inf")}), ValueError, "Out of range float"),
        (lambda: planner.fit(MAPPING, "80"), ValueError, "use a number and a unit, for example 80GB"),
        (lambda: planner.fit(MAPPING, "80GB", vary=["width"]), ValueError, "cannot vary 'width'; choose from batch_size"),
        (lambda: planner.sweep(MAPPING, {}, metric="size"), ValueError, "unknown metric 'size'"),
        (lambda: planner.sweep(MAPPING, {"training.batch_size": [True]}), ValueError, "must be a list of positive integers"),
        (lambda: planner.sweep(MAPPING, {"training.batch_size": []}), ValueError, "training.batch_size has no values"),
        (lambda: planner.sweep(MAPPING, {"model.n_layers": range(10**12)}), ValueError, "model.n_layers has more than 10,000,000 values"),
        (
            lambda: planner.sweep(MAPPING, {"training.batch_size": [1]}, set={"training.batch_size": 4}),
            ValueError,
            "training.batch_size is set twice",
        ),
        (lambda: planner.plan(MAPPING, batch_size=2, set={"training.batch_size": 4}), TypeError, "batch_size is given twice"),
        (lambda: planner.plan(MAPPING, set=cast("Any", ["training.batch_size=4"])), TypeError, "set must be a mapping of dotted keys"),
        (lambda: planner.load(cast("Any", None)), TypeError, "a spec must be a Spec, a path or a mapping, not NoneType"),
        (planner.compare, TypeError, "at least one spec"),
        (lambda: planner.compare(planner.plan(MAPPING), set={"training.batch_size": 4}), TypeError, "set changes specs, not plans"),
        (planner.size, TypeError, "one of params, flops and memory"),
        (lambda: planner.size("7B", like="gpt5"), ValueError, "no spec file or catalog model named 'gpt5'"),
        (lambda: planner.diff(base="nowhere"), ValueError, "nowhere"),
        (lambda: planner.lod, AttributeError, "module 'planner' has no attribute 'lod'; did you mean 'load'?"),
    ],
)
def test_a_wrong_argument_is_named(wrong: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        wrong()


# Llama-3.2-1B has 1,235,814,400 parameters (Hugging Face's count of its safetensors)
def test_a_mapping_may_have_the_keys_of_a_config_json() -> None:
    config = {
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "tie_word_embeddings": True,
    }  # fmt: skip
    assert planner.plan(config, sequence_length=512).parameters.total == 1_235_814_400


def test_the_package_shows_the_api_and_nothing_else() -> None:
    assert set(dir(planner)) == {*api.__all__, "__version__"}
    assert all(getattr(planner, name) for name in dir(planner))


def test_the_functions_return_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = "tiny.yaml"
    Path(path).write_text(TINY, encoding="utf-8")

    def printed(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    fits = json.loads(printed("fit", path, "--memory", "1GiB", "--format", "json"))["fits"]
    assert [asdict(one) for one in planner.fit(path, "1GiB")] == [asdict(one) for one in planner.fit(path, 2**30)] == fits
    sizes = json.loads(printed("size", "--params", "1e9", "--format", "json"))
    assert all(shape.pop("not_counted") == [] for shape in sizes)
    assert [asdict(one) for one in planner.size("1B")] == [asdict(one) for one in planner.size(10**9)] == sizes
    printed("sweep", path, "--set", "training.batch_size=1..4", "--set", "training.precision=bf16,fp32")
    grid = planner.sweep(path, {"training.batch_size": range(1, 5), "training.precision": "bf16,fp32"})
    assert "".join(table.csv(grid)) == (tmp_path / "reports" / "sweep.csv").read_text(encoding="utf-8")
    assert grid.to_frame().to_csv(index=False) == (tmp_path / "reports" / "sweep.csv").read_text(encoding="utf-8")
    wider = planner.load(path, set={"name": "wider", "model.d_model": 128})
    compared = planner.compare(path, wider)
    assert compared.lines == planner.compare(planner.plan(path), planner.plan(wider)).lines
    assert "| params_total |" in printed("compare", path, "--format", "md")
