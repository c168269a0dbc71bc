"""Optimizers that really step, and the first loss: what they hold is what the planner says."""

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
NEEDS = {"lion": "lion_pytorch", "adamw-8bit": "bitsandbytes"}
PRECISIONS: tuple[tuple[Precision, GradientDtype], ...] = (
    ("fp32", "fp32"),
    ("bf16-autocast", "fp32"),
    ("bf16", "bf16"),
    ("bf16-master", "fp32"),
    ("bf16-master", "bf16"),
)


@pytest.mark.parametrize(("precision", "gradient_dtype"), PRECISIONS)
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "sgd-momentum", "adafactor", "muon", "lion", "adamw-8bit"])
def test_an_optimizer_holds_what_the_planner_says(optimizer: Optimizer, precision: Precision, gradient_dtype: GradientDtype) -> None:
    if optimizer in NEEDS and importlib.util.find_spec(NEEDS[optimizer]) is None:
        pytest.skip(f"{NEEDS[optimizer]} is not installed")
    training = Training(2, 9, precision=precision, gradient_dtype=gradient_dtype, optimizer=optimizer)
    scenario = Scenario("base", training)
    memory = capacity.plan(Spec("small", "small.yaml", SMALL, (scenario,)), scenario).memory
    measured = measure_optimizer(SMALL, training)
    assert memory.optimizer_bytes == measured.state_bytes
    assert memory.master_weights_bytes == measured.master_bytes
    assert memory.gradients_bytes == measured.gradient_bytes


def test_an_optimizer_whose_package_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lion_pytorch", None)
    with pytest.raises(CannotMeasureError, match="lion-pytorch"):
        measure_optimizer(SMALL, Training(2, 9, optimizer="lion"))


@pytest.mark.parametrize("precision", ["fp32", "bf16-autocast", "fp16-autocast", "bf16", "bf16-master"])
def test_a_fresh_model_scores_like_one_that_knows_nothing(precision: Precision) -> None:
    measured = measure_loss(replace(SMALL, padded_vocab_size=256), Training(2, 9, precision=precision))
    assert measured.logits_shape == (2, 9, 256)
    assert measured.loss == pytest.approx(math.log(250), rel=0.02)
