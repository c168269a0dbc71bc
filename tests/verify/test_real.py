"""Real optimizer steps and the initial loss equal the plan."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace

import pytest

from planner import capacity
from planner.spec.records import Attention, FeedForward, GradientDtype, Layer, Model, Optimizer, Precision, Run, Scenario, Spec, Training
from planner.verify import CannotMeasureError

pytest.importorskip("torch", reason="the extra torch is not installed")

from planner.verify.real import measure_loss, measure_optimizer

LAYER = Layer(Attention(4, 4, 16), FeedForward(96))
SMALL = Model(250, 250, 40, 64, 2, (Run(2, (LAYER,)),))
BITSANDBYTES = ("adamw-8bit", "adamw-32bit", "lion-8bit", "lion-32bit", "ademamix", "ademamix-8bit")
NEEDS = {"lion": "lion_pytorch", **dict.fromkeys(BITSANDBYTES, "bitsandbytes")}
PRECISIONS: tuple[tuple[Precision, GradientDtype], ...] = (
    ("fp32", "fp32"),
    ("bf16-autocast", "fp32"),
    ("bf16", "bf16"),
    ("bf16-master", "fp32"),
    ("bf16-master", "bf16"),
)


@pytest.mark.parametrize(("precision", "gradient_dtype"), PRECISIONS)
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "sgd-momentum", "adafactor", "muon", "lion", *BITSANDBYTES])
def test_the_state_of_a_real_optimizer_equals_the_plan(optimizer: Optimizer, precision: Precision, gradient_dtype: GradientDtype) -> None:
    if optimizer in NEEDS and importlib.util.find_spec(NEEDS[optimizer]) is None:
        pytest.skip(f"{NEEDS[optimizer]} is not installed")
    training = Training(2, 9, precision=precision, gradient_dtype=gradient_dtype, optimizer=optimizer)
    scenario = Scenario("base", training)
    memory = capacity.plan(Spec("small", "small.yaml", SMALL, (scenario,)), scenario).memory
    measured = measure_optimizer(SMALL, training)
    assert memory.optimizer_bytes == measured.state_bytes
    assert memory.master_weights_bytes == measured.master_bytes
    assert memory.gradients_bytes == measured.gradient_bytes


def test_a_missing_package_of_an_optimizer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lion_pytorch", None)
    with pytest.raises(CannotMeasureError, match="lion-pytorch"):
        measure_optimizer(SMALL, Training(2, 9, optimizer="lion"))


@pytest.mark.parametrize("precision", ["fp32", "bf16-autocast", "fp16-autocast", "bf16", "bf16-master"])
def test_the_loss_of_a_new_model_is_ln_v(precision: Precision) -> None:
    measured = measure_loss(replace(SMALL, padded_vocab_size=256), Training(2, 9, precision=precision))
    assert measured.logits_shape == (2, 9, 256)
    assert measured.loss == pytest.approx(math.log(250), rel=0.02)
