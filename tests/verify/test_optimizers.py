"""The update of every optimizer, its state and its temporary memory, equals a real step in PyTorch, byte by byte."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner import cli
from planner.capacity.figures import Plan
from planner.spec.problems import SpecError

pytest.importorskip("torch", reason="the extra torch is not installed")

from planner.verify.step import measure

PlanModel = Callable[..., Plan]
# Matrices above and below 4,096 elements, and not all of whole blocks of 256; three equal layers.
GPT: dict[str, Any] = {"vocab_size": 509, "context_length": 24, "d_model": 64, "n_layers": 3, "n_heads": 4, "d_ff": 172}
LLAMA = GPT | {
    "positions": "rope",
    "norm": {"type": "rmsnorm"},
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
    "attention": {"qkv": "separate", "bias": False},
    "head": {"tied": False},
}
ADAM = [{"optimizer_kernel": kernel, **more} for kernel in ("fused", "foreach", "for-loop") for more in ({}, {"amsgrad": True})]
PYTORCH: list[dict[str, Any]] = [*ADAM, *({"optimizer": name} for name in ("sgd-momentum", "adafactor", "muon"))]
OTHERS = {
    "lion": "lion_pytorch",
    **dict.fromkeys(("adamw-8bit", "adamw-32bit", "lion-8bit", "lion-32bit", "ademamix", "ademamix-8bit"), "bitsandbytes"),
}


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def optimizer_bytes(plan: Plan) -> list[int]:
    """Return the bytes before the forward pass of a later step, and the peaks of its update and of the first one."""
    later, first = (
        next(phase.peak_bytes for phase in phases if phase.phase == "optimizer")
        for phases in (plan.memory.phases, plan.memory.first_step_phases)
    )
    return [plan.memory.live.start, later, first]


def measured_bytes(plan: Plan) -> list[int]:
    found = measure(plan.model, plan.training)
    return [found.start_bytes, found.phases[2].bytes, found.first_phases[2].bytes]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-master"])
@pytest.mark.parametrize(
    "training", [*PYTORCH, *(pytest.param({"optimizer": name}, marks=needs(module)) for name, module in OTHERS.items())], ids=str
)
def test_the_update_of_an_optimizer(plan_model: PlanModel, training: dict[str, Any], precision: str) -> None:
    plan = plan_model(GPT, batch_size=1, sequence_length=8, precision=precision, **training)
    assert optimizer_bytes(plan) == measured_bytes(plan)


MEASURED = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "optimizer_steps.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: str(row["training"]))
def test_a_measured_update(plan_model: PlanModel, row: dict[str, Any]) -> None:
    # null: from 16 bits, the recorded eigenvectors keep a tensor alive with an exception; transformers' norms follow the experts.
    plan = plan_model(row["model"], **row["training"])
    found = [row["start_bytes"], row["update_peak_bytes"], row["first_update_peak_bytes"]]
    assert [None if known is None else ours for ours, known in zip(optimizer_bytes(plan), found, strict=True)] == found


@needs("pytorch_optimizer")
@pytest.mark.parametrize("precision", ["fp32", "bf16-master"])
def test_the_update_of_soap(plan_model: PlanModel, precision: str) -> None:
    plan = plan_model(LLAMA, batch_size=1, sequence_length=8, precision=precision, optimizer="soap")
    assert optimizer_bytes(plan) == measured_bytes(plan)


def test_soap_from_16_bit_gradients_is_refused(plan_model: PlanModel) -> None:
    with pytest.raises(SpecError, match="soap requires gradient_dtype fp32"):
        plan_model(GPT, precision="bf16-master", gradient_dtype="bf16", optimizer="soap")


@pytest.mark.parametrize("training", PYTORCH, ids=str)
def test_an_update_from_gradients_in_another_dtype(plan_model: PlanModel, training: dict[str, Any]) -> None:
    plan = plan_model(LLAMA, batch_size=1, sequence_length=8, precision="bf16-master", gradient_dtype="bf16", **training)
    assert optimizer_bytes(plan) == measured_bytes(plan)


@needs("transformers")
@pytest.mark.parametrize("first_moment", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-master"])
def test_the_adafactor_of_transformers(plan_model: PlanModel, precision: str, *, first_moment: bool) -> None:
    settings = {"implementation": "transformers", "optimizer": "adafactor", "first_moment": first_moment}
    plan = plan_model(LLAMA, batch_size=1, sequence_length=8, precision=precision, **settings)
    assert optimizer_bytes(plan) == measured_bytes(plan)


@pytest.mark.parametrize("implementation", ["pytorch", pytest.param("transformers", marks=needs("transformers"))])
@pytest.mark.parametrize("more", [{}, {"keep_logits": True}, {"loss": "cross_entropy_shifted"}], ids=str)
def test_the_divided_loss_of_accumulated_passes(plan_model: PlanModel, implementation: str, more: dict[str, Any]) -> None:
    plan = plan_model(LLAMA, batch_size=1, sequence_length=8, gradient_accumulation=3, implementation=implementation, **more)
    found = measure(plan.model, plan.training)
    ours = {phase.phase: phase.peak_bytes for phase in plan.memory.phases}
    assert [max(ours["forward"], ours["loss"]), ours["backward"]] == [phase.bytes for phase in found.phases[:2]]


@pytest.mark.parametrize(
    "training",
    [
        {"recompute": "full"},
        {"optimizer_kernel": "for-loop", "precision": "bf16"},
        {"optimizer": "adafactor", "precision": "bf16"},
        pytest.param({"optimizer": "adamw-8bit", "precision": "bf16"}, marks=needs("bitsandbytes")),
    ],
    ids=str,
)
@pytest.mark.parametrize("model", [GPT, LLAMA], ids=["tied", "untied"])
def test_updates_in_the_backward_pass(plan_model: PlanModel, model: dict[str, Any], training: dict[str, Any]) -> None:
    plan = plan_model(model, batch_size=1, sequence_length=8, optimizer_in_backward=True, **training)
    found, memory = measure(plan.model, plan.training), plan.memory
    ours = [next(phase.peak_bytes for phase in phases if phase.phase == "backward") for phases in (memory.phases, memory.first_step_phases)]
    assert ours == [found.phases[1].bytes, found.first_phases[1].bytes]
    assert [memory.live.start, memory.live.after_backward] == [found.start_bytes, found.after_backward_bytes]
    assert memory.gradients_bytes == 0


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("gradient_accumulation: 2", "requires gradient_accumulation 1, not 2"),
        ("precision: bf16-master", "requires precision fp32 or bf16-autocast or bf16, not bf16-master"),
        ("optimizer: muon", "is not supported with optimizer muon"),
        ("optimizer: soap", "is not supported with optimizer soap"),
    ],
)
def test_updates_in_the_backward_pass_are_refused(setting: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    model = "name: x\nmodel: {vocab_size: 64, context_length: 16, d_model: 16, n_layers: 1, n_heads: 2}\n"
    spec.write_text(f"{model}training: {{optimizer_in_backward: true, {setting}}}\n", encoding="utf-8")
    assert cli.main(["validate", str(spec)]) == 1
    assert f"optimizer_in_backward {reason}" in capsys.readouterr().err


# Bytes of a state tensor of so many elements. torchao 0.18: _AdamBase._new_buffer quantizes whole blocks from 4,096 elements on;
# OptimState8bit.zeros, OptimState4bit.zeros and OptimStateFp8.zeros store codes, a float32 scale per block, and a float32 map of 256 or
# 16 values. A real step of each has the same bytes.
@pytest.mark.parametrize(
    ("optimizer", "of_4096", "of_4224"),
    [
        ("adamw-8bit-torchao", 4096 + 4 * 16 + 4 * 256, 2 * 4224),  # 4224 = 16.5 · 256: not quantized, in the weights' bf16
        ("adamw-4bit", 4096 // 2 + 4 * 32 + 4 * 16, 4224 // 2 + 4 * 33 + 4 * 16),  # blocks of 128
        ("adamw-fp8", 4096 + 4 * 16, 2 * 4224),
    ],
)
def test_the_state_of_torchao(plan_model: PlanModel, optimizer: str, of_4096: int, of_4224: int) -> None:
    tensors = [{"name": "a", "shape": [64, 64]}, {"name": "b", "shape": [66, 64]}, {"name": "c", "shape": [64]}]
    base = plan_model(GPT, precision="bf16", optimizer=optimizer)
    plan = plan_model(GPT | {"extra": tensors}, precision="bf16", optimizer=optimizer)
    assert plan.memory.optimizer_bytes - base.memory.optimizer_bytes == 2 * (of_4096 + of_4224 + 2 * 64)
    assert any("torch.compile" in line for line in plan.not_counted)


def test_paged_state_is_in_the_model_states_but_not_in_the_peak(plan_model: PlanModel) -> None:
    # bitsandbytes 0.50, Optimizer8bit.get_state_buffer: tensors with 100,000 elements or more; their scales are never paged.
    model = GPT | {"extra": [{"name": "a", "shape": [1000, 100]}, {"name": "b", "shape": [99_999]}]}
    plain, paged = (plan_model(model, optimizer="adamw-8bit", paged=paged) for paged in (False, True))
    assert paged.memory.model_states_bytes == plain.memory.model_states_bytes
    assert plain.memory.live.start - paged.memory.live.start == 2 * 100_000
    assert any("unified memory" in line for line in paged.not_counted)


@pytest.mark.parametrize("flags", [["--all"], ["--kept", "--step"]])
def test_checks_without_the_optimizer_are_made_if_it_cannot_run(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes.optim", None)
    spec = tmp_path / "spec.yaml"
    spec.write_text("name: x\nmodel: {vocab_size: 64, context_length: 16, d_model: 16, n_layers: 1, n_heads: 2}\n", encoding="utf-8")
    assert cli.main(["verify", str(spec), *flags, "--set", "training.optimizer=adamw-8bit"]) == 2
    shown = SimpleNamespace(**capsys.readouterr()._asdict())
    assert "saved for backward" in shown.out
    assert "peak, optimizer" not in shown.out
    if "--all" in flags:
        assert "initial loss" in shown.out
        assert "step, optimizer cannot be measured" in shown.err
    else:
        assert "base, step cannot be measured" in shown.err
    assert "requires the package bitsandbytes" in shown.err
