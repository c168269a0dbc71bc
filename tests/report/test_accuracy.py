"""Every plan reports whether its class and setting were measured, and how much it differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.report import accuracy as module
from planner.report import breakdown, omitted
from planner.report.accuracy import COLUMNS, accuracy
from planner.spec.records import Cluster, Layout
from tests.capacity import fleet_steps

PlanModel = Callable[..., Plan]
LLAMA: dict[str, Any] = {
    "vocab_size": 97, "context_length": 64, "d_model": 48, "n_layers": 2, "n_heads": 6, "positions": "rope", "norm": {"type": "rmsnorm"},
    "feed_forward": {"type": "gated", "activation": "silu"}, "d_ff": 80,
    "attention": {"bias": False, "qkv": "separate"}, "head": {"tied": False},
}  # fmt: skip
ROWS = """\
llama,sdpa,bf16,none,,0,0,0,0,0,
llama,sdpa,bf16,full,,0,0,0,0,-0.3,
mistral,sdpa,bf16,none,,0,0,0,0,0,
mistral,sdpa,bf16,none,w,0,-11,-6,0,+5.6,
bloom,sdpa,bf16,none,,,,,,,"transformers: no, not ""here"" yet"
"""


@pytest.fixture(autouse=True)
def _table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    table = tmp_path / "measured.csv"
    table.write_text(f"{','.join(COLUMNS)}\n{ROWS}", encoding="utf-8")
    monkeypatch.setattr(module, "TABLE", table)
    module.rows_of.cache_clear()
    yield
    module.rows_of.cache_clear()


@pytest.fixture
def known(plan_model: PlanModel) -> Callable[..., module.Accuracy]:
    def of(model: dict[str, Any], **training: object) -> module.Accuracy:
        made = plan_model(LLAMA | model, **{"implementation": "transformers", "precision": "bf16", "batch_size": 1} | training)
        return accuracy(made.model, made.training)

    return of


def test_an_equal_measurement(known: Callable[..., module.Accuracy]) -> None:
    ours = known({"model_type": "llama"})
    assert ours.equal
    assert ours.text == (
        "a small model of class llama was measured on a simulated A100 (sdpa, bf16): "
        "parameters, saved bytes, allocated bytes, FLOPs and peak equal"
    )


def test_a_different_peak_is_reported_and_counts_as_equal(known: Callable[..., module.Accuracy]) -> None:
    ours = known({"model_type": "llama"}, recompute="full")
    assert ours.equal
    assert ours.text.endswith("(sdpa, bf16, recompute: full): parameters, saved bytes, allocated bytes and FLOPs equal, peak 0.3 % too low")


def test_differences_of_a_model_with_windows(known: Callable[..., module.Accuracy]) -> None:
    assert known({"model_type": "mistral"}, sequence_length=16).equal
    ours = known({"model_type": "mistral", "attention": LLAMA["attention"] | {"window": 8}}, sequence_length=16)
    assert not ours.equal
    assert ours.text.endswith(
        "(sdpa, bf16, window < n): parameters and FLOPs equal, saved bytes 11 % too low, allocated bytes 6 % too low, peak 5.6 % too high"
    )


def test_classes_and_settings_that_were_not_measured(known: Callable[..., module.Accuracy]) -> None:
    assert known({"model_type": "llama"}, precision="fp32").text == "class llama was measured only in other settings"
    assert known({"model_type": "qwen2"}).text == "class qwen2 was not measured"
    assert known({"model_type": "bloom"}).text == 'class bloom was not measured with sdpa, bf16; transformers: no, not "here" yet'
    assert "was measured" in known({}).text
    assert "which stands for a model without model.model_type" in known({}).text


def test_settings_that_no_class_was_measured_with(known: Callable[..., module.Accuracy]) -> None:
    ours = known({"model_type": "llama"}, dropout=0.1, optimizer="sgd", batch_size=3)
    assert not ours.equal
    assert ours.text.endswith("FLOPs and peak equal; not measured with optimizer, dropout")
    assert known({"model_type": "llama"}, precision="fp16-autocast").text.endswith("was measured only in other settings")
    assert known({"model_type": "llama"}, precision="bf16-master").text.endswith("; not measured with precision bf16-master")
    assert known({"model_type": "llama"}, device="h100").text.endswith("; not measured with device")
    windows = known({"model_type": "llama", "attention": LLAMA["attention"] | {"window": 8}}, sequence_length=16)
    assert windows.text.endswith("; not measured with windows shorter than the sequence")


def test_other_implementations(known: Callable[..., module.Accuracy]) -> None:
    assert known({}, implementation="pytorch").equal
    assert (
        "no plain PyTorch modules exist for attention.window"
        in known({"attention": LLAMA["attention"] | {"window": 8}}, implementation="pytorch").text
    )
    assert known({}, implementation="megatron").text == "not measured: implementation megatron is modeled from its source"
    assert "float8" in known({}, float8=True, device="h100").text
    assert known({}, recompute="full", recompute_every=2).text == "not measured with recompute_every"
    assert "peaks of GPT runs" in known({}, implementation="megatron-core").text


def test_short_outputs_list_the_models_that_differ(plan_model: PlanModel) -> None:
    plans = [plan_model(LLAMA, implementation=name, precision="bf16") for name in ("pytorch", "megatron")]
    assert omitted.of_plans(plans) == (f"Accuracy of {plans[1].name}: not measured: implementation megatron is modeled from its source.",)
    assert breakdown.accuracy(plans[0]).notes[0].startswith("models of these plain PyTorch modules were measured")


def test_a_model_with_convolutions_says_why_pytorch_counts_more_flops(known: Callable[..., module.Accuracy]) -> None:
    # 9,535,488 FLOPs instead of 196,608: tests/trace/test_mixers.py
    text = known({"model_type": "llama", "mixer": "short_convolution", "positions": "none"}).text
    assert text.endswith("FLOPs and peak equal; " + module.OF_CONVOLUTIONS)


def test_several_devices_are_not_called_equal(plan_model: PlanModel) -> None:
    made = plan_model(LLAMA | {"model_type": "llama"}, implementation="transformers", precision="bf16", batch_size=1)
    training = [replace(made.training, layout=Layout(Cluster("device", 80 << 30, devices))) for devices in (1, 8)]
    alone, several = (accuracy(made.model, one) for one in training)
    assert alone == accuracy(made.model, made.training)
    assert not several.equal
    assert several.text == f"{alone.text}; {module.ON_DEVICES}"


def test_the_measured_ranks_are_those_of_the_statement() -> None:
    measured = {(case["family"], case["kind"]) for case in fleet_steps.cases()}
    assert {family for family, _ in measured} == {"nano", "llama", "moe"}  # GPT-2's blocks, Llama's, and GPT-2's with experts
    assert {"ddp", "zero1", "fsdp", "tp", "gpipe", "ep"} <= {kind for _, kind in measured}
