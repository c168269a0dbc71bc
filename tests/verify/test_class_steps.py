"""Steps of classes of transformers: the committed measurements are repeatable, and the differences from plans are up to date."""

from __future__ import annotations

import csv
import json
import os

import pytest

from planner.report.accuracy import TABLE
from tools.measure import SETTINGS, TRUTH, configs, differences, measured, step

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

STEPS = measured()
ALL = os.environ.get("CHANGES") == "all"  # `make sweep`
# Two settings of a few small classes: attention without and with a mask, biases, experts, another norm.
SAMPLE = ("llama", "mistral", "gpt_neox", "cohere", "olmoe")
REPEATED = [
    (config, name)
    for config in configs()
    for name in (SETTINGS if ALL else ("sdpa bf16", "eager bf16-autocast full"))
    if (ALL or config["model_type"] in SAMPLE) and name in STEPS.get(json.dumps(config), {})
]
EVERY = 1 if ALL else 12


@pytest.mark.parametrize(("config", "name"), REPEATED, ids=[f"{config['model_type']}-{name}" for config, name in REPEATED])
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_step_is_measured_again(config: dict[str, object], name: str) -> None:
    assert step(config, SETTINGS[name]) == STEPS[json.dumps(config)][name]


def test_the_table_of_differences_is_up_to_date() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        listed = list(csv.reader(file))[1:]
    some = {config: STEPS[config] for config in list(STEPS)[::EVERY]}
    missing = [row for row in map(list, differences(some)) if row not in listed]
    assert not missing, "run `tools/measure.py --compare` and `make docs`, and look at what changed"


def test_every_measured_config_is_one_of_the_twins() -> None:
    assert TRUTH.exists()
    assert set(STEPS) <= set(map(json.dumps, configs()))
