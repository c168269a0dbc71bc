"""Step time: work, rates and terms against arithmetic, a whole training against published totals, and a step against a published one."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice
from math import floor
from pathlib import Path
from typing import Any

import pytest
import yaml

import planner
from planner import devices
from planner.capacity.figures import Plan, Work
from planner.spec.amount import BITS_PER_SECOND, amount
from planner.spec.records import Cluster, Layout
from planner.time.coefficients import CalibrationError, coefficients
from planner.time.estimate import estimate, full_rates, of_plan
from planner.time.rates import rates
from planner.time.terms import TERMS, turns
from planner.time.training import of_hours, whole_training
from planner.trace.unsupported import UnsupportedError
from tools.published_runs import campaigns

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "tests" / "data" / "published_runs.yaml").read_text(encoding="utf-8")
PUBLISHED: dict[str, Any] = yaml.load(TEXT, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe


def plan_of(device: str = "A100-80GB-SXM", **more: Any) -> Plan:  # noqa: ANN401 - sections of a spec
    written = {
        "name": "small",
        "model": {"vocab_size": 1000, "context_length": 64, "d_model": 128, "n_layers": 2, "n_heads": 4, "attention": {"bias": False}},
        "training": {"batch_size": 2, "sequence_length": 64, "precision": "bf16-master", "device": "a100", **more.pop("training", {})},
        "cluster": {"device": device, "devices": 1, **more.pop("cluster", {})},
        **more,
    }
    return planner.plan(written)


def work_of(plan: Plan) -> Work:
    assert plan.fleet is not None
    return plan.fleet.ranks[0].work


def test_products_are_the_weights_times_tokens_in_three_passes() -> None:
    # Per layer qkv 3·128² + out 128² + feed-forward 2·4·128² = 12·128²; forward 2 FLOPs per weight and token, backward twice that.
    work = work_of(plan_of())
    assert work.linear_flops == 2 * 12 * 128**2 * (2 * 64) * 2 * 3
    assert work.head_flops == 1000 * 128 * (2 * 64) * 2 * 3
    # Fused attention, causal half: 2·B·n²·d forward, 2.5 times that backward.
    assert work.attention_flops == 2 * (2 * 2 * 64**2 * 128) * 7 // 2
    assert work.recomputed_flops == 0


def test_recomputation_runs_products_of_layers_again() -> None:
    none, full = (work_of(plan_of(training={"recompute": kind})) for kind in ("none", "full"))
    assert full.linear_flops > none.linear_flops
    assert full.recomputed_flops == full.linear_flops - none.linear_flops + full.attention_flops - none.attention_flops
    assert full.head_flops == none.head_flops


def test_bubbles_are_those_of_the_papers() -> None:
    # Narayanan et al. 2021, section 2.2: (p - 1) of m microbatches, with v stages per device (p - 1) / v.
    layout = Layout(Cluster("", 0, 8), pipeline_parallel=8)
    assert turns(layout, 16, 8, 1) == 16 + 7
    interleaved = Layout(Cluster("", 0, 8), pipeline_parallel=8, virtual_stages=2, schedule="interleaved")
    assert turns(interleaved, 16, 8, 2) == 16 + 7 / 2
    # Qi et al. 2024, table 2: ZB-H1's bubble is a third of 1F1B's if the three parts of a pass take equally long.
    assert turns(Layout(Cluster("", 0, 8), schedule="zero_bubble"), 16, 4, 1) == 16 + 3 / 3


def test_a_device_without_the_rate_is_refused_with_what_it_has() -> None:
    volta = devices.find("V100-32GB-SXM")
    assert volta
    with pytest.raises(UnsupportedError, match="V100-32GB-SXM has no rate of bf16 products; known TFLOP/s: fp16 125"):
        rates(volta, "bfloat16", None)
    assert of_plan(plan_of(device="V100-32GB-SXM")) == "V100-32GB-SXM has no rate of bf16 products; known TFLOP/s: fp16 125"


def test_links_have_units() -> None:
    training = plan_of(cluster={"inter_node": "400Gb/s"}).training
    assert training.layout is not None
    assert full_rates(training, training.layout).far == 50e9  # 8 bits are a byte
    assert amount("400", BITS_PER_SECOND) is None


def test_a_device_outside_the_catalog_has_no_time() -> None:
    found = of_plan(plan_of(device="A100-80GB-SXM", cluster={"device": {"memory": "80GiB"}}))
    assert isinstance(found, str)
    assert "not known" in found


def test_utilization_and_rates_follow_from_the_time() -> None:
    plan = plan_of()
    found = estimate(plan)
    assert found.tokens_per_second == pytest.approx(2 * 64 / found.seconds)
    # Model FLOPs: products of weights and the causal half of attention, both in three passes, over 312 TFLOP/s.
    model = 3 * (2 * (2 * 12 * 128**2 + 1000 * 128) * 128 + 2 * 2 * 2 * 64**2 * 128)
    assert found.mfu == pytest.approx(model / found.seconds / 312e12)
    assert found.hfu > found.mfu  # attention's backward pass recomputes the scores
    assert found.low < found.seconds < found.high
    assert sum(share for name, share in found.shares.items() if name not in ("bubble", "recomputed")) == pytest.approx(1)


# Touvron et al. 2023 (arXiv:2302.13971), table 15: GPU hours of A100 at 400 W and PUE 1.1, and the MWh it prints, cut to whole ones.
@pytest.mark.parametrize(("hours", "printed"), [(82_432, 36), (135_168, 59), (530_432, 233), (1_022_362, 449)])
def test_energy_is_that_of_llamas_table(hours: int, printed: int) -> None:
    device = devices.find("A100-80GB-SXM")
    assert device
    made = of_hours(Fraction(hours), Cluster("", 0, 2048, pue=Fraction("1.1")), device.watts)
    assert made.energy_kwh is not None
    assert floor(made.energy_kwh / 1000) == printed
    assert made.cost is None
    assert made.co2_kg is None
    assert made.days == Fraction(hours, 2048 * 24)


def test_co2_is_that_of_llama_2s_card() -> None:
    # Touvron et al. 2023 (arXiv:2307.09288), table 2: 184,320 hours at 400 W, 31.22 t; with PUE 1.1 and 0.385 kg/kWh.
    cluster = Cluster("", 0, 2000, pue=Fraction("1.1"), kg_co2_per_kwh=Fraction("0.385"))
    made = of_hours(Fraction(184_320), cluster, 400)
    assert made.co2_kg is not None
    assert round(float(made.co2_kg) / 1000, 2) == 31.22


def test_cost_is_that_of_deepseek_v3() -> None:
    # DeepSeek-AI 2024 (arXiv:2412.19437), table 1: 2,788 thousand H800 hours at $2 are $5.576 million.
    made = of_hours(Fraction(2_788_000), Cluster("", 0, 2048, price_per_device_hour=Fraction(2), currency="USD"), None)
    assert made.cost == 5_576_000
    assert made.energy_kwh is None


def test_availability_adds_hours_and_missing_tokens_are_not_counted() -> None:
    plan = plan_of(training={"tokens": 10**9})
    whole = plan_of(training={"tokens": 10**9}, cluster={"availability": 0.5})
    first, second = (whole_training(one, estimate(one)) for one in (plan, whole))
    assert first is not None
    assert second is not None
    assert second.device_hours == 2 * first.device_hours
    assert whole_training(plan_of(), estimate(plan_of())) is None


def test_the_fit_saw_the_runs_of_the_repository_and_no_others() -> None:
    runs = PUBLISHED["runs"]
    assert not [run for run in runs if run["source"] == "hagemann"]
    assert all(run["link"] and run["grade"] in "AB" for run in runs)
    known = coefficients()
    assert known.data.startswith(f"{len(runs) - 1} published runs")  # one has no whole number of microbatches
    assert all(low < 1 < high for low, high in known.bands.values())
    assert all(known.terms[name] >= 1 for name in ("linear", "experts", "attention"))


def test_a_published_step_is_predicted() -> None:
    # Narayanan et al. 2021 (arXiv:2104.04473), table 1: 310.1 B parameters at 155 TFLOP/s on each of 1,920 devices, by their formula (3):
    # 96·2160·2048·96·16384²·(1 + 2048 / (6·16384) + 51200 / (16·96·16384)) / 1920 / 155e12 = 37.61 s. The run is in the fit, so this
    # protects the path from a spec to its time, not the fit.
    written = {
        "name": "published",
        "model": {"vocab_size": 51200, "context_length": 2048, "d_model": 16384, "n_layers": 96, "n_heads": 128, "head": {"tied": True}},
        "training": {
            "batch_size": 1,
            "sequence_length": 2048,
            "global_batch_size": 2160,
            "precision": "fp16-master",
            "gradient_dtype": "fp32",
            "implementation": "megatron",
            "recompute": "full",
        },
        "cluster": {"device": "A100-80GB-SXM", "devices": 1920, "inter_node": "200Gb/s"},
        "layout": {
            "tensor_parallel": 8,
            "pipeline_parallel": 16,
            "virtual_stages": 2,
            "schedule": "interleaved",
        },
    }
    found = estimate(planner.plan(written))
    assert found.low < 37.61 < found.high


def test_a_file_that_is_no_calibration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "calibration.yaml"
    path.write_text("data: nothing\n", encoding="utf-8")
    with pytest.raises(CalibrationError, match=r"calibration\.yaml is not a calibration file"):
        coefficients(path)
    with pytest.raises(CalibrationError, match=r"nosuch\.yaml"):
        coefficients(tmp_path / "nosuch.yaml")


def test_published_trainings_are_predicted() -> None:
    # Touvron et al. 2023 (arXiv:2302.13971), table 15, whose hours no fit saw. What is not predicted (restarts, evaluation) adds hours.
    known = coefficients()
    for run, hours in islice(campaigns(), 4):
        seconds = sum(float(run.terms[name]) * known.terms[name] for name in TERMS) * known.devices[run.device]
        assert 0.85 < run.seconds / seconds < 1.35, (run.name, hours)
