"""Multi-token prediction layers: traced like any other layer, reported separately, in the totals only on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.capacity.figures import Plan, Prediction

PlanModel = Callable[..., Plan]
DEEPSEEK = Path(__file__).parent.parent.parent / "specs" / "catalog" / "deepseek_v3" / "deepseek-v3.yaml"
SMALL: dict[str, Any] = {"vocab_size": 101, "context_length": 24, "d_model": 32, "n_layers": 3, "n_heads": 4, "d_ff": 48}
IN_TOTALS = {"count_prediction": True}


def added(plan: Plan) -> Prediction[int]:
    assert plan.prediction is not None
    return plan.prediction


def test_published_sizes_of_deepseek_v3() -> None:
    # README_WEIGHTS.md of deepseek-ai/DeepSeek-V3: 671B in the main model; the module has 11.5B parameters of its own beside the shared
    # embedding and head of 0.9B each, and activates 2.4B with those two; README.md: 14B of module weights are stored.
    plan = planner.plan(planner.load(DEEPSEEK))
    more, d, V = added(plan), 7168, 129_280
    assert plan.parameters.total == 671_026_404_352
    attention = d * 1536 + 1536 + 1536 * 128 * 192 + d * 576 + 512 + 512 * 128 * 256 + 128 * 128 * d
    expert, router = 3 * d * 2048, 256 * d
    around = 2 * d * d + 5 * d  # eh_proj, and the norms enorm, hnorm, before attention, before experts and before the head
    assert more.params == attention + 257 * expert + router + around == 11_610_067_968
    assert more.active_params == attention + 9 * expert + router + around == 688_100_352
    assert round((more.active_params + 2 * V * d) / 1e9, 1) == 2.5  # 2.4 without eh_proj, which reads two vectors
    assert more.stored_params == more.params + 256 + 2 * V * d == 13_463_426_304


def test_flops_by_hand() -> None:
    plan = planner.plan(planner.load(DEEPSEEK))
    n, d, V = 4096, 7168, 129_280
    attention = d * 1536 + 1536 * 128 * 192 + d * 576 + 512 * 128 * 256 + 128 * 128 * d
    weights = 2 * d * d + attention + 9 * 3 * d * 2048 + 256 * d + V * d  # eh_proj, the layer's matrices, and the shared head
    assert added(plan).forward_flops_per_token == 2 * weights + 2 * n * 128 * (192 + 128)
    assert added(plan).train_flops_per_token == 3 * added(plan).forward_flops_per_token


@pytest.mark.parametrize("count", [1, 2])
def test_totals_include_it_on_request(plan_model: PlanModel, count: int) -> None:
    model = SMALL | {"prediction": {"count": count}}
    without, counted = plan_model(model, batch_size=2), plan_model(model, batch_size=2, **IN_TOTALS)
    more = added(without)
    assert (added(counted).counted, more.counted) == (True, False)
    assert added(counted).params == more.params == count * (2 * 32**2 + 7504 + 3 * 2 * 32)
    assert counted.parameters.total == without.parameters.total + more.params
    assert counted.memory.model_states_bytes == without.memory.model_states_bytes + more.model_states_bytes
    assert counted.memory.activations_bytes == without.memory.activations_bytes + more.activations_bytes
    assert counted.memory.peak_bytes == without.memory.peak_bytes + more.peak_bytes
    assert counted.flops.chosen.train_per_token == without.flops.chosen.train_per_token + more.train_flops_per_token
    assert without.parameters.total == plan_model(SMALL).parameters.total
    assert without.memory.peak_bytes == plan_model(SMALL, batch_size=2).memory.peak_bytes


def test_saved_bytes_of_the_layer(plan_model: PlanModel) -> None:
    # In fp32, beside the layer itself: embedded tokens, concatenated vectors, the layer's output and its norm; statistics of three norms;
    # log-probabilities and the total weight of the loss; ids and targets shifted by one. The last hidden states are saved already.
    def kept(**model: object) -> int:
        training = {"batch_size": 2, "sequence_length": 16, "precision": "fp32"}
        plan = plan_model(SMALL | model, **training, **(IN_TOTALS if "prediction" in model else {}))
        return plan.memory.activations_bytes

    a_layer = kept(n_layers=4) - kept()
    rows, d, V = 2 * 16, 32, 101
    vectors = rows * d + 2 * rows * d + rows * d + rows * d
    around = 4 * (vectors + 3 * 2 * rows + rows * V + 1) + 8 * 2 * rows
    assert kept(prediction={}) - kept() == a_layer + around


def test_it_is_listed_as_not_measured(plan_model: PlanModel) -> None:
    assert any("prediction" in line for line in plan_model(SMALL | {"prediction": {}}, **IN_TOTALS).not_counted)
